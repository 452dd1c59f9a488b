/* Internal to sched: lines of words and numbers, # begins a comment. */
#ifndef SCHED_ROW_READER_H
#define SCHED_ROW_READER_H

#include "base/status.h"

/* {text, source, form}: `source` is named in messages, `form` says what a row is. */
typedef struct {
  const char *at; /* rest of the line */
  const char *source, *form;
  int line; /* from 1; 0 before the first */
} row_reader;

/* Goes to the next line that has a word; false: there is none. */
bool row_reader_line(row_reader *r);
/* The next word of the line and its length; 0: there is none. */
size_t row_reader_word(row_reader *r, const char **word);
/* The next word is a number below `most`; HP_ERR_INPUT with the line and `what` it stands for. */
hp_status row_reader_number(row_reader *r, const char *what, uint32_t most, uint32_t *out);
/* Length of a word as messages show it. */
static inline int row_reader_shown(size_t n) { return (int)(n < 40 ? n : 40); }

#endif
