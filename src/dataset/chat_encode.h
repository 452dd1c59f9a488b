/* Conversations into tokens, by a template. */
#ifndef DATASET_CHAT_ENCODE_H
#define DATASET_CHAT_ENCODE_H

#include "dataset/chat.h"
#include "dataset/chat_template.h"
#include "tok/tokenizer.h"

/* What a configuration may change in a template. */
typedef struct {
  const char *tool_format;    /* NULL: the template's */
  const char *default_system; /* NULL: the template's */
  int thinks;                 /* enable_thinking: 1, 0 or -1 = null; for templates that reason */
  bool keeps_thoughts;        /* preserve_thinking */
} chat_options;

typedef struct {
  const tokenizer *tokenizer;
  arena mem; /* of a template that was not of the list */
  chat_template of;
  int thinks;
  bool keeps_thoughts;
  int32_t bos, eos;     /* -1: none */
  token_ids no_thought; /* an empty thought */
} chat_encoder;

/* An encoder by the template of that name; NULL: by the model's own in dir, and if it has none each
 * message as it is ("empty").  eos: the end token that the run uses.  HP_ERR_INPUT for
 * a template or tool format that does not exist, and for tokens of the template that the tokenizer
 * has not; markers that it has only as pieces are warned of. */
hp_status chat_encoder_create(const tokenizer *t, const char *template, const char *dir,
                              int32_t eos, const chat_options *o, chat_encoder *out);
void chat_encoder_free(chat_encoder *e);

/* Messages to be written: a conversation, or its prompt with one of its responses. */
typedef struct {
  const chat_message *message;
  size_t n; /* even: a question and an answer by turns */
  dataset_text system, tools;
} chat_turns;

/* Tokens of each of the n messages, appended to ids[0..n).  one: of the last answer alone, as for
 * preferences and generation; thoughts of earlier answers are left out.  Else of every answer,
 * those thoughts left out only if drop_history says so (mask_history).  Thread-safe. */
hp_status chat_encode(const chat_encoder *e, const chat_turns *c, bool one, bool drop_history,
                      token_ids *ids);

/* Tokens that end an answer, at most n: eos, then the stops of the template that the tokenizer has.
 * How many there are. */
int chat_find_ends(const chat_template *of, const tokenizer *t, int32_t eos, int32_t *ids, int n);

#endif
