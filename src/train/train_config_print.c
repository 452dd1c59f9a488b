/* The configuration as YAML, and the help on its keys. */
#include "base/json.h"
#include "train/memory_limit.h"
#include "train/train_config.h"

#include <math.h>
#include <string.h>

static void print_text(const char *s, str *out) {
  json_writer w = {.out = out, .utf8 = true};
  json_put_string(&w, s);
}

void train_config_print_value(const train_config *c, int key, str *out) {
  const train_key *k = train_key_get(key);
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
    const char *s = train_key_choice(k->choices, *(const int *)field, &len);
    str_add_char(out, '"'); /* "no" is a boolean otherwise */
    str_add_n(out, s, len);
    str_add_char(out, '"');
    return;
  }
  case TRAIN_LIMIT:
  case TRAIN_SIZE: {
    uint64_t x = *(const uint64_t *)field;
    if (memory_limit_is_share(x)) str_printf(out, "%g%%", memory_limit_percent(x));
    else if (x) str_printf(out, "%llu", (unsigned long long)x);
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
    if (train_key_get(k)->status != TRAIN_USED || k == KEY_hyper_parallel) continue;
    if (k == KEY_TOP_COUNT) str_add(out, "hyper_parallel:\n");
    str_printf(out, "%s%s: ", k >= KEY_TOP_COUNT ? "  " : "", train_key_get(k)->name);
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
  if (strlen(k->name) > INDENT - 4) str_printf(out, "  %s\n%*s", k->name, INDENT, "");
  else str_printf(out, "  %-30s  ", k->name);
  str help = {0};
  str_add(&help, k->help);
  int shown = 0;
  for (const char *p = k->choices; *p;) {
    size_t n;
    bool built;
    const char *one = train_key_next_choice(&p, &n, &built);
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
    if (train_key_get(k)->status == status)
      str_printf(&list, "%s%s", list.len ? " " : "", train_key_get(k)->name);
  if (list.at) print_wrapped(out, 2, 2, list.at);
  str_free(&list);
}

void train_config_print_help(str *out) {
  static const char *const title[] =
      {[GROUP_MODEL] = "model",           [GROUP_METHOD] = "method",
       [GROUP_DATASET] = "dataset",       [GROUP_OUTPUT] = "output",
       [GROUP_TRAIN] = "train",           [GROUP_EVAL] = "evaluation",
       [GROUP_DEVICE] = "device",         [GROUP_EXPORT] = "export",
       [GROUP_GENERATION] = "generation", [GROUP_PARALLEL] = "hyper_parallel: block"};
  for (int g = 0; g < GROUP_NONE; g++) {
    str_printf(out, "%s%s\n", g ? "\n" : "", title[g]);
    for (int k = 0; k < KEY_COUNT; k++)
      if (train_key_get(k)->status == TRAIN_USED && train_key_get(k)->group == (train_group)g)
        print_key_help(train_key_get(k), out);
  }
  print_names(TRAIN_NEUTRAL, "accepted, without effect on any number", out);
  print_names(TRAIN_REFUSED, "known, refused when set to more than their default", out);
}
