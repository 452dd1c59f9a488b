#include "train/train_tuning.h"

#include "base/io.h"
#include "model/lm_adapter.h"
#include "train/losses.h"
#include "train/train_freeze.h"
#include "train/train_preference.h"

#include <math.h>
#include <string.h>

/* --- configuration ---------------------------------------------------------------------------- */

static hp_status check_built(const train_config *c) {
  static const char *const tuning[] = {"full", "freeze", "lora", "oft"};
  if (c->finetuning_type <= TUNING_LORA) return HP_OK;
  TREE_FAIL(train_config_at(c, KEY_finetuning_type),
            "finetuning_type %s is not built; write finetuning_type: full, freeze or lora",
            tuning[c->finetuning_type]);
}

/* Keys that change something with finetuning_type lora alone, as LlamaFactory refuses them. */
static hp_status check_lora_keys(const train_config *c) {
  static const int keys[] = {KEY_adapter_name_or_path, KEY_use_rslora, KEY_use_dora,
                             KEY_loraplus_lr_ratio, KEY_pissa_init};
  for (size_t i = 0; i < sizeof keys / sizeof *keys && c->finetuning_type != TUNING_LORA; i++) {
    const tree_node *n = c->at[keys[i]];
    if (!n || (n->kind == TREE_BOOL && !n->boolean)) continue;
    TREE_FAIL(n,
              "it belongs to finetuning_type lora; leave it out, or write finetuning_type: lora");
  }
  return HP_OK;
}

hp_status train_tuning_check(const train_config *c) {
  HP_TRY(check_built(c));
  return check_lora_keys(c);
}

static hp_status note_keys(train_config *c, int type, const int *keys, size_t n) {
  static const char *const tuning[] = {"full", "freeze", "lora"};
  for (size_t i = 0; i < n; i++)
    if (c->finetuning_type != type && c->at[keys[i]])
      HP_TRY(train_config_note(c, "%s: without effect: it belongs to finetuning_type %s",
                               train_key_get(keys[i])->name, tuning[type]));
  return HP_OK;
}

static hp_status note_other_keys(train_config *c) {
  static const int lora[] = {KEY_lora_rank,     KEY_lora_alpha,        KEY_lora_dropout,
                             KEY_lora_target,   KEY_additional_target, KEY_create_new_adapter,
                             KEY_adapter_folder};
  static const int freeze[] = {KEY_freeze_trainable_layers, KEY_freeze_trainable_modules,
                               KEY_freeze_extra_modules};
  HP_TRY(note_keys(c, TUNING_LORA, lora, sizeof lora / sizeof *lora));
  return note_keys(c, TUNING_FREEZE, freeze, sizeof freeze / sizeof *freeze);
}

static hp_status decide_freeze(train_config *c) {
  HP_TRY(train_config_split(c, c->freeze_trainable_modules, &c->is.freeze_modules));
  return train_config_split(c, c->freeze_extra_modules, &c->is.freeze_extra);
}

static bool makes_adapter(const train_config *c) {
  return c->create_new_adapter || !c->is.adapters.n;
}

/* A reference model would be what is left of the weights. */
static hp_status check_pissa(train_config *c) {
  const tree_node *at = train_config_at(c, KEY_pissa_init);
  preference p = train_preference_of(c);
  if (c->pissa_convert && !c->pissa_init)
    TREE_FAIL(c->at[KEY_pissa_convert], "it belongs to pissa_init: true; leave it out");
  if (!c->pissa_init) return HP_OK;
  if (preference_has_reference(&p))
    TREE_FAIL(at,
              "stage %s compares with the model without its adapter, which pissa_init takes apart, "
              "as in LlamaFactory; leave it out%s",
              losses[c->stage].stage,
              c->stage == STAGE_dpo ? ", or write pref_loss: orpo or simpo" : "");
  if (!makes_adapter(c))
    TREE_FAIL(at, "the adapter is that of adapter_name_or_path; leave pissa_init out, or write "
                  "create_new_adapter: true");
  if (c->pissa_convert && (c->use_dora || c->is.additional.n))
    TREE_FAIL(
        c->at[KEY_pissa_convert],
        "it makes an adapter of A and B alone, which cannot hold what %s trains; leave one of "
        "them out",
        c->use_dora ? "use_dora" : "additional_target");
  return HP_OK;
}

static hp_status decide_lora(train_config *c) {
  HP_TRY(train_config_split(c, c->adapter_name_or_path, &c->is.adapters));
  HP_TRY(train_config_split(c, c->lora_target, &c->is.lora_target));
  HP_TRY(train_config_split(c, c->additional_target, &c->is.additional));
  if (!(c->lora_dropout < 1))
    TREE_FAIL(c->at[KEY_lora_dropout], "%g; expected less than 1", c->lora_dropout);
  if (!c->is.lora_target.n)
    TREE_FAIL(train_config_at(c, KEY_lora_target), "is empty; write all, or names of modules");
  return check_pissa(c);
}

static hp_status note_keys_of_verbs(train_config *c) {
  for (int k = 0; k < KEY_COUNT; k++) {
    train_group of = train_key_get(k)->group;
    bool exports = of == GROUP_EXPORT, generates = of == GROUP_GENERATION;
    if (c->at[k] && (exports || (generates && !c->predict_with_generate)))
      HP_TRY(train_config_note(c, "%s: without effect: it belongs to %s", train_key_get(k)->name,
                               exports ? "hyper export" : "predict_with_generate and hyper chat"));
  }
  return HP_OK;
}

hp_status train_tuning_decide(train_config *c) {
  HP_TRY(note_keys_of_verbs(c));
  HP_TRY(train_tuning_check(c));
  HP_TRY(note_other_keys(c));
  if (c->finetuning_type == TUNING_LORA) return decide_lora(c);
  return c->finetuning_type == TUNING_FREEZE ? decide_freeze(c) : HP_OK;
}

/* --- the model -------------------------------------------------------------------------------- */

hp_status train_tuning_folder(const train_config *c, size_t i, str *out) {
  if (c->adapter_folder) return path_join(out, c->is.adapters.at[i], c->adapter_folder);
  str_clear(out);
  str_add(out, c->is.adapters.at[i]);
  return str_status(out);
}

static hp_status open_adapter(const train_config *c, lm *m, size_t i, bool keep) {
  str dir = {0};
  hp_status st = train_tuning_folder(c, i, &dir);
  const char *at = dir.at;
  if (!st) st = lm_open_adapters(m, &at, 1, keep);
  str_free(&dir);
  return st;
}

/* Does the name of the module of WEIGHT, "NAME.weight", end so? */
static bool is_module(const char *weight, const char *end) {
  size_t n = (size_t)(strrchr(weight, '.') - weight), k = strlen(end);
  return n >= k && !strncmp(weight + n - k, end, k);
}

static hp_status set_new_adapter(const train_config *c, lm *m) {
  adapter_options o = {.rank = c->lora_rank,
                       .alpha = c->lora_alpha == TRAIN_NONE ? 2 * (double)c->lora_rank
                                                            : (double)c->lora_alpha,
                       .dropout = c->lora_dropout,
                       .rslora = c->use_rslora,
                       .dora = c->use_dora,
                       .pissa = c->pissa_init,
                       .pissa_iter = c->pissa_iter,
                       .target = {c->is.lora_target.at, c->is.lora_target.n},
                       .whole = {c->is.additional.at, c->is.additional.n},
                       .seed = (uint64_t)c->seed};
  for (size_t i = 0; i < o.whole.n; i++)
    if (is_module(m->c.family->head_name, o.whole.at[i]) ||
        is_module(m->c.family->embedding_name, o.whole.at[i]))
      HP_TRY(lm_untie(m));
  adapter_subject s = lm_subject(m);
  adapter *a;
  HP_TRY(adapter_create(&o, &s, &a));
  return lm_set_adapter(m, a);
}

hp_status train_tuning_apply(const train_config *c, lm *m) {
  const train_names *all = &c->is.adapters;
  if (c->finetuning_type == TUNING_FREEZE) return train_freeze_apply(c, m);
  if (c->finetuning_type != TUNING_LORA) return HP_OK;
  bool anew = makes_adapter(c);
  for (size_t i = 0; i < all->n; i++) HP_TRY(open_adapter(c, m, i, !anew && i + 1 == all->n));
  if (anew) HP_TRY(set_new_adapter(c, m));
  m->adapter->o.b_rate = isnan(c->loraplus_lr_ratio) ? 0 : c->loraplus_lr_ratio;
  return HP_OK;
}
