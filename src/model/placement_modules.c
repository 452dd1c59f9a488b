/* The layers of each group, by the names of the model's modules.
 *
 * What a group has is counted in units: what is before the layers (unit 0), each layer (its number
 * + 1), and what is behind them. */
#include "model/module_names.h"
#include "model/placement.h"

#include <stdio.h>
#include <string.h>

enum { NAME = 192 };

/* Of a unit: its group, -1: none has it, and where that names it. */
typedef struct {
  int group;
  const tree_node *at;
} owner;

typedef struct {
  placement *p;
  const lm *m;
  int64_t units;
  owner *of; /* [units] */
} search;

/* --- names ------------------------------------------------------------------------------------ */

/* A tied head is a module, too, without params. */
static const char *name_at(const lm *m, size_t i, int64_t *unit) {
  if (i < m->params.len) {
    *unit = m->params.at[i].layer + 1;
    return m->params.at[i].name;
  }
  *unit = m->c.layers + 1;
  return i == m->params.len ? m->c.family->head_name : NULL;
}

/* The length of "model.layers.7" in the name of a tensor of unit 8; of other units of
 * "model.embed_tokens". */
static size_t module_length(const lm *m, const char *name, int64_t unit) {
  char number[24];
  snprintf(number, sizeof number, ".%lld.", (long long)(unit - 1));
  const char *at = unit > 0 && unit <= m->c.layers ? strstr(name, number) : NULL;
  const char *last = strrchr(name, '.');
  if (at) return (size_t)(at - name) + strlen(number) - 1;
  return last ? (size_t)(last - name) : strlen(name);
}

/* The whole module of a unit, as far as that is one: the first of its tensors says it. */
static void name_unit(const lm *m, int64_t unit, char out[NAME]) {
  const char *name;
  int64_t of;
  snprintf(out, NAME, "%s the layers", unit ? "what is behind" : "what is before");
  for (size_t i = 0; unit && unit <= m->c.layers && (name = name_at(m, i, &of)); i++) {
    if (of != unit) continue;
    snprintf(out, NAME, "%.*s", (int)module_length(m, name, of), name);
    return;
  }
}

/* All modules that a group may name. */
static hp_status list_names(const lm *m, module_names *n) {
  const char *name;
  int64_t unit;
  for (size_t i = 0; (name = name_at(m, i, &unit)); i++) {
    size_t length = module_length(m, name, unit);
    for (size_t k = 0; k <= length; k++)
      if (k == length || name[k] == '.') HP_TRY(module_names_add(n, name, k));
  }
  return HP_OK;
}

/* Modules besides single layers: "model, model.embed_tokens, model.layers, model.norm". */
static void print_names(const module_names *n, str *out) {
  for (size_t i = 0; i < n->at.len; i++) {
    const char *last = strrchr(n->at.at[i], '.');
    if (last && last[1 + strspn(last + 1, "0123456789")] == 0) continue;
    str_printf(out, "%s%s", out->len ? ", " : "", n->at.at[i]);
  }
}

static hp_status refuse_name(const lm *m, const tree_node *at, const char *name) {
  module_names n = {0};
  str all = {0};
  hp_status st = list_names(m, &n);
  const char *near = st ? NULL : str_nearest(name, n.at.at, n.at.len);
  print_names(&n, &all);
  if (!st) st = str_status(&all);
  if (!st)
    st = tree_error(at, __FILE__, __LINE__,
                    "the model has no module \"%s\"%s%s%s it has %s, with layers 0 to %lld", name,
                    near ? ", did you mean \"" : "", near ? near : "", near ? "\"?" : ";", all.at,
                    (long long)m->c.layers - 1);
  str_free(&all);
  module_names_free(&n);
  return st;
}

/* --- modules ---------------------------------------------------------------------------------- */

static hp_status take_unit(search *s, int group, const tree_node *at, int64_t unit) {
  char name[NAME];
  owner *o = &s->of[unit];
  if (o->group >= 0 && o->group != group) {
    name_unit(s->m, unit, name);
    TREE_FAIL(at, "%s is of %s, too (%s); expected it in one group", name,
              s->p->group[o->group].name, tree_where(o->at).text);
  }
  *o = (owner){group, at};
  return HP_OK;
}

/* Takes the units of a module. */
static hp_status take_module(search *s, int group, const tree_node *at, const char *module) {
  const char *name;
  size_t n = strlen(module);
  int64_t unit;
  bool found = false;
  for (size_t i = 0; (name = name_at(s->m, i, &unit)); i++) {
    if (strncmp(name, module, n) || name[n] != '.') continue;
    size_t whole = module_length(s->m, name, unit);
    if (n > whole)
      TREE_FAIL(at, "\"%s\" is a part of %.*s; expected layers as they are, not parts of them",
                module, (int)whole, name);
    HP_TRY(take_unit(s, group, at, unit));
    found = true;
  }
  return found ? HP_OK : refuse_name(s->m, at, module);
}

/* "model.layers.0-2": the layers of a range; any other name is a module's. */
static hp_status take_modules(search *s, int group, const tree_node *at) {
  char name[NAME + 24];
  const char *text;
  int64_t from, to;
  HP_TRY(tree_as_string(at, &text));
  snprintf(name, NAME, "%s", text);
  char *last = strrchr(name, '.'), *dash = last ? strchr(last, '-') : NULL;
  if (!dash) return take_module(s, group, at, text);
  *dash = 0;
  if (!str_to_i64(last + 1, &from) || !str_to_i64(dash + 1, &to))
    return refuse_name(s->m, at, text);
  if (from < 0 || to < from || to >= s->m->c.layers)
    TREE_FAIL(at, "layers %lld to %lld; the model has layers 0 to %lld", (long long)from,
              (long long)to, (long long)s->m->c.layers - 1);
  for (int64_t i = from; i <= to; i++) {
    snprintf(last + 1, 24, "%lld", (long long)i);
    HP_TRY(take_module(s, group, at, name));
  }
  return HP_OK;
}

static hp_status take_group(search *s, int group) {
  const tree_node *list = tree_get(s->p->group[group].at, "module");
  if (list->kind != TREE_LIST) return take_modules(s, group, list);
  for (uint32_t i = 0; i < list->len; i++) HP_TRY(take_modules(s, group, list->child[i]));
  return HP_OK;
}

/* --- layers ----------------------------------------------------------------------------------- */

/* What is before the layers goes with the first of them if no group names it, and what is behind
 * them with the last. */
static hp_status check_owned(search *s) {
  char name[NAME];
  for (int64_t i = 1; i + 1 < s->units; i++) {
    if (s->of[i].group >= 0) continue;
    name_unit(s->m, i, name);
    TREE_FAIL(s->p->group[0].at->parent, "%s is in no group; expected each layer in one", name);
  }
  owner *last = &s->of[s->units - 1];
  if (s->of[0].group < 0) s->of[0] = s->of[1];
  if (last->group < 0) *last = s->of[s->units - 2];
  return HP_OK;
}

/* A unit of another group is between those before it and `next`. */
static hp_status refuse_gap(const search *s, int group, int64_t unit, int64_t next) {
  char name[NAME], from[NAME], to[NAME];
  name_unit(s->m, unit, name);
  name_unit(s->m, unit - 1, from);
  name_unit(s->m, next, to);
  TREE_FAIL(s->of[next].at,
            "%s and %s are of %s, and %s between them of %s; expected layers of a group to follow "
            "one another",
            from, to, s->p->group[group].name, name, s->p->group[s->of[unit].group].name);
}

/* The units of a group follow one another; *first: the first of them. */
static hp_status find_range(const search *s, int group, int64_t *first) {
  placement_group *g = &s->p->group[group];
  int64_t end, layers = s->m->c.layers;
  for (*first = 0; s->of[*first].group != group;) ++*first;
  for (end = *first; end < s->units && s->of[end].group == group;) end++;
  for (int64_t i = end; i < s->units; i++)
    if (s->of[i].group == group) return refuse_gap(s, group, end, i);
  g->first = *first ? *first - 1 : 0;
  g->layers = (end - 1 < layers ? end - 1 : layers) - g->first;
  return HP_OK;
}

static hp_status check_stages(const placement_group *g) {
  if (g->by.pp == 1 || g->by.pp <= g->layers) return HP_OK;
  TREE_FAIL(tree_get(g->at, "strategy"),
            "%lld stages, and the group has %lld layer%s; expected a layer or more for each stage",
            (long long)g->by.pp, (long long)g->layers, g->layers == 1 ? "" : "s");
}

/* Groups in the order of their units. */
static hp_status sort_groups(search *s) {
  placement sorted = *s->p;
  int64_t first[PLACEMENT_GROUPS];
  for (int i = 0; i < s->p->groups; i++) {
    HP_TRY(find_range(s, i, &first[i]));
    HP_TRY(check_stages(&s->p->group[i]));
  }
  for (int i = 0; i < s->p->groups; i++) {
    int at = 0;
    for (int k = 0; k < s->p->groups; k++) at += first[k] < first[i];
    sorted.group[at] = s->p->group[i];
  }
  *s->p = sorted;
  return HP_OK;
}

hp_status placement_find_layers(placement *p, const lm *m) {
  search s = {.p = p, .m = m, .units = m->c.layers + 2};
  if (!p->group[0].at) return HP_OK;
  s.of = mem_calloc((size_t)s.units, sizeof *s.of);
  HP_TRY_MEM(s.of);
  for (int64_t i = 0; i < s.units; i++) s.of[i].group = -1;
  hp_status st = HP_OK;
  for (int i = 0; !st && i < p->groups; i++) st = take_group(&s, i);
  if (!st) st = check_owned(&s);
  if (!st) st = sort_groups(&s);
  mem_free(s.of);
  return st;
}
