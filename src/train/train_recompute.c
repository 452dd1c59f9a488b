#include "train/train_recompute.h"

#include "model/module_names.h"
#include "train/train_megatron_recompute.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* --- the key ---------------------------------------------------------------------------------- */

static hp_status read_word(const tree_node *v, train_recompute *out) {
  static const char *const word[] = {"auto", "none", "full"};
  for (int i = 0; v->kind == TREE_STRING && i < 3; i++)
    if (!strcmp(v->string, word[i])) {
      *out = (train_recompute)i;
      return HP_OK;
    }
  const char *near = v->kind == TREE_STRING ? str_nearest(v->string, word, 3) : NULL;
  TREE_FAIL(v,
            "%s is not known; expected auto, none, full, a number of layers, or a list of modules "
            "as [self_attn, \"model.layers.[0-3]\"]%s%s%s",
            tree_what(v).text, near ? " (did you mean \"" : "", near ? near : "",
            near ? "\"?)" : "");
}

/* The first so many layers; of a pipeline, of each stage. */
static hp_status read_number(train_config *c, const tree_node *v) {
  if (v->integer < 0 || v->integer > INT_MAX)
    TREE_FAIL(v, "is %lld; expected a number of layers from 0 on", (long long)v->integer);
  c->is.recompute = v->integer ? RECOMPUTE_SOME : RECOMPUTE_NONE;
  c->is.recompute_blocks = (int)v->integer;
  return HP_OK;
}

static hp_status read_list(train_config *c, const tree_node *v) {
  train_names list;
  HP_TRY(train_config_split(c, v, &list));
  if (!list.n) TREE_FAIL(v, "is an empty list; write none to keep all activations");
  const char **places = arena_alloc(&c->mem, list.n + 1, sizeof *places);
  HP_TRY_MEM(places);
  memcpy(places, list.at, list.n * sizeof *places);
  places[list.n] = NULL;
  c->is.recompute = RECOMPUTE_SOME;
  c->is.recompute_places = places;
  return HP_OK;
}

static hp_status read_key(train_config *c) {
  const tree_node *v = c->parallel.recompute;
  c->is.recompute = RECOMPUTE_AUTO;
  if (!v) return HP_OK;
  if (v->kind == TREE_INT) return read_number(c, v);
  if (v->kind == TREE_LIST) return read_list(c, v);
  return read_word(v, &c->is.recompute);
}

/* --- with its synonyms ------------------------------------------------------------------------ */

/* What other keys say is taken where nothing is decided yet, and must agree with it else; *by: the
 * key that decided. */
static hp_status take(train_config *c, const tree_node **by, train_recompute want, int layers,
                      int key) {
  bool same =
      c->is.recompute == want && c->is.recompute_blocks == layers && !c->is.recompute_places;
  if (c->is.recompute != RECOMPUTE_AUTO && !same)
    TREE_FAIL(*by, "%s contradicts %s; remove one of them", tree_what(*by).text,
              tree_where(c->at[key]).text);
  if (c->is.recompute == RECOMPUTE_AUTO) *by = c->at[key];
  c->is.recompute = want;
  c->is.recompute_blocks = layers;
  return HP_OK;
}

static hp_status take_megatron(train_config *c, const tree_node **by) {
  train_recompute what;
  int layers;
  HP_TRY(train_megatron_recompute(c, &what, &layers));
  return what == RECOMPUTE_AUTO ? HP_OK : take(c, by, what, layers, KEY_recompute_granularity);
}

hp_status train_recompute_decide(train_config *c) {
  const tree_node *by = c->at[KEY_PARALLEL_recompute];
  HP_TRY(read_key(c));
  if (c->disable_gradient_checkpointing && c->gradient_checkpointing == 1)
    TREE_FAIL(c->at[KEY_gradient_checkpointing],
              "true, but disable_gradient_checkpointing is true too (%s); remove one of them",
              tree_where(c->at[KEY_disable_gradient_checkpointing]).text);
  HP_TRY(take_megatron(c, &by));
  if (c->is.tiers.policy == HP_PLAN_FULL_RECOMPUTE)
    HP_TRY(take(c, &by, RECOMPUTE_FULL, 0, KEY_PARALLEL_offload_policy));
  if (c->disable_gradient_checkpointing)
    return take(c, &by, RECOMPUTE_NONE, 0, KEY_disable_gradient_checkpointing);
  if (c->gradient_checkpointing == 1)
    return take(c, &by, RECOMPUTE_FULL, 0, KEY_gradient_checkpointing);
  return HP_OK;
}

void train_recompute_set(const train_config *c, hp_compile_options *o) {
  o->remat = c->is.recompute == RECOMPUTE_FULL || c->is.recompute == RECOMPUTE_SOME;
  o->remat_blocks = c->is.recompute_blocks;
  o->remat_places = c->is.recompute_places;
}

/* --- with the model --------------------------------------------------------------------------- */

/* Attention without its projections has a place, but no params. */
static hp_status add_core(module_names *list, const char *name, size_t n) {
  char core[200];
  if ((n < 5 || memcmp(name + n - 5, ".attn", 5)) &&
      (n < 10 || memcmp(name + n - 10, ".self_attn", 10)))
    return HP_OK;
  snprintf(core, sizeof core, "%.*s." CORE_ATTENTION, (int)n, name);
  return module_names_add(list, core, strlen(core));
}

/* Modules of layers: the names of params up to a dot. */
static hp_status list_modules(const lm *m, module_names *list) {
  for (size_t i = 0; i < m->params.len; i++) {
    const model_param *p = &m->params.at[i];
    if (p->layer < 0 || p->layer >= m->c.layers) continue;
    for (const char *dot = strchr(p->name, '.'); dot; dot = strchr(dot + 1, '.')) {
      HP_TRY(module_names_add(list, p->name, (size_t)(dot - p->name)));
      HP_TRY(add_core(list, p->name, (size_t)(dot - p->name)));
    }
  }
  return HP_OK;
}

/* The last component is compared too: "mpl" is near "mlp". */
static hp_status refuse_pattern(const train_config *c, const module_names *list,
                                const char *pattern) {
  const char *near = str_nearest(pattern, list->at.at, list->at.len);
  for (size_t i = 0; !near && i < list->at.len; i++) {
    const char *last = strrchr(list->at.at[i], '.');
    if (last) near = str_nearest(pattern, &(const char *){last + 1}, 1);
  }
  TREE_FAIL(
      c->at[KEY_PARALLEL_recompute],
      "no module of the model's layers matches \"%.100s\"%s%s%s; expected the name of one, as "
      "%s, or its last components, with * for any text",
      pattern, near ? " (did you mean \"" : "", near ? near : "", near ? "\"?)" : "",
      list->at.len ? list->at.at[list->at.len - 1] : "model.layers.0.mlp");
}

static hp_status check_modules(train_config *c, const lm *m) {
  module_names list = {0};
  hp_status st = list_modules(m, &list);
  if (!st && c->is.recompute_modules.n) st = train_megatron_find_modules(c, &m->c, &list);
  else
    for (const char *const *p = c->is.recompute_places; !st && *p; p++)
      if (!module_names_match(&list, *p)) st = refuse_pattern(c, &list, *p);
  module_names_free(&list);
  return st;
}

hp_status train_recompute_check(train_config *c, const lm *m) {
  int64_t layers = c->is.recompute_blocks;
  int key = KEY_PARALLEL_recompute;
  if (c->recompute_num_layers != TRAIN_NONE) {
    key = KEY_recompute_num_layers;
    layers = c->recompute_num_layers;
  }
  if (layers > m->c.layers)
    TREE_FAIL(c->at[key], "%lld layers, but the model has %lld", (long long)layers,
              (long long)m->c.layers);
  return c->is.recompute_places || c->is.recompute_modules.n ? check_modules(c, m) : HP_OK;
}
