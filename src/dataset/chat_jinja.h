/* A template of the list as Jinja text, the chat_template of a model's folder, by which
 * Transformers, vLLM and `hyper generate --messages` write conversations.
 *
 * It is the text that LlamaFactory 0.9.5 makes: of prefix, system, user and assistant alone; tools,
 * what they return, and thoughts have no place in it. */
#ifndef DATASET_CHAT_JINJA_H
#define DATASET_CHAT_JINJA_H

#include "base/str.h"
#include "dataset/chat_template.h"

/* Appends the text.  bos, eos: the tokenizer's tokens, NULL = none.  false, and nothing appended:
 * a slot writes a token that is not a text. */
bool chat_jinja_print(const chat_template *t, const char *bos, const char *eos, str *out);

#endif
