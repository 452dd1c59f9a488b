/* As LlamaFactory finds them: the parts of names that its rules make, anywhere in the names of
 * params, in the same order and with the same surprises: freeze_extra_modules: norm also trains
 * every input_layernorm. */
#include "train/train_freeze.h"

#include "model/module_names.h"

#include <stdio.h>
#include <string.h>

typedef VEC(const char *) name_list;

/* Stacks of experts have the name of the tensor that Transformers has for them. */
static const char *shown_name(const model_param *p) {
  return strchr(p->name, '*') && *p->alias ? p->alias : p->name;
}

/* The component behind the layer's number 0; NULL: it is of another layer, or of none. */
static const char *module_of_layer(const char *name, size_t *n) {
  const char *at = NULL;
  for (const char *p = name; (p = strstr(p, ".0.")); p++) at = p;
  if (!at) return NULL;
  at += 3;
  *n = strcspn(at, ".");
  return at;
}

/* The component before the last, of a param outside of the layers; NULL: it is of a layer. */
static const char *module_outside(const char *name, size_t *n) {
  for (const char *p = name; (p = strchr(p, '.')); p++)
    if (p[1] >= '0' && p[1] <= '9' && p[1 + strspn(p + 1, "0123456789")] == '.') return NULL;
  const char *last = strrchr(name, '.'), *at = last;
  if (!last) return NULL;
  while (at > name && at[-1] != '.') at--;
  *n = (size_t)(last - at);
  return at;
}

typedef const char *module_finder(const char *name, size_t *n);

static hp_status list_modules(const lm *m, module_finder *find, module_names *out) {
  for (size_t i = 0; i < m->params.len; i++) {
    size_t n;
    const char *at = find(shown_name(&m->params.at[i]), &n);
    if (at) HP_TRY(module_names_add(out, at, n));
  }
  return HP_OK;
}

static hp_status check_module(const train_config *c, const lm *m, int key, const char *name,
                              module_finder *find) {
  module_names all = {0};
  str names = {0};
  hp_status st = list_modules(m, find, &all);
  bool found = false;
  for (size_t i = 0; i < all.at.len; i++) {
    found |= !strcmp(all.at.at[i], name);
    str_printf(&names, "%s%s", i ? ", " : "", all.at.at[i]);
  }
  if (!st && !found)
    st = tree_error(train_config_at(c, key), __FILE__, __LINE__,
                    "\"%s\" is no module of %s; it has: %s", name, m->path,
                    names.at ? names.at : "none");
  str_free(&names);
  module_names_free(&all);
  return st;
}

/* The parts of names of what is trained. */
static hp_status list_parts(const train_config *c, const lm *m, arena *mem, name_list *parts) {
  int64_t n = c->freeze_trainable_layers, layers = m->c.layers;
  int64_t first = n > 0 && n < layers ? layers - n : 0;
  int64_t end = n > 0 ? layers : -n < layers ? -n : layers;
  for (size_t i = 0; i < c->is.freeze_modules.n; i++) {
    const char *module = c->is.freeze_modules.at[i];
    bool all = !strcmp(module, "all");
    if (!all) HP_TRY(check_module(c, m, KEY_freeze_trainable_modules, module, module_of_layer));
    for (int64_t k = first; k < end; k++) {
      const char *part = arena_printf(mem, ".%lld.%s", (long long)k, all ? "" : module);
      if (!part || !vec_push(parts, part)) return HP_ERR_OOM;
    }
  }
  for (size_t i = 0; i < c->is.freeze_extra.n; i++) {
    const char *module = c->is.freeze_extra.at[i];
    HP_TRY(check_module(c, m, KEY_freeze_extra_modules, module, module_outside));
    if (!vec_push(parts, module)) return HP_ERR_OOM;
  }
  return HP_OK;
}

static hp_status train_parts(const train_config *c, lm *m, const name_list *parts) {
  name_list names = {0};
  hp_status st = HP_OK;
  for (size_t i = 0; !st && i < m->params.len; i++) {
    const model_param *p = &m->params.at[i];
    bool named = false;
    for (size_t k = 0; k < parts->len && !named; k++)
      named = strstr(shown_name(p), parts->at[k]) != NULL;
    if (named && p->kind < PARAM_FIXED && !vec_push(&names, p->name)) st = HP_ERR_OOM;
  }
  if (!st && !names.len)
    st = tree_error(train_config_at(c, KEY_freeze_trainable_layers), __FILE__, __LINE__,
                    "nothing is trained; write 1 or more layers, or freeze_extra_modules");
  arena mem = {0}; /* the names are those of params, which are listed anew */
  for (size_t i = 0; !st && i < names.len; i++) {
    names.at[i] = arena_strdup(&mem, names.at[i]);
    if (!names.at[i]) st = HP_ERR_OOM;
  }
  if (!st) st = lm_train_only(m, names.at, names.len);
  arena_free(&mem);
  vec_free(&names);
  return st;
}

hp_status train_freeze_apply(const train_config *c, lm *m) {
  arena mem = {0};
  name_list parts = {0};
  hp_status st = list_parts(c, m, &mem, &parts);
  if (!st) st = train_parts(c, m, &parts);
  vec_free(&parts);
  arena_free(&mem);
  return st;
}
