/* What `hyper generate` continues: prompts of a file, or conversations. */
#ifndef CLI_GENERATE_PROMPTS_H
#define CLI_GENERATE_PROMPTS_H

#include "cli/conversation.h"
#include "serve/generate.h"

/* A prompt for each line that is not empty, as text and as tokens. */
typedef struct {
  char *file;             /* its bytes; the lines are NUL-terminated */
  VEC(const char *) line; /* of a conversation "": the answer is shown alone */
  VEC(lm_tokens) prompt;
  generation_result *r;             /* of each */
  int32_t eos[GENERATION_ENDS_MAX]; /* tokens that end an answer */
  int n_eos;                        /* 0: those of the model */
} prompts;

/* A text a line. */
hp_status prompts_read_texts(const char *path, const tokenizer *t, prompts *out);
/* A conversation a line, as JSON: a list of messages, or an object with "messages", "tools" and
 * other variables of the chat template. */
hp_status prompts_read_messages(const char *path, const char *model, const tokenizer *t,
                                const conversation_options *how, prompts *out);
/* Also after a failure. */
void prompts_free(prompts *p);

#endif
