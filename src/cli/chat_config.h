/* LlamaFactory's YAML of a chat, for `hyper chat`. */
#ifndef CLI_CHAT_CONFIG_H
#define CLI_CHAT_CONFIG_H

#include "cli/cli.h"
#include "cli/conversation.h"
#include "serve/generate.h"
#include "train/train_config.h"

/* What the words and the file of the verb say. */
typedef struct {
  model_options m;
  conversation_options talk;
  const char *stop;
  int64_t max_new_tokens, top_k, sparse; /* CHAT_UNSAID: not said */
  double temperature, top_p, repetition_penalty;
  uint64_t cache;
} chat_settings;
#define CHAT_UNSAID     INT64_MIN
#define CHAT_UNSAID_NUM (-1e300)

/* Fills in what no option said; the config and `text` outlive the settings.  HP_ERR_INPUT names
 * keys that would have an effect and have none here. */
hp_status chat_config_apply(train_config *c, arena *text, chat_settings *s);

#endif
