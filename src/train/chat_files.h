/* What the files beside a model say of the template that it was trained with, as LlamaFactory saves
 * them, so that programs that know nothing of templates' names write conversations the same way.
 *
 * chat_template.jinja: where the model has no chat template yet, or the template's row says that
 * its own counts.  eos_token of tokenizer_config.json: the template's end token where that takes
 * the place of the tokenizer's. */
#ifndef TRAIN_CHAT_FILES_H
#define TRAIN_CHAT_FILES_H

#include "ckpt/model_files.h"
#include "tok/tokenizer.h"

/* Changes the files that were read; name: a template's.  Fails for one whose end token takes the
 * place of the tokenizer's and is none of its tokens.  One that cannot be written as Jinja is told.
 */
hp_status chat_files_complete(const char *name, const tokenizer *t, model_files *files);

#endif
