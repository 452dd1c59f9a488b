/* Lines of standard input, and Ctrl-C, which is noted and ends nothing by itself. */
#ifndef CLI_CHAT_INPUT_H
#define CLI_CHAT_INPUT_H

#include "base/str.h"

typedef struct {
  str text; /* read, and not taken yet */
  size_t taken;
  bool ended;
} chat_input;

typedef enum { INPUT_LINE, INPUT_END, INPUT_INTERRUPTED } input_event;

/* From now on Ctrl-C (SIGINT) is noted. */
void chat_input_begin(void);
bool chat_input_interrupted(void);
void chat_input_forget(void); /* what was noted */

/* Waits for a line, without its end; *line is valid until the next call.  INPUT_INTERRUPTED if
 * Ctrl-C came first. */
hp_status chat_input_read(chat_input *in, input_event *event, const char **line, size_t *n);
void chat_input_free(chat_input *in);

#endif
