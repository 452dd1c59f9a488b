/* A template of slots out of a model's own chat template, as LlamaFactory does without the key
 * `template`: it renders conversations of a mark, and sees what is around it. */
#ifndef DATASET_CHAT_PARSE_H
#define DATASET_CHAT_PARSE_H

#include "base/arena.h"
#include "dataset/chat_template.h"
#include "tok/tokenizer.h"

/* Texts of the slots are in mem.  *found false: the model in dir has no template of its own. */
hp_status chat_template_parse(const tokenizer *t, const char *dir, arena *mem, chat_template *out,
                              bool *found);

#endif
