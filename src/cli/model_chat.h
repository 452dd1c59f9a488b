/* A model's own chat template with its tokenizer: conversations into prompts. */
#ifndef CLI_MODEL_CHAT_H
#define CLI_MODEL_CHAT_H

#include "jinja/model_template.h"
#include "tok/tokenizer.h"

typedef struct {
  const tokenizer *t;
  model_template of;                          /* of.plain is NULL: the model has no template */
  template_variable variable[TOKEN_MASK + 2]; /* bos_token, ...; enable_thinking */
  size_t n;
} model_chat;

hp_status model_chat_open(const char *model, const tokenizer *t, model_chat *out);
void model_chat_close(model_chat *c);
/* enable_thinking of conversations that do not say it; at most once. */
void model_chat_set_thinking(model_chat *c, bool thinks);
/* Appends the tokens of a conversation, up to where the answer begins.  The tree is changed. */
hp_status model_chat_encode(const model_chat *c, tree *conversation, token_ids *out);

#endif
