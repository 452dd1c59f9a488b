#include "train/train_megatron_recompute.h"

#include <limits.h>
#include <string.h>

/* As in the choices of the keys. */
enum { GRANULARITY_NONE, GRANULARITY_FULL, GRANULARITY_SELECTIVE };
enum { METHOD_NONE, METHOD_UNIFORM, METHOD_BLOCK };

/* --- the keys --------------------------------------------------------------------------------- */

/* A key that recompute_granularity, as it is, does not have; `belongs`: what has it. */
static hp_status refuse(const train_config *c, int key, const char *belongs) {
  if (!c->at[key] || (key == KEY_recompute_method && c->recompute_method == METHOD_NONE))
    return HP_OK;
  if (c->recompute_granularity == GRANULARITY_NONE)
    TREE_FAIL(c->at[key],
              "has no effect without recompute_granularity; write "
              "recompute_granularity: %s, or remove it",
              belongs);
  TREE_FAIL(c->at[key],
            "belongs to recompute_granularity: %s, and that is %s (%s); remove one of "
            "them",
            belongs, c->recompute_granularity == GRANULARITY_FULL ? "full" : "selective",
            tree_where(c->at[KEY_recompute_granularity]).text);
}

static hp_status read_full(train_config *c, train_recompute *what, int *layers) {
  const tree_node *at = c->at[KEY_recompute_granularity];
  int64_t n = c->recompute_num_layers;
  HP_TRY(refuse(c, KEY_recompute_modules, "selective"));
  if (c->recompute_method == METHOD_NONE)
    TREE_FAIL(at, "full needs recompute_method: uniform (all layers) or block (the first "
                  "recompute_num_layers of each stage)");
  if (n == TRAIN_NONE)
    TREE_FAIL(at, "full needs recompute_num_layers: %s",
              c->recompute_method == METHOD_UNIFORM ? "layers of a chunk, as 1"
                                                    : "the layers of each stage to recompute");
  *what = c->recompute_method == METHOD_UNIFORM ? RECOMPUTE_FULL : RECOMPUTE_SOME;
  *layers = *what == RECOMPUTE_FULL ? 0 : (int)n;
  if (*what == RECOMPUTE_FULL && n > 1)
    return train_config_note(c, "recompute_num_layers: all layers are recomputed, each as a chunk "
                                "of its own");
  return HP_OK;
}

static const char *const modules[] = {"core_attn", "layernorm", "mla_up_proj",   "mlp",
                                      "moe",       "moe_act",   "shared_experts"};
enum { MODULES = sizeof modules / sizeof *modules };

static hp_status check_module(const tree_node *at, const char *name) {
  for (int i = 0; i < MODULES; i++)
    if (!strcmp(modules[i], name)) return HP_OK;
  const char *near = str_nearest(name, modules, MODULES);
  TREE_FAIL(
      at,
      "\"%.100s\" is not known; expected core_attn, layernorm, mla_up_proj, mlp, moe, moe_act "
      "or shared_experts%s%s%s",
      name, near ? " (did you mean \"" : "", near ? near : "", near ? "\"?)" : "");
}

static hp_status read_selective(train_config *c, train_recompute *what) {
  const tree_node *at = c->at[KEY_recompute_modules];
  train_names list = {modules, 1}; /* core_attn */
  HP_TRY(refuse(c, KEY_recompute_method, "full"));
  HP_TRY(refuse(c, KEY_recompute_num_layers, "full"));
  if (at) HP_TRY(train_config_split(c, at, &list));
  if (!list.n) TREE_FAIL(at, "is an empty list; leave it out to recompute core_attn");
  for (size_t i = 0; i < list.n; i++) HP_TRY(check_module(at, list.at[i]));
  c->is.recompute_modules = list;
  *what = RECOMPUTE_SOME;
  return HP_OK;
}

hp_status train_megatron_recompute(train_config *c, train_recompute *what, int *layers) {
  *what = RECOMPUTE_AUTO;
  *layers = 0;
  if (c->recompute_granularity == GRANULARITY_FULL) return read_full(c, what, layers);
  if (c->recompute_granularity == GRANULARITY_SELECTIVE) return read_selective(c, what);
  HP_TRY(refuse(c, KEY_recompute_method, "full"));
  HP_TRY(refuse(c, KEY_recompute_num_layers, "full"));
  return refuse(c, KEY_recompute_modules, "selective");
}

/* --- with the model --------------------------------------------------------------------------- */

/* The patterns of a module: those of them that a model has.  An activation function has none: its
 * value is recomputed whatever the configuration says, for that takes next to no time. */
static const struct {
  const char *module, *pattern[4];
} places[] = {{"core_attn", {"core_attn"}},
              {"layernorm", {"input_layernorm", "post_attention_layernorm", "ln_1", "ln_2"}},
              {"mla_up_proj", {"q_b_proj", "kv_b_proj"}},
              {"moe_act", {NULL}},
              {"shared_experts", {"shared_experts"}}};

typedef VEC(const char *) patterns;

static hp_status add_pattern(patterns *out, const char *pattern) {
  HP_TRY_MEM(pattern);
  return vec_push(out, pattern) ? HP_OK : HP_ERR_OOM;
}

/* mlp: of dense layers, moe: of those with experts. */
static hp_status add_mlp(train_config *c, const model_config *m, bool experts, patterns *out) {
  for (int64_t i = 0; i < m->layers; i++) {
    if ((m->moe.layer && m->moe.layer[i]) != experts) continue;
    if (!m->moe.layer) return add_pattern(out, "mlp");
    HP_TRY(add_pattern(out, arena_printf(&c->mem, "layers.%lld.mlp", (long long)i)));
    HP_TRY(add_pattern(out, arena_printf(&c->mem, "layers.%lld.block_sparse_moe", (long long)i)));
  }
  return HP_OK;
}

/* The patterns of a module; *found: the model has it. */
static hp_status add_module(train_config *c, const model_config *m, const module_names *list,
                            const char *module, patterns *out, bool *found) {
  size_t before = out->len;
  bool experts = !strcmp(module, "moe");
  *found = !strcmp(module, "moe_act") && m->moe.layer;
  if (experts || !strcmp(module, "mlp")) HP_TRY(add_mlp(c, m, experts, out));
  for (size_t i = 0; i < sizeof places / sizeof *places; i++)
    for (int k = 0; !strcmp(places[i].module, module) && k < 4 && places[i].pattern[k]; k++)
      if (module_names_match(list, places[i].pattern[k]))
        HP_TRY(add_pattern(out, places[i].pattern[k]));
  *found |= out->len > before;
  return HP_OK;
}

/* What the model has of Megatron's modules. */
static hp_status refuse_module(train_config *c, const model_config *m, const module_names *list,
                               const char *module) {
  str has = {0};
  patterns unused = {0};
  hp_status st = HP_OK;
  for (int i = 0; !st && i < MODULES; i++) {
    bool found;
    st = add_module(c, m, list, modules[i], &unused, &found);
    if (!st && found) str_printf(&has, "%s%s", has.len ? ", " : "", modules[i]);
  }
  if (!st) st = str_status(&has);
  if (!st)
    st = tree_error(c->at[KEY_recompute_modules], __FILE__, __LINE__,
                    "the model's layers have no module \"%s\"; they have %s", module,
                    has.at ? has.at : "none");
  str_free(&has);
  vec_free(&unused);
  return st;
}

static hp_status copy_patterns(train_config *c, const patterns *all) {
  const char **copy = arena_alloc(&c->mem, all->len + 1, sizeof *copy);
  HP_TRY_MEM(copy);
  if (all->len) memcpy(copy, all->at, all->len * sizeof *copy);
  copy[all->len] = NULL;
  c->is.recompute_places = copy;
  return HP_OK;
}

hp_status train_megatron_find_modules(train_config *c, const model_config *m,
                                      const module_names *list) {
  patterns all = {0};
  hp_status st = HP_OK;
  for (size_t i = 0; !st && i < c->is.recompute_modules.n; i++) {
    const char *module = c->is.recompute_modules.at[i];
    bool found;
    st = add_module(c, m, list, module, &all, &found);
    if (!st && !found) st = refuse_module(c, m, list, module);
  }
  if (!st) st = copy_patterns(c, &all);
  vec_free(&all);
  return st;
}
