/* A word for people on what a loop does. */
#include "codegen/loop_expr.h"
#include "codegen/loop_plan.h"

#include <stdio.h>
#include <string.h>

/* Loops that are known by the ops that they have, among others; the first row that fits counts. */
static const struct {
  const char *title, *ops[3];
} known[] = {{"adamw", {"square", "sqrt", "div"}},
             {"softmax", {"exp2", "sum", "max"}},
             {"norm", {"rsqrt"}},
             {"gelu", {"sigmoid", "square", "mul"}},
             {"swiglu", {"silu", "mul"}},
             {"swiglu", {"sigmoid", "mul"}},
             {"gelu", {"gelu_tanh"}},
             {"gelu", {"gelu"}},
             {"gelu", {"erf", "mul"}}};

/* What value i does, or the store that has this number after the values; NULL for nothing. */
static const char *name_of(const loop *l, size_t i) {
  if (i >= l->value.len) {
    const loop_store *s = &l->store.at[i - l->value.len];
    return s->fold ? loop_reduction_name[s->reduce] : NULL;
  }
  const loop_value *v = &l->value.at[i];
  switch (v->what) {
  case LOOP_CAST: return "cast";
  case LOOP_UNIFORM: return "uniform";
  case LOOP_OP: return loop_expr_row(v->op)->name;
  case LOOP_REDUCE: return loop_reduction_name[v->reduce];
  default: return NULL;
  }
}

/* Is there one of that name among numbers 0..n-1? */
static bool has(const loop *l, size_t n, const char *name) {
  for (size_t i = 0; i < n; i++) {
    const char *of = name_of(l, i);
    if (of && !strcmp(of, name)) return true;
  }
  return false;
}

void loop_title(const loop *l, char *text, size_t size) {
  enum { NAMES_MAX = 4 };
  int names = 0;
  size_t len = 0, all_names = l->value.len + l->store.len;
  for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
    bool all = true;
    for (int i = 0; i < 3 && known[k].ops[i]; i++) all &= has(l, all_names, known[k].ops[i]);
    if (!all) continue;
    snprintf(text, size, "%s", known[k].title);
    return;
  }
  snprintf(text, size, "copy");
  for (size_t i = 0; i < all_names && len < size; i++) {
    const char *name = name_of(l, i);
    if (!name || has(l, i, name)) continue;
    if (names++ == NAMES_MAX) snprintf(text + len, size - len, "..");
    if (names > NAMES_MAX) return;
    len += (size_t)snprintf(text + len, size - len, "%s%s", len ? "+" : "", name);
  }
}
