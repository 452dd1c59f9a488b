#include "train/train_optimizer.h"

#include <math.h>
#include <string.h>

static optimizer_kind kind_of(const train_config *c) {
  if (c->use_muon) return OPTIMIZER_MUON;
  switch (c->optim) {
  case OPTIM_SGD: return OPTIMIZER_SGD;
  case OPTIM_ADAFACTOR: return OPTIMIZER_ADAFACTOR;
  case OPTIM_LION: return OPTIMIZER_LION;
  default: return OPTIMIZER_ADAMW;
  }
}

optimizer_options train_optimizer_of(const train_config *c) {
  return (optimizer_options){.kind = kind_of(c),
                             .beta1 = c->adam_beta1,
                             .beta2 = c->adam_beta2,
                             .eps = c->adam_epsilon,
                             .decay = c->weight_decay};
}

bool train_optimizer_uses(const train_config *c, int key) {
  const optimizer *o = &optimizers[kind_of(c)];
  if (key == KEY_adam_epsilon) return o->eps;
  return o->betas || (key != KEY_adam_beta1 && key != KEY_adam_beta2);
}

/* Does the name "a|b", of n characters, contain the word? */
static bool has(const char *name, size_t n, const char *word) {
  const char *at = strstr(name, word);
  return at && at < name + n;
}

static hp_status check_built(const train_config *c) {
  size_t n;
  const char *name = train_key_choice(train_key_get(KEY_optim)->choices, c->optim, &n);
  const tree_node *at = train_config_at(c, KEY_optim);
  if (c->optim <= OPTIM_LAST_BUILT) return HP_OK;
  bool small = has(name, n, "8bit") || has(name, n, "4bit") || has(name, n, "paged");
  bool lion = has(name, n, "lion"), adamw = has(name, n, "adamw") && !has(name, n, "galore");
  if (small && (lion || adamw))
    TREE_FAIL(at,
              "%.*s is not built; write %s, whose state is f32; offload: {optimizer: host} keeps "
              "it in host memory, and adafactor has almost none",
              (int)n, name, lion ? "lion_32bit" : "adamw_torch");
  TREE_FAIL(at,
            "%.*s is not built; write adamw_torch, adamw_torch_fused, sgd, adafactor or "
            "lion_32bit, or use_muon: true",
            (int)n, name);
}

static hp_status check_beta(const train_config *c, int key, double beta) {
  if (beta >= 1) TREE_FAIL(train_config_at(c, key), "1 keeps no new gradient; expected below 1");
  return HP_OK;
}

/* LlamaFactory looks at loraplus_lr_ratio first, and then ignores use_muon. */
static hp_status check_muon(train_config *c) {
  if (!c->use_muon) return HP_OK;
  if (c->finetuning_type == TUNING_LORA && !isnan(c->loraplus_lr_ratio))
    TREE_FAIL(train_config_at(c, KEY_use_muon),
              "true has no effect with loraplus_lr_ratio, which trains by optim; leave one of them "
              "out");
  if (c->at[KEY_optim])
    return train_config_note(c, "optim: without effect: use_muon is the optimizer");
  return HP_OK;
}

hp_status train_optimizer_check(train_config *c) {
  static const int keys[] = {KEY_adam_beta1, KEY_adam_beta2, KEY_adam_epsilon};
  HP_TRY(check_built(c));
  HP_TRY(train_config_keep(c, check_beta(c, KEY_adam_beta1, c->adam_beta1)));
  HP_TRY(train_config_keep(c, check_beta(c, KEY_adam_beta2, c->adam_beta2)));
  HP_TRY(check_muon(c));
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (c->at[keys[i]] && !train_optimizer_uses(c, keys[i]))
      HP_TRY(train_config_note(c, "%s: without effect: %s does not use it",
                               train_key_get(keys[i])->name, optimizers[kind_of(c)].name));
  return HP_OK;
}
