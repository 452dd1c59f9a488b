#include "train/train_preference.h"

#include "train/losses.h"

#include <math.h>

static const char *const loss_names[] = {"sigmoid", "hinge", "ipo", "kto_pair", "orpo", "simpo"};

/* LlamaFactory 0.9.5 calls trl 0.24 without the name of the loss, and so gets the sigmoid's. */
static hp_status tell_sigmoid(train_config *c) {
  bool other =
      c->pref_loss == PREF_HINGE || c->pref_loss == PREF_IPO || c->pref_loss == PREF_KTO_PAIR;
  if (c->stage != STAGE_dpo || !other || c->pref_exact) return HP_OK;
  return train_config_warn(c,
                           "pref_loss %s is computed as LlamaFactory 0.9.5 with trl 0.24 computes "
                           "it, by the sigmoid%s; pref_exact: true computes the loss of that name",
                           loss_names[c->pref_loss],
                           c->pref_loss == PREF_IPO ? " of mean log-probabilities" : "");
}

static hp_status check_reference(train_config *c) {
  preference p = train_preference_of(c);
  if (c->ref_model_adapters && !c->ref_model)
    TREE_FAIL(train_config_at(c, KEY_ref_model_adapters),
              "adapters of ref_model, which is missing; write the folder of the model that they "
              "belong to as ref_model");
  if (!c->ref_model) return HP_OK;
  if (!preference_has_reference(&p))
    TREE_FAIL(train_config_at(c, KEY_ref_model),
              "it is for stages dpo and kto with a loss that is compared with a reference");
  return HP_OK;
}

/* Keys of another stage. */
static hp_status tell_idle(train_config *c, preference_kind kind) {
  static const struct {
    int key;
    bool pairs, judged; /* do stages of this kind use it? */
  } keys[] = {{KEY_pref_beta, true, true},
              {KEY_pref_ftx, true, true},
              {KEY_pref_loss, true, false},
              {KEY_pref_exact, true, false},
              {KEY_dpo_label_smoothing, true, false},
              {KEY_simpo_gamma, true, false},
              {KEY_kto_chosen_weight, false, true},
              {KEY_kto_rejected_weight, false, true}};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    bool used = kind == PREFER_PAIR ? keys[i].pairs : kind == PREFER_JUDGED && keys[i].judged;
    if (c->at[keys[i].key] && !used)
      HP_TRY(train_config_note(c, "%s: without effect: it is for stage%s",
                               train_key_get(keys[i].key)->name,
                               !keys[i].pairs    ? " kto"
                               : !keys[i].judged ? " dpo"
                                                 : "s dpo and kto"));
  }
  return HP_OK;
}

hp_status train_preference_check(train_config *c) {
  preference_kind kind = losses[c->stage].preference;
  bool compared = kind == PREFER_PAIR || kind == PREFER_JUDGED;
  if (compared && !(c->pref_beta > 0))
    TREE_FAIL(train_config_at(c, KEY_pref_beta), "%g; expected more than 0", c->pref_beta);
  if (c->dpo_label_smoothing > 0 && c->pref_loss != PREF_SIGMOID)
    TREE_FAIL(train_config_at(c, KEY_dpo_label_smoothing), "it goes with pref_loss: sigmoid alone");
  if (!isnan(c->ld_alpha) && kind != PREFER_PAIR)
    TREE_FAIL(train_config_at(c, KEY_ld_alpha), "it is for stage dpo; leave it out");
  HP_TRY(check_reference(c));
  HP_TRY(tell_idle(c, kind));
  return tell_sigmoid(c);
}

preference train_preference_of(const train_config *c) {
  return (preference){.kind = losses[c->stage].preference,
                      .loss = (preference_loss)c->pref_loss,
                      .exact = c->pref_exact,
                      .beta = c->pref_beta,
                      .smoothing = c->dpo_label_smoothing,
                      .margin = c->simpo_gamma,
                      .ftx = c->pref_ftx,
                      .rest = isnan(c->ld_alpha) ? 1 : c->ld_alpha,
                      .good = c->kto_chosen_weight,
                      .bad = c->kto_rejected_weight};
}
