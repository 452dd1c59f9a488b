/* The model of a run, on its devices. */
#include "base/log.h"
#include "train/losses.h"
#include "train/train_megatron_layers.h"
#include "train/train_mesh.h"
#include "train/train_recompute.h"
#include "train/train_tuning.h"
#include "train/trainer.h"

/* What the configuration says of experts, into the model's; refuses what is not built of theirs. */
static hp_status decide_experts(const train_config *c, lm *m) {
  moe_config *moe = &m->c.moe;
  if (moe->noise != 0)
    HP_FAIL(HP_ERR_UNSUPPORTED,
            "%s: router_jitter_noise %g is not built; write 0 to train without noise", m->path,
            moe->noise);
  if (!(c->moe_aux_loss_coef > 0)) return HP_OK;
  if (m->c.family->balances) moe->balance = c->moe_aux_loss_coef;
  else log_warn("moe_aux_loss_coef is ignored: model_type %s has no such loss", m->c.model_type);
  return HP_OK;
}

/* The model, without a device. */
static hp_status create_model(train_config *c, lm **m) {
  bool lora = c->finetuning_type == TUNING_LORA; /* frozen weights: as products read them */
  lm_options o = {.compute = c->is.compute, .weights = lora ? c->is.compute : HP_F32};
  HP_TRY(lm_create(c->model_name_or_path, NULL, &o, m));
  HP_TRY(train_tuning_apply(c, *m));
  HP_TRY(train_recompute_check(c, *m));
  (*m)->label_smoothing = c->label_smoothing_factor;
  if (losses[c->stage].preference == PREFER_REWARD) HP_TRY(lm_set_value_head(*m));
  return decide_experts(c, *m);
}

hp_status trainer_open_model(train_config *c, bool plan, hp_device **d, lm **m) {
  HP_TRY(create_model(c, m));
  HP_TRY(train_megatron_fit(c, (*m)->c.layers));
  HP_TRY(placement_find_layers(&c->is.place, *m));
  HP_TRY(train_mesh_open(c, plan, d));
  if (!plan) (*m)->d = *d;
  if (c->is.train) HP_TRY(train_mesh_check_microbatches(c, *d, c->is.batch.accumulation, ""));
  (*m)->groups = placement_batch_shards(&c->is.place);
  return train_mesh_apply(c, *m, *d);
}
