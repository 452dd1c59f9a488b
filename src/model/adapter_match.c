#include "model/adapter_match.h"

#include "model/adapter.h"
#include "tok/tok_regex.h"

#include <ctype.h>
#include <string.h>

/* A name, or an expression; value: of rank_pattern and alpha_pattern. */
typedef struct {
  const char *name;
  tok_regex *re;
  double value;
} rule;
typedef VEC(rule) rules;

struct adapter_match {
  rules target, excluded, saved, ranks, alphas;
  rules layers;                 /* for what stands before the number of a layer */
  const tree_node *transformed; /* layers_to_transform; NULL: all */
  tok_matcher matcher;
};

/* Regular expressions, with what peft has around them. */
static const char whole_name[] = "\\A(?:%s)\\z", end_of_name[] = "\\A(?:.*\\.)?(?:%s)\\z",
                  part_of_name[] = "\\A(?:.*\\.)?(?:%s)(?:\\..*)?\\z",
                  before_layer[] = "\\A.*\\.(?:%s)\\z";

/* --- reading ---------------------------------------------------------------------------------- */

static hp_status add_rule(rules *to, rule r) {
  if (vec_push(to, r)) return HP_OK;
  tok_regex_free(r.re);
  return HP_ERR_OOM;
}

/* Adds an expression, which stands in the place of the %s of `around`. */
static hp_status add_expression(const tree_node *at, const char *text, const char *around,
                                double value, rules *to) {
  const char *hole = strstr(around, "%s");
  rule r = {.value = value};
  str full = {0};
  str_add_n(&full, around, (size_t)(hole - around));
  str_add(&full, text);
  str_add(&full, hole + 2);
  hp_status st = str_status(&full);
  if (!st) st = tok_regex_compile(full.at, full.len, tree_where(at).text, &r.re);
  str_free(&full);
  return st ? st : add_rule(to, r);
}

static bool says_nothing(const tree_node *n) { return !n || n->kind == TREE_NULL; }

/* Names, or one expression for whole names. */
static hp_status read_targets(const tree_node *n, rules *to) {
  const char *text;
  if (says_nothing(n)) return HP_OK;
  if (n->kind == TREE_STRING) {
    HP_TRY(tree_as_string(n, &text));
    return *text ? add_expression(n, text, whole_name, 0, to) : HP_OK;
  }
  HP_TRY(tree_expect(n, TREE_LIST));
  for (uint32_t i = 0; i < n->len; i++) {
    HP_TRY(tree_as_string(n->child[i], &text));
    HP_TRY(add_rule(to, (rule){.name = text}));
  }
  return HP_OK;
}

/* A list of expressions, or one. */
static hp_status read_expressions(const tree_node *n, const char *around, rules *to) {
  const char *text;
  if (says_nothing(n)) return HP_OK;
  bool one = n->kind == TREE_STRING;
  if (!one) HP_TRY(tree_expect(n, TREE_LIST));
  for (uint32_t i = 0; i < (one ? 1 : n->len); i++) {
    const tree_node *at = one ? n : n->child[i];
    HP_TRY(tree_as_string(at, &text));
    if (*text || !one) HP_TRY(add_expression(at, text, around, 0, to));
  }
  return HP_OK;
}

static hp_status read_values(const tree_node *n, rules *to) {
  double value;
  if (says_nothing(n)) return HP_OK;
  HP_TRY(tree_expect(n, TREE_MAP));
  for (uint32_t i = 0; i < n->len; i++) {
    HP_TRY(tree_as_double(n->child[i], &value));
    HP_TRY(add_expression(n->child[i], n->child[i]->key, end_of_name, value, to));
  }
  return HP_OK;
}

static hp_status read_layers(const tree_node *root, adapter_match *m) {
  const tree_node *which = tree_get(root, "layers_to_transform");
  const tree_node *pattern = tree_get(root, "layers_pattern"), *target;
  int64_t layer;
  HP_TRY(read_expressions(pattern, before_layer, &m->layers));
  if (m->layers.len && says_nothing(which))
    TREE_FAIL(pattern, "it goes with layers_to_transform, which is missing; expected both or none");
  if (says_nothing(which) || (which->kind == TREE_LIST && !which->len)) return HP_OK;
  target = tree_get(root, "target_modules");
  if (target && target->kind == TREE_STRING)
    TREE_FAIL(which, "it goes with names in target_modules, which is an expression; expected a "
                     "list there, or an expression that chooses the layers, too");
  if (which->kind != TREE_LIST) HP_TRY(tree_as_int(which, &layer));
  for (uint32_t i = 0; which->kind == TREE_LIST && i < which->len; i++)
    HP_TRY(tree_as_int(which->child[i], &layer));
  m->transformed = which;
  return HP_OK;
}

static hp_status read_all(const tree_node *root, adapter_match *m) {
  if (says_nothing(tree_get(root, "target_modules")))
    TREE_FAIL(root, "target_modules is missing; expected the names of the modules that have an "
                    "adapter, as peft writes them");
  HP_TRY(read_targets(tree_get(root, "target_modules"), &m->target));
  HP_TRY(read_targets(tree_get(root, "exclude_modules"), &m->excluded));
  HP_TRY(read_expressions(tree_get(root, "modules_to_save"), part_of_name, &m->saved));
  HP_TRY(read_layers(root, m));
  HP_TRY(read_values(tree_get(root, "rank_pattern"), &m->ranks));
  return read_values(tree_get(root, "alpha_pattern"), &m->alphas);
}

hp_status adapter_match_create(const tree_node *root, adapter_match **out) {
  adapter_match *m = mem_calloc(1, sizeof *m);
  HP_TRY_MEM(m);
  hp_status st = read_all(root, m);
  if (st) adapter_match_free(m);
  else *out = m;
  return st;
}

void adapter_match_free(adapter_match *m) {
  if (!m) return;
  rules *const all[] = {&m->target, &m->excluded, &m->saved, &m->ranks, &m->alphas, &m->layers};
  for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
    for (size_t i = 0; i < all[k]->len; i++) tok_regex_free(all[k]->at[i].re);
    vec_free(all[k]);
  }
  tok_matcher_free(&m->matcher);
  mem_free(m);
}

/* --- matching --------------------------------------------------------------------------------- */

/* An expression begins at \A and ends at \z: its match is all of the text. */
static hp_status match_rule(adapter_match *m, const rule *r, const char *text, size_t n,
                            bool *yes) {
  tok_spans spans = {0};
  *yes = r->name && adapter_is_named(text, r->name);
  if (r->name) return HP_OK;
  hp_status st = tok_regex_split(r->re, &m->matcher, text, n, &spans);
  if (!st) *yes = spans.len == 1 && spans.at[0].match;
  vec_free(&spans);
  return st;
}

/* The first rule that matches; NULL: none. */
static hp_status find_rule(adapter_match *m, const rules *of, const char *text, size_t n,
                           const rule **out) {
  bool yes = false;
  *out = NULL;
  for (size_t i = 0; i < of->len && !*out; i++) {
    HP_TRY(match_rule(m, &of->at[i], text, n, &yes));
    if (yes) *out = &of->at[i];
  }
  return HP_OK;
}

/* The number of a layer begins at name[at], behind a dot and before another; -1: none does. */
static int64_t layer_at(const char *name, size_t at) {
  int64_t layer = 0;
  size_t end = at;
  if (!at || name[at - 1] != '.' || !memchr(name, '.', at - 1)) return -1;
  for (; isdigit((unsigned char)name[end]) && end - at < 9; end++)
    layer = 10 * layer + (name[end] - '0');
  return end > at && name[end] == '.' ? layer : -1;
}

/* The layer of a module: the last number that stands behind a name of layers, of the first such
 * name that there is; -1: none. */
static hp_status find_layer(adapter_match *m, const char *module, int64_t *out) {
  const size_t rules_n = m->layers.len ? m->layers.len : 1; /* without: any name */
  *out = -1;
  for (size_t k = 0; k < rules_n && *out < 0; k++)
    for (size_t at = strlen(module); at > 0 && *out < 0; at--) {
      bool yes = true;
      int64_t layer = layer_at(module, at);
      if (layer < 0) continue;
      if (m->layers.len) HP_TRY(match_rule(m, &m->layers.at[k], module, at - 1, &yes));
      if (yes) *out = layer;
    }
  return HP_OK;
}

static hp_status is_transformed(adapter_match *m, const char *module, bool *yes) {
  const tree_node *which = m->transformed;
  int64_t layer, one;
  HP_TRY(find_layer(m, module, &layer));
  *yes = false;
  for (uint32_t i = 0; i < (which->kind == TREE_LIST ? which->len : 1) && layer >= 0; i++) {
    HP_TRY(tree_as_int(which->kind == TREE_LIST ? which->child[i] : which, &one));
    *yes |= one == layer;
  }
  return HP_OK;
}

hp_status adapter_match_target(adapter_match *m, const char *module, bool *yes) {
  const size_t n = strlen(module);
  const rule *excluded, *saved, *target;
  HP_TRY(find_rule(m, &m->excluded, module, n, &excluded));
  HP_TRY(find_rule(m, &m->saved, module, n, &saved));
  HP_TRY(find_rule(m, &m->target, module, n, &target));
  *yes = target && !excluded && !saved;
  if (!*yes || !m->transformed) return HP_OK;
  for (size_t i = 0; i < m->target.len; i++) /* by its full name, whatever its layer */
    if (!strcmp(m->target.at[i].name, module)) return HP_OK;
  return is_transformed(m, module, yes);
}

hp_status adapter_match_values(adapter_match *m, const char *module, double *rank, double *alpha) {
  const size_t n = strlen(module);
  const rule *r;
  HP_TRY(find_rule(m, &m->ranks, module, n, &r));
  if (r) *rank = r->value;
  HP_TRY(find_rule(m, &m->alphas, module, n, &r));
  if (r) *alpha = r->value;
  return HP_OK;
}
