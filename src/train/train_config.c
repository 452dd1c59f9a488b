#include "train/train_config.h"

#include "base/json.h"
#include "base/yaml.h"
#include "train/memory_limit.h"
#include "train/train_paths.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- values ----------------------------------------------------------------------------------- */

/* What is no choice of a key is not known where all that are known are listed; else it may be one
 * that is not built. */
static hp_status wrong_choice(const train_key *k, const tree_node *v, const char *word) {
  char copy[16][32];
  const char *name[16];
  size_t n = 0, len;
  bool built, all = false;
  for (const char *p = k->choices; *p && n < 16;) {
    const char *one = train_key_next_choice(&p, &len, &built);
    all |= !built;
    if (!built) continue;
    snprintf(copy[n], sizeof copy[n], "%.*s", (int)len, one);
    name[n] = copy[n];
    n++;
  }
  str list = {0};
  for (size_t i = 0; i < n; i++)
    str_printf(&list, "%s%s", i == 0 ? "" : i + 1 == n ? " or " : ", ", name[i]);
  const char *near = str_nearest(word, name, n);
  hp_status st = tree_error(v, __FILE__, __LINE__, "\"%s\" is not known%s; expected %s%s%s%s", word,
                            all ? "" : ", or not built", list.at ? list.at : "",
                            near ? " (did you mean \"" : "", near ? near : "", near ? "\"?)" : "");
  str_free(&list);
  return st;
}

static hp_status check_range(const train_key *k, const tree_node *v, double x) {
  if (k->least == 0 && k->most == 0) return HP_OK;
  if (!(x >= k->least && x <= k->most))
    TREE_FAIL(v, "%.10g is out of range; expected %s from %.10g to %.10g", x,
              k->type == TRAIN_INT ? "a whole number" : "a number", k->least, k->most);
  return HP_OK;
}

static hp_status read_choice(const train_key *k, const tree_node *v, int *out) {
  const char *word;
  if (v->kind == TREE_BOOL) word = v->boolean ? "yes" : "no"; /* YAML: eval_strategy: no */
  else HP_TRY(tree_as_string(v, &word));
  int i = train_key_find_choice(k->choices, word, strlen(word));
  if (i < 0) return wrong_choice(k, v, word);
  *out = i;
  return HP_OK;
}

static hp_status read_size(const tree_node *v, uint64_t *out) {
  if (v->kind == TREE_INT && v->integer > 0) {
    *out = (uint64_t)v->integer;
    return HP_OK;
  }
  if (v->kind != TREE_STRING || !memory_size_parse(v->string, out))
    TREE_FAIL(v, "expected a size above 0 such as 16GiB, 512MiB or a number of bytes, found %s",
              tree_what(v).text);
  return HP_OK;
}

static hp_status read_limit(const tree_node *v, uint64_t *out) {
  if (v->kind == TREE_INT && v->integer > 0) {
    *out = (uint64_t)v->integer;
    return HP_OK;
  }
  if (v->kind != TREE_STRING || !memory_limit_parse(v->string, out))
    TREE_FAIL(v,
              "expected a size above 0 such as 16GiB or a number of bytes, or a share of the bytes "
              "that are needed without a limit, from 1%% to 100%%, found %s",
              tree_what(v).text);
  return HP_OK;
}

/* Reads v as the type of k into the field at `out` (of that type). */
static hp_status read_value(const train_key *k, const tree_node *v, void *out) {
  bool b;
  int64_t i;
  double x;
  switch (k->type) {
  case TRAIN_BOOL: return tree_as_bool(v, out);
  case TRAIN_TRI:
    HP_TRY(tree_as_bool(v, &b));
    *(int *)out = b;
    return HP_OK;
  case TRAIN_INT:
    HP_TRY(tree_as_int(v, &i));
    HP_TRY(check_range(k, v, (double)i));
    *(int64_t *)out = i;
    return HP_OK;
  case TRAIN_NUM:
    HP_TRY(tree_as_double(v, &x));
    HP_TRY(check_range(k, v, x));
    *(double *)out = x;
    return HP_OK;
  case TRAIN_TEXT: return tree_as_string(v, out);
  case TRAIN_CHOICE: return read_choice(k, v, out);
  case TRAIN_SIZE: return read_size(v, out);
  case TRAIN_LIMIT: return read_limit(v, out);
  case TRAIN_NODE: *(const tree_node **)out = v; return HP_OK;
  }
  return HP_ERR_INTERNAL;
}

typedef union {
  bool boolean;
  int tri;
  int64_t integer;
  double number;
  const char *text;
  uint64_t size;
  const tree_node *node;
} any_value;

static hp_status set_default(train_config *c, const train_key *k) {
  void *field = (char *)c + k->offset;
  if (!strcmp(k->otherwise, "null")) {
    if (k->type == TRAIN_TRI) *(int *)field = -1;
    if (k->type == TRAIN_INT) *(int64_t *)field = TRAIN_NONE;
    if (k->type == TRAIN_NUM) *(double *)field = NAN;
    return HP_OK; /* the rest: zeroed */
  }
  tree_node *v;
  HP_TRY(yaml_parse_value(&c->mem, k->otherwise, "default", NULL, &v));
  return read_value(k, v, field);
}

/* Is v the default of a key whose effect is not built?  Nothing at all is, too. */
static hp_status is_default(const train_key *k, const tree_node *v, bool *yes) {
  any_value x;
  *yes = v->kind == TREE_NULL;
  if (*yes) return HP_OK;
  if (k->type == TRAIN_NODE) {
    bool nothing =
        (v->kind == TREE_BOOL && !v->boolean) ||
        ((v->kind == TREE_LIST || v->kind == TREE_MAP || v->kind == TREE_STRING) && !v->len);
    *yes = nothing;
    return HP_OK;
  }
  HP_TRY(read_value(k, v, &x));
  double want;
  if (k->type == TRAIN_BOOL) *yes = x.boolean == !strcmp(k->otherwise, "true");
  else if (k->type == TRAIN_TEXT) *yes = !strcmp(x.text, k->otherwise) || !*x.text;
  else
    *yes = str_to_f64(k->otherwise, &want) &&
           want == (k->type == TRAIN_INT ? (double)x.integer : x.number);
  return HP_OK;
}

/* --- one key ---------------------------------------------------------------------------------- */

static hp_status take_neutral(train_config *c, const train_key *k, const tree_node *v) {
  any_value ignored;
  if (v->kind != TREE_NULL) HP_TRY(read_value(k, v, &ignored));
  return train_config_note(c, "%s: accepted, changes no number here (%s)", k->name, k->help);
}

static hp_status take_refused(const train_key *k, const tree_node *v) {
  bool harmless;
  HP_TRY(is_default(k, v, &harmless));
  if (!harmless) {
    tree_place what = tree_what(v);
    TREE_FAIL(v, "%s is not built; %s", what.text, k->help);
  }
  return HP_OK;
}

static hp_status take(train_config *c, int key, const tree_node *v) {
  const train_key *k = train_key_get(key);
  if (k->status == TRAIN_SYNONYM) {
    int means = train_key_find(k->help, false);
    if (tree_get(c->root, k->help))
      TREE_FAIL(v, "is another spelling of %s, which is set too; remove one of them", k->help);
    return take(c, means, v);
  }
  if (k->status == TRAIN_NEUTRAL) return take_neutral(c, k, v);
  if (k->status == TRAIN_REFUSED) return take_refused(k, v);
  if (v->kind == TREE_NULL && k->type == TRAIN_TRI) *(int *)((char *)c + k->offset) = -1;
  if (v->kind == TREE_NULL) return HP_OK;
  c->at[key] = v;
  return read_value(k, v, (char *)c + k->offset);
}

/* The key that a synonym stands for. */
static int key_meant(int key) {
  return train_key_get(key)->status == TRAIN_SYNONYM
             ? train_key_find(train_key_get(key)->help, false)
             : key;
}

/* A key of the file may stand in hyper_parallel, and the other way round. */
static hp_status refuse_unknown(const tree_node *v, bool inner, const char *const *known,
                                size_t n) {
  if (train_key_find(v->key, !inner) < 0) return tree_unknown_key(v, known, n);
  if (inner) TREE_FAIL(v, "unknown key here; write it outside of hyper_parallel");
  TREE_FAIL(v, "unknown key here; write it in hyper_parallel: hyper_parallel: {%s: ...}", v->key);
}

static hp_status take_map(train_config *c, const tree_node *block, int from, int to) {
  const char *known[KEY_COUNT];
  size_t n = 0;
  HP_TRY(tree_expect(block, TREE_MAP));
  for (int k = from; k < to; k++) known[n++] = train_key_get(k)->name;
  for (uint32_t i = 0; i < block->len; i++) {
    const tree_node *v = block->child[i];
    int key = train_key_find(v->key, from > 0);
    hp_status st = key < 0 ? refuse_unknown(v, from > 0, known, n) : take(c, key, v);
    if (st && key >= 0) c->bad[key_meant(key)] = true;
    HP_TRY(train_config_keep(c, st));
  }
  return HP_OK;
}

static hp_status parse_keys(train_config *c) {
  for (int k = 0; k < KEY_COUNT; k++)
    if (train_key_get(k)->status == TRAIN_USED) HP_TRY(set_default(c, train_key_get(k)));
  HP_TRY(take_map(c, c->root, 0, KEY_TOP_COUNT));
  if (c->hyper_parallel)
    HP_TRY(train_config_keep(c, take_map(c, c->hyper_parallel, KEY_TOP_COUNT, KEY_COUNT)));
  return HP_OK;
}

static hp_status parse(train_config *c) {
  HP_TRY(parse_keys(c));
  return train_config_decide(c);
}

hp_status train_config_parse(const tree_node *root, train_config *out) {
  train_config c = {.root = root};
  hp_status st = parse(&c);
  if (!st) st = train_config_report_errors(&c);
  if (st) train_config_free(&c);
  else *out = c;
  return st;
}

static hp_status read_file(const char *path, const char *const *override, int n, train_config *c) {
  yaml_repeats repeats = {0};
  hp_status st = path ? yaml_load_config(path, &c->file, &repeats)
                      : json_parse("{}", 2, "command line", &c->file);
  c->root = c->file.root;
  for (size_t i = 0; i < repeats.len && !st; i++)
    st = train_config_keep(c, yaml_repeat_error(repeats.at[i]));
  vec_free(&repeats);
  for (int i = 0; i < n && !st; i++)
    st = train_config_keep(c, yaml_override(&c->file, override[i], i + 1));
  return st;
}

hp_status train_config_read(const char *path, const char *const *override, int n,
                            train_config *out) {
  train_config c = {.root = NULL};
  hp_status st = read_file(path, override, n, &c);
  if (!st) st = parse_keys(&c);
  if (!st) st = train_config_report_errors(&c);
  if (st) train_config_free(&c);
  else *out = c;
  return st;
}

hp_status train_config_load(const char *path, const char *const *override, int n, bool reads_data,
                            train_config *out) {
  train_config c = {.root = NULL};
  hp_status st = read_file(path, override, n, &c);
  if (!st) st = parse(&c);
  if (!st) st = train_paths_check(&c, reads_data);
  if (!st) st = train_config_report_errors(&c);
  if (st) train_config_free(&c);
  else *out = c;
  return st;
}

void train_config_free(train_config *c) {
  if (!c) return;
  vec_free(&c->notes);
  vec_free(&c->warnings);
  vec_free(&c->errors);
  arena_free(&c->mem);
  tree_free(&c->file);
  tree_free(&c->deepspeed_file);
  tier_options_free(&c->is.tiers);
}
