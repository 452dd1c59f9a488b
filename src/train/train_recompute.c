#include "train/train_recompute.h"

#include "base/place.h"
#include "model/module_names.h"

#include <limits.h>
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

static hp_status contradicts(const train_config *c, int key) {
  TREE_FAIL(c->at[KEY_PARALLEL_recompute], "%s contradicts %s; remove one of them",
            tree_what(c->at[KEY_PARALLEL_recompute]).text, tree_where(c->at[key]).text);
}

/* What other keys say is taken where recompute is auto, and must agree with it where it is not. */
static hp_status take(train_config *c, train_recompute want, int key) {
  if (c->at[KEY_PARALLEL_recompute] && c->is.recompute != RECOMPUTE_AUTO && c->is.recompute != want)
    return contradicts(c, key);
  c->is.recompute = want;
  return HP_OK;
}

hp_status train_recompute_decide(train_config *c) {
  HP_TRY(read_key(c));
  if (c->disable_gradient_checkpointing && c->gradient_checkpointing == 1)
    TREE_FAIL(c->at[KEY_gradient_checkpointing],
              "true, but disable_gradient_checkpointing is true too (%s); remove one of them",
              tree_where(c->at[KEY_disable_gradient_checkpointing]).text);
  if (c->is.tiers.policy == HP_PLAN_FULL_RECOMPUTE)
    HP_TRY(take(c, RECOMPUTE_FULL, KEY_PARALLEL_offload_policy));
  if (c->disable_gradient_checkpointing)
    return take(c, RECOMPUTE_NONE, KEY_disable_gradient_checkpointing);
  if (c->gradient_checkpointing == 1) return take(c, RECOMPUTE_FULL, KEY_gradient_checkpointing);
  return HP_OK;
}

void train_recompute_set(const train_config *c, hp_compile_options *o) {
  o->remat = c->is.recompute == RECOMPUTE_FULL || c->is.recompute == RECOMPUTE_SOME;
  o->remat_blocks = c->is.recompute_blocks;
  o->remat_places = c->is.recompute_places;
}

/* --- with the model --------------------------------------------------------------------------- */

/* Modules of layers: the names of params up to a dot. */
static hp_status list_modules(const lm *m, module_names *list) {
  for (size_t i = 0; i < m->params.len; i++) {
    const model_param *p = &m->params.at[i];
    if (p->layer < 0 || p->layer >= m->c.layers) continue;
    for (const char *dot = strchr(p->name, '.'); dot; dot = strchr(dot + 1, '.'))
      HP_TRY(module_names_add(list, p->name, (size_t)(dot - p->name)));
  }
  return HP_OK;
}

static bool matches_one(const module_names *list, const char *pattern) {
  for (size_t i = 0; i < list->at.len; i++)
    if (place_matches(pattern, list->at.at[i])) return true;
  return false;
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

static hp_status check_patterns(const train_config *c, const lm *m) {
  module_names list = {0};
  hp_status st = list_modules(m, &list);
  for (const char *const *p = c->is.recompute_places; !st && *p; p++)
    if (!matches_one(&list, *p)) st = refuse_pattern(c, &list, *p);
  module_names_free(&list);
  return st;
}

hp_status train_recompute_check(const train_config *c, const lm *m) {
  if (c->is.recompute != RECOMPUTE_SOME) return HP_OK;
  if (c->is.recompute_blocks > m->c.layers)
    TREE_FAIL(c->at[KEY_PARALLEL_recompute], "%d layers, but the model has %lld",
              c->is.recompute_blocks, (long long)m->c.layers);
  return c->is.recompute_places ? check_patterns(c, m) : HP_OK;
}
