/* The samples of a step stay those of the checkpoint that a run goes on from. */
#include "base/log.h"
#include "train/trainer_state.h"

/* How the checkpoint's steps were made up. */
typedef struct {
  int64_t global, replicas, micro, accumulation, epoch_samples, length_group;
} step_shape;

/* A manifest from before the micro-batch was one of each replica has that of all of them, and a
 * short last one, or none. */
static hp_status read_shape(const tree_node *state, bool drop_last, step_shape *out) {
  step_shape s;
  int64_t samples;
  bool now = tree_get(state, "global_batch_size") != NULL;
  HP_TRY(tree_need_int(state, "per_device_train_batch_size", &s.micro));
  HP_TRY(tree_need_int(state, "gradient_accumulation_steps", &s.accumulation));
  HP_TRY(tree_opt_int(state, "replicas", 1, &s.replicas));
  HP_TRY(tree_need_int(state, "samples", &samples));
  HP_TRY(tree_opt_int(state, "epoch_samples", samples, &s.epoch_samples));
  HP_TRY(tree_opt_int(state, "length_group", 0, &s.length_group));
  if (s.length_group < 0 || s.length_group > INT64_MAX / 64)
    TREE_FAIL(tree_get(state, "length_group"), "the samples of a step are damaged");
  if (s.micro < 1 || s.accumulation < 1 || s.replicas < 1 || s.epoch_samples < 1 ||
      (double)s.micro * (double)s.accumulation > 1e15)
    TREE_FAIL(state, "the sizes of the batch are damaged");
  s.global = s.micro * s.accumulation;
  if (now) HP_TRY(tree_need_int(state, "global_batch_size", &s.global));
  else if (drop_last) s.epoch_samples -= s.epoch_samples % s.micro;
  if (s.global < 1 || s.epoch_samples < 1) TREE_FAIL(state, "the sizes of the batch are damaged");
  *out = s;
  return HP_OK;
}

static hp_status other_batch(const tree_node *state, const step_shape *then,
                             const train_batching *now) {
  TREE_FAIL(tree_get(state, "per_device_train_batch_size"),
            "the checkpoint has %lld samples in a step (per_device_train_batch_size %lld x %lld "
            "data-parallel replicas x gradient_accumulation_steps %lld), this run has %lld (%lld x "
            "%lld x %lld), so the order of the data would change; write global_batch_size: %lld in "
            "place of them or resume_override: [global_batch_size], or begin anew with "
            "overwrite_output_dir: true",
            (long long)then->global, (long long)then->micro, (long long)then->replicas,
            (long long)then->accumulation, (long long)now->global, (long long)now->per_device,
            (long long)now->replicas, (long long)now->accumulation, (long long)then->global);
}

/* The samples of a step stay those of the checkpoint.  On another mesh the micro-batch or the
 * accumulation gives way. */
static hp_status keep(const tree_node *state, train_config *c) {
  train_batching *b = &c->is.batch;
  step_shape then = {0};
  HP_TRY(read_shape(state, c->dataloader_drop_last, &then));
  bool moved = then.replicas != b->replicas;
  if (then.global != b->global && settings_has_override(c, "global_batch_size")) return HP_OK;
  if (then.global != b->global && (!moved || b->same_on_all)) return other_batch(state, &then, b);
  if (then.global != b->global) HP_TRY(train_batch_size_keep(c, then.global));
  if (then.micro != b->per_device || then.accumulation != b->accumulation || moved)
    log_info("the %lld samples in a step of the checkpoint (per_device_train_batch_size %lld x "
             "%lld data-parallel replicas x gradient_accumulation_steps %lld) are kept: %lld x "
             "%lld x %lld",
             (long long)then.global, (long long)then.micro, (long long)then.replicas,
             (long long)then.accumulation, (long long)b->per_device, (long long)b->replicas,
             (long long)b->accumulation);
  if (then.length_group) b->length_group = then.length_group;
  bool dealt_anew =
      settings_has_override(c, "data") || settings_has_override(c, "dataloader_drop_last");
  if (!dealt_anew) b->epoch_samples = then.epoch_samples;
  return HP_OK;
}

hp_status trainer_keep_batch(const checkpoint *from, train_config *c) {
  const tree_node *state;
  HP_TRY(tree_need_map(from->manifest.root, "state", &state));
  return keep(state, c);
}
