#include "train/train_groups.h"

#include "train/train_deepspeed.h"
#include "train/train_megatron.h"

#include <string.h>

/* The first key that says otherwise how devices share the work; NULL: none does. */
static const tree_node *find_other(const train_config *c) {
  static const int keys[] = {KEY_strategy,
                             KEY_PARALLEL_strategy,
                             KEY_PARALLEL_device_matrix,
                             KEY_virtual_pipeline_model_parallel_size,
                             KEY_pipeline_model_parallel_layout,
                             KEY_decoder_first_pipeline_num_layers,
                             KEY_decoder_last_pipeline_num_layers,
                             KEY_num_layers_per_virtual_pipeline_stage,
                             KEY_microbatch_group_size_per_virtual_pipeline_stage};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (c->at[keys[i]]) return c->at[keys[i]];
  return train_megatron_at(c);
}

static hp_status check_devices(const train_config *c) {
  static const int keys[] = {KEY_devices, KEY_PARALLEL_devices};
  const int64_t given[] = {c->devices, c->parallel.devices}, n = placement_devices(&c->is.place);
  for (int i = 0; i < 2; i++)
    if (c->at[keys[i]] && given[i] != n)
      TREE_FAIL(c->at[keys[i]], "%lld devices, and the groups have %lld (%s)", (long long)given[i],
                (long long)n, tree_where(c->parallel.groups).text);
  return HP_OK;
}

static hp_status check_pipeline(const train_config *c) {
  const tree_node *pipe = c->parallel.pipeline, *cut = pipe ? tree_get(pipe, "cut") : NULL;
  int meshes = placement_meshes(&c->is.place);
  if (cut && meshes == c->is.place.groups)
    TREE_FAIL(cut, "the groups say their layers; leave it out, or give a group more stages: pp=2");
  if (c->is.pipe_stages && c->is.pipe_stages != meshes)
    TREE_FAIL(cut ? cut : tree_get(pipe, "stages"), "%lld stages, and the groups have %d",
              (long long)c->is.pipe_stages, meshes);
  return HP_OK;
}

hp_status train_groups_decide(train_config *c) {
  const tree_node *other = find_other(c);
  if (other)
    TREE_FAIL(other,
              "contradicts groups (%s), which have strategies of their own; keep one of them",
              tree_where(c->parallel.groups).text);
  HP_TRY(placement_read(c->parallel.groups, &c->mem, &c->is.place));
  for (int i = 0; i < c->is.place.groups; i++) {
    placement_group *g = &c->is.place.group[i];
    const tree_node *text = tree_get(g->at, "strategy");
    bool given = text && text->kind == TREE_STRING;
    HP_TRY(train_deepspeed_apply_stage(c, given ? text->string : NULL, &g->by));
  }
  HP_TRY(check_devices(c));
  return check_pipeline(c);
}
