#include "train/train_config.h"

#include "base/json.h"
#include "base/log.h"
#include "base/yaml.h"
#include "train/train_paths.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define USED(group, name, type, otherwise, least, most, choices, help)                             \
  {#name, TRAIN_USED, GROUP_##group, TRAIN_##type, otherwise,                                      \
   least, most,       choices,       help,         offsetof(train_config, name)},
#define NEUTRAL(name, type, otherwise, why)                                                        \
  {#name, TRAIN_NEUTRAL, GROUP_NONE, TRAIN_##type, otherwise, 0, 0, "", why, 0},
#define REFUSED(name, type, otherwise, instead)                                                    \
  {#name, TRAIN_REFUSED, GROUP_NONE, TRAIN_##type, otherwise, 0, 0, "", instead, 0},
#define SYNONYM(name, means)                                                                       \
  {#name, TRAIN_SYNONYM, GROUP_NONE, TRAIN_NODE, "", 0, 0, "", #means, 0},
static const train_key keys[] = {
#include "train/train_keys.def"
#undef USED
#define USED(group, name, type, otherwise, least, most, choices, help)                             \
  {#name, TRAIN_USED, GROUP_##group, TRAIN_##type, otherwise,                                      \
   least, most,       choices,       help,         offsetof(train_config, parallel.name)},
#include "train/parallel_keys.def"
};

const train_key *train_key_get(int key) { return &keys[key]; }

int train_key_find(const char *name, bool block) {
  for (int k = block ? KEY_TOP_COUNT : 0; k < (block ? KEY_COUNT : KEY_TOP_COUNT); k++)
    if (!strcmp(keys[k].name, name)) return k;
  return -1;
}

/* Adds a line, which lives as long as c. */
static hp_status add_line(train_config *c, train_lines *to, const char *fmt, va_list ap) {
  str s = {0};
  str_vprintf(&s, fmt, ap);
  const char *text = s.failed ? NULL : arena_strdup(&c->mem, s.at);
  str_free(&s);
  return text && vec_push(to, text) ? HP_OK : HP_ERR_OOM;
}

hp_status train_config_note(train_config *c, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  hp_status st = add_line(c, &c->notes, fmt, ap);
  va_end(ap);
  return st;
}

hp_status train_config_warn(train_config *c, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  hp_status st = add_line(c, &c->warnings, fmt, ap);
  va_end(ap);
  return st;
}

void train_config_tell(const train_config *c) {
  for (size_t i = 0; i < c->notes.len; i++) log_info("%s", c->notes.at[i]);
  for (size_t i = 0; i < c->warnings.len; i++) log_warn("%s", c->warnings.at[i]);
  strategy_tell_tokens(&c->is.strategy, c->is.block);
}

const tree_node *train_config_at(const train_config *c, int key) {
  return c->at[key] ? c->at[key] : c->root;
}

/* --- errors ----------------------------------------------------------------------------------- */

/* Where the message says that it was written: line and column of the file, or the argument. */
static uint64_t place_of(const train_config *c, const char *text) {
  static const char argument[] = "argument ";
  enum { ARGUMENTS = 62 };
  if (!strncmp(text, argument, strlen(argument)))
    return (UINT64_C(1) << ARGUMENTS) + strtoul(text + strlen(argument), NULL, 10);
  tree_place file = tree_where(&(tree_node){.source = c->root->source});
  size_t n = strlen(file.text);
  char *end;
  if (strncmp(text, file.text, n) || text[n] != ':') return UINT64_MAX; /* no place */
  uint64_t line = strtoul(text + n + 1, &end, 10);
  return line << 32 | (*end == ':' ? strtoul(end + 1, NULL, 10) & UINT32_MAX : 0);
}

hp_status train_config_keep(train_config *c, hp_status st) {
  if (!st || st == HP_ERR_OOM || st == HP_ERR_IO || st == HP_ERR_INTERNAL) return st;
  train_error one = {.text = arena_strdup(&c->mem, err_message())};
  err_clear();
  if (!one.text || !vec_push(&c->errors, one)) return HP_ERR_OOM;
  one.place = place_of(c, one.text);
  size_t i = c->errors.len - 1;
  for (; i > 0 && c->errors.at[i - 1].place > one.place; i--) c->errors.at[i] = c->errors.at[i - 1];
  c->errors.at[i] = one;
  return HP_OK;
}

/* All errors as one failure: of several, a numbered list as long as a message can be. */
static hp_status report_errors(const train_config *c) {
  size_t n = c->errors.len, shown = 0;
  str list = {0};
  if (!n) return HP_OK;
  if (n == 1) HP_FAIL(HP_ERR_INPUT, "%s", c->errors.at[0].text);
  for (; shown < n && list.len + strlen(c->errors.at[shown].text) < ERR_MESSAGE_MAX - 200; shown++)
    str_printf(&list, "\n  %zu. %s", shown + 1, c->errors.at[shown].text);
  if (shown < n) str_printf(&list, "\n  and %zu more", n - shown);
  hp_status st = str_status(&list);
  if (!st)
    st = err_set(HP_ERR_INPUT, __FILE__, __LINE__, "%zu errors in the configuration:\n%s", n,
                 list.at + 1);
  str_free(&list);
  return st;
}

/* --- values ----------------------------------------------------------------------------------- */

bool train_parse_size(const char *text, uint64_t *out) {
  static const struct {
    const char *name;
    double bytes;
  } unit[] = {{"", 1},
              {"B", 1},
              {"K", 1024.0},
              {"KB", 1e3},
              {"KiB", 1024.0},
              {"M", 1048576.0},
              {"MB", 1e6},
              {"MiB", 1048576.0},
              {"G", 1073741824.0},
              {"GB", 1e9},
              {"GiB", 1073741824.0},
              {"T", 1099511627776.0},
              {"TB", 1e12},
              {"TiB", 1099511627776.0}};
  size_t n = strspn(text, "0123456789.");
  char number[32];
  if (!n || n >= sizeof number) return false;
  memcpy(number, text, n);
  number[n] = 0;
  double x;
  if (!str_to_f64(number, &x)) return false;
  const char *rest = text + n + strspn(text + n, " ");
  for (size_t i = 0; i < sizeof unit / sizeof *unit; i++)
    if (!strcmp(rest, unit[i].name)) {
      double bytes = x * unit[i].bytes;
      if (!(bytes >= 1 && bytes < 9e18)) return false;
      *out = (uint64_t)bytes;
      return true;
    }
  return false;
}

/* The next of the choices "a|b|!c" at *at, and whether it is built. */
static const char *next_choice(const char **at, size_t *len, bool *built) {
  const char *word = *at + (**at == '!');
  *built = **at != '!';
  *len = strcspn(word, "|");
  *at = word + *len + (word[*len] == '|');
  return word;
}

/* The place of `word` among the choices, or -1. */
static int find_choice(const char *choices, const char *word, size_t n) {
  size_t len;
  bool built;
  for (int i = 0; *choices; i++) {
    const char *one = next_choice(&choices, &len, &built);
    if (len == n && !strncmp(one, word, n)) return i;
  }
  return -1;
}

static const char *choice_at(const char *choices, int i, size_t *len) {
  bool built;
  const char *one = choices;
  for (*len = 0; i >= 0; i--) one = next_choice(&choices, len, &built);
  return one;
}

/* What is no choice of a key is not known where all that are known are listed; else it may be one
 * that is not built. */
static hp_status wrong_choice(const train_key *k, const tree_node *v, const char *word) {
  char copy[16][32];
  const char *name[16];
  size_t n = 0, len;
  bool built, all = false;
  for (const char *p = k->choices; *p && n < 16;) {
    const char *one = next_choice(&p, &len, &built);
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
  int i = find_choice(k->choices, word, strlen(word));
  if (i < 0) return wrong_choice(k, v, word);
  *out = i;
  return HP_OK;
}

static hp_status read_size(const tree_node *v, uint64_t *out) {
  if (v->kind == TREE_INT && v->integer > 0) {
    *out = (uint64_t)v->integer;
    return HP_OK;
  }
  if (v->kind != TREE_STRING || !train_parse_size(v->string, out))
    TREE_FAIL(v, "expected a size above 0 such as 16GiB, 512MiB or a number of bytes, found %s",
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
  HP_TRY(yaml_parse_value(&c->mem, k->otherwise, "default", &v));
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
  const train_key *k = &keys[key];
  if (k->status == TRAIN_SYNONYM) {
    int means = train_key_find(k->help, false);
    if (tree_get(c->root, k->help))
      TREE_FAIL(v, "is another spelling of %s, which is set too; remove one of them", k->help);
    return take(c, means, v);
  }
  if (k->status == TRAIN_NEUTRAL) return take_neutral(c, k, v);
  if (k->status == TRAIN_REFUSED) return take_refused(k, v);
  if (v->kind == TREE_NULL) return HP_OK;
  c->at[key] = v;
  return read_value(k, v, (char *)c + k->offset);
}

/* The key that a synonym stands for. */
static int key_meant(int key) {
  return keys[key].status == TRAIN_SYNONYM ? train_key_find(keys[key].help, false) : key;
}

static hp_status take_map(train_config *c, const tree_node *block, int from, int to) {
  const char *known[KEY_COUNT];
  size_t n = 0;
  HP_TRY(tree_expect(block, TREE_MAP));
  for (int k = from; k < to; k++) known[n++] = keys[k].name;
  for (uint32_t i = 0; i < block->len; i++) {
    const tree_node *v = block->child[i];
    int key = train_key_find(v->key, from > 0);
    hp_status st = key < 0 ? tree_unknown_key(v, known, n) : take(c, key, v);
    if (st && key >= 0) c->bad[key_meant(key)] = true;
    HP_TRY(train_config_keep(c, st));
  }
  return HP_OK;
}

static hp_status parse(train_config *c) {
  for (int k = 0; k < KEY_COUNT; k++)
    if (keys[k].status == TRAIN_USED) HP_TRY(set_default(c, &keys[k]));
  HP_TRY(take_map(c, c->root, 0, KEY_TOP_COUNT));
  if (c->hyper_parallel)
    HP_TRY(train_config_keep(c, take_map(c, c->hyper_parallel, KEY_TOP_COUNT, KEY_COUNT)));
  return train_config_decide(c);
}

hp_status train_config_parse(const tree_node *root, train_config *out) {
  train_config c = {.root = root};
  hp_status st = parse(&c);
  if (!st) st = report_errors(&c);
  if (st) train_config_free(&c);
  else *out = c;
  return st;
}

hp_status train_config_load(const char *path, const char *const *override, int n, bool reads_data,
                            train_config *out) {
  train_config c = {.root = NULL};
  yaml_repeats repeats = {0};
  hp_status st = yaml_load_config(path, &c.file, &repeats);
  c.root = c.file.root;
  for (size_t i = 0; i < repeats.len && !st; i++)
    st = train_config_keep(&c, yaml_repeat_error(repeats.at[i]));
  vec_free(&repeats);
  for (int i = 0; i < n && !st; i++)
    st = train_config_keep(&c, yaml_override(&c.file, override[i], i + 1));
  if (!st) st = parse(&c);
  if (!st) st = train_paths_check(&c, reads_data);
  if (!st) st = report_errors(&c);
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
}

/* --- printing --------------------------------------------------------------------------------- */

static void print_text(const char *s, str *out) {
  json_writer w = {.out = out, .utf8 = true};
  json_put_string(&w, s);
}

void train_config_print_value(const train_config *c, int key, str *out) {
  const train_key *k = &keys[key];
  const void *field = (const char *)c + k->offset;
  size_t len;
  switch (k->type) {
  case TRAIN_BOOL: str_add(out, *(const bool *)field ? "true" : "false"); return;
  case TRAIN_TRI: {
    int x = *(const int *)field;
    str_add(out, x < 0 ? "null" : x ? "true" : "false");
    return;
  }
  case TRAIN_INT: {
    int64_t x = *(const int64_t *)field;
    if (x == TRAIN_NONE) str_add(out, "null");
    else str_printf(out, "%lld", (long long)x);
    return;
  }
  case TRAIN_NUM: {
    double x = *(const double *)field;
    if (isnan(x)) str_add(out, "null");
    else str_add_double(out, x);
    return;
  }
  case TRAIN_TEXT: {
    const char *s = *(const char *const *)field;
    if (s) print_text(s, out);
    else str_add(out, "null");
    return;
  }
  case TRAIN_CHOICE: {
    const char *s = choice_at(k->choices, *(const int *)field, &len);
    str_add_char(out, '"'); /* "no" is a boolean otherwise */
    str_add_n(out, s, len);
    str_add_char(out, '"');
    return;
  }
  case TRAIN_SIZE: {
    uint64_t x = *(const uint64_t *)field;
    if (x) str_printf(out, "%llu", (unsigned long long)x);
    else str_add(out, "null");
    return;
  }
  case TRAIN_NODE: {
    const tree_node *n = *(const tree_node *const *)field;
    json_writer w = {.out = out, .utf8 = true};
    if (n) json_put_tree(&w, n);
    else str_add(out, "null");
    return;
  }
  }
}

void train_config_print(const train_config *c, str *out) {
  for (int k = 0; k < KEY_COUNT; k++) {
    if (keys[k].status != TRAIN_USED || k == KEY_hyper_parallel) continue;
    if (k == KEY_TOP_COUNT) str_add(out, "hyper_parallel:\n");
    str_printf(out, "%s%s: ", k >= KEY_TOP_COUNT ? "  " : "", keys[k].name);
    train_config_print_value(c, k, out);
    str_add_char(out, '\n');
  }
}

/* Adds words with spaces between, in lines of at most 100 columns that begin with `indent`. */
static void print_wrapped(str *out, size_t indent, size_t column, const char *text) {
  while (*text) {
    size_t n = strcspn(text, " ");
    if (column + 1 + n > 100 && column > indent) {
      str_printf(out, "\n%*s", (int)indent, "");
      column = indent;
    } else if (column > indent) {
      str_add_char(out, ' ');
      column++;
    }
    str_add_n(out, text, n);
    column += n;
    text += n + (text[n] == ' ');
  }
  str_add_char(out, '\n');
}

static void print_key_help(const train_key *k, str *out) {
  enum { INDENT = 34 };
  str_printf(out, "  %-30s  ", k->name);
  str help = {0};
  str_add(&help, k->help);
  int shown = 0;
  for (const char *p = k->choices; *p;) {
    size_t n;
    bool built;
    const char *one = next_choice(&p, &n, &built);
    if (!built) continue;
    str_add(&help, shown++ ? ", " : "; one of ");
    str_add_n(&help, one, n);
  }
  if (strcmp(k->otherwise, "null")) str_printf(&help, " [%s]", k->otherwise);
  if (help.at) print_wrapped(out, INDENT, INDENT, help.at);
  str_free(&help);
}

static void print_names(train_status status, const char *title, str *out) {
  str list = {0};
  str_printf(out, "\n%s\n  ", title);
  for (int k = 0; k < KEY_COUNT; k++)
    if (keys[k].status == status) str_printf(&list, "%s%s", list.len ? " " : "", keys[k].name);
  if (list.at) print_wrapped(out, 2, 2, list.at);
  str_free(&list);
}

void train_config_print_help(str *out) {
  static const char *const title[] = {"model", "method",     "dataset", "output",
                                      "train", "evaluation", "device",  "hyper_parallel: block"};
  for (int g = 0; g < GROUP_NONE; g++) {
    str_printf(out, "%s%s\n", g ? "\n" : "", title[g]);
    for (int k = 0; k < KEY_COUNT; k++)
      if (keys[k].status == TRAIN_USED && keys[k].group == (train_group)g)
        print_key_help(&keys[k], out);
  }
  print_names(TRAIN_NEUTRAL, "accepted, without effect on any number", out);
  print_names(TRAIN_REFUSED, "known, refused when set to more than their default", out);
}
