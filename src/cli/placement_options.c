#include "cli/placement_options.h"

#include "base/yaml.h"

static hp_status load(const char *path, tree *out) {
  yaml_repeats repeats = {0};
  hp_status st = yaml_load_config(path, out, &repeats);
  if (!st && repeats.len) st = yaml_repeat_error(repeats.at[0]);
  vec_free(&repeats);
  return st;
}

static hp_status check_beside(const model_options *o, const placement *p) {
  int64_t n = placement_devices(p);
  if (o->devices && o->devices != n)
    HP_FAIL(HP_ERR_ARG, "--devices %lld contradicts --groups %s, which has %lld; keep one of them",
            (long long)o->devices, o->groups, (long long)n);
  return HP_OK;
}

static hp_status read_groups(const model_options *o, placement_options *out) {
  HP_TRY(load(o->groups, &out->file));
  const tree_node *groups = tree_get(tree_get(out->file.root, "hyper_parallel"), "groups");
  if (!groups)
    HP_FAIL(HP_ERR_ARG, "--groups %s: the file has no groups in a block hyper_parallel", o->groups);
  HP_TRY(placement_read(groups, &out->mem, &out->p));
  return check_beside(o, &out->p);
}

hp_status placement_options_read(const model_options *o, placement_options *out) {
  placement_options read = {0};
  if (o->groups && o->strategy)
    HP_FAIL(HP_ERR_ARG, "--strategy %s contradicts --groups %s; keep one of them", o->strategy,
            o->groups);
  hp_status st =
      o->groups ? read_groups(o, &read) : placement_parse(o->strategy, o->devices, &read.p);
  if (st) placement_options_free(&read);
  else *out = read;
  return st;
}

static hp_status refuse_cache(const model_options *o) {
  HP_FAIL(
      HP_ERR_UNSUPPORTED,
      "--offload %s and %s %s: keys and values of a pipeline stay on the devices of its stages; "
      "leave kv out of --offload, or share the layers by tp=N in place of stages",
      o->offload, o->groups ? "--groups" : "--strategy", o->groups ? o->groups : o->strategy);
}

hp_status placement_options_check_cache(const model_options *o, int tier) {
  placement_options where;
  if (tier != HP_OFFLOAD_HOST && tier != HP_OFFLOAD_FLASH) return HP_OK;
  HP_TRY(placement_options_read(o, &where));
  const bool pipeline = placement_meshes(&where.p) > 1;
  placement_options_free(&where);
  return pipeline ? refuse_cache(o) : HP_OK;
}

void placement_options_free(placement_options *p) {
  tree_free(&p->file);
  arena_free(&p->mem);
}
