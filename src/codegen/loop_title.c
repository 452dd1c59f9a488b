/* A short name of a loop's computation, for people. */
#include "codegen/loop_expr.h"
#include "codegen/loop_plan.h"

#include <stdio.h>
#include <string.h>

/* Loops identified by some of their ops; the first matching row counts. */
static const struct {
  const char *title, *ops[3];
} known[] = {{"adamw", {"square", "sqrt", "div"}},
             {"softmax", {"exp2", "sum", "max"}},
             {"gelu", {"sigmoid", "square", "mul"}},
             {"swiglu", {"silu", "mul"}},
             {"swiglu", {"sigmoid", "mul"}},
             {"gelu", {"gelu_tanh"}},
             {"gelu", {"gelu"}},
             {"gelu", {"erf", "mul"}}};

static const loop_value *get_value(const loop *l, int v) { return &l->value.at[v]; }

static bool is_op(const loop *l, int v, const char *name) {
  return v >= 0 && get_value(l, v)->what == LOOP_OP &&
         !strcmp(loop_expr_row(get_value(l, v)->op)->name, name);
}

/* Random numbers compared with a rate: the mask of dropout.  With `of`, only these numbers. */
static bool is_mask(const loop *l, int v, int of) {
  if (!is_op(l, v, "ge")) return false;
  int drawn = get_value(l, v)->arg[0];
  return drawn >= 0 && get_value(l, drawn)->what == LOOP_UNIFORM && (of < 0 || drawn == of);
}

static bool is_drawn_for_mask(const loop *l, int v) {
  for (int i = v + 1; i < (int)l->value.len; i++)
    if (is_mask(l, i, v)) return true;
  return false;
}

static const char *name_of_op(const loop *l, int v) {
  if (is_mask(l, v, -1)) return NULL;
  if (is_op(l, v, "select") && is_mask(l, get_value(l, v)->arg[0], -1)) return "dropout";
  return loop_expr_row(get_value(l, v)->op)->name;
}

/* The op of value i, or of the store that has this number after the values; NULL: none. */
static const char *name_of(const loop *l, size_t i) {
  if (i >= l->value.len) {
    const loop_store *s = &l->store.at[i - l->value.len];
    return s->fold ? loop_reduction_name[s->reduce] : NULL;
  }
  const loop_value *v = &l->value.at[i];
  switch (v->what) {
  case LOOP_CAST: return "cast";
  case LOOP_UNIFORM: return is_drawn_for_mask(l, (int)i) ? NULL : "uniform";
  case LOOP_OP: return name_of_op(l, (int)i);
  case LOOP_REDUCE: return loop_reduction_name[v->reduce];
  default: return NULL;
  }
}

/* True if one of the values 0..n-1 has that name. */
static bool has_name(const loop *l, size_t n, const char *name) {
  for (size_t i = 0; i < n; i++) {
    const char *of = name_of(l, i);
    if (of && !strcmp(of, name)) return true;
  }
  return false;
}

/* --- lists of names --------------------------------------------------------------------------- */

enum { NAMES_MAX = 4 };

typedef struct {
  char *text;
  size_t size, len;
  int names;
} title;

/* One more name, after a plus; after NAMES_MAX names an ellipsis. */
static void add_name(title *t, const char *name) {
  if (t->names > NAMES_MAX || t->len >= t->size) return;
  bool dots = t->names++ == NAMES_MAX;
  t->len += (size_t)snprintf(t->text + t->len, t->size - t->len, "%s%s",
                             dots     ? ".."
                             : t->len ? "+"
                                      : "",
                             dots ? "" : name);
}

/* Names of the marked values, each once. */
static void add_names(title *t, const loop *l, const bool *marked) {
  for (size_t i = 0; i < l->value.len; i++) {
    const char *name = name_of(l, i);
    bool again = false;
    if (!marked[i] || !name) continue;
    for (size_t k = 0; k < i && !again; k++)
      again = marked[k] && name_of(l, k) && !strcmp(name_of(l, k), name);
    if (!again) add_name(t, name);
  }
}

/* --- norms --------------------------------------------------------------------------------------
 *
 * rsqrt(sum(square x) ..): a norm of x, which is y itself or y without its mean. */

typedef struct {
  int root, x, y; /* values */
  bool centred;   /* a layer norm */
} norm;

static bool is_number(const loop *l, int v) {
  return v < 0 || get_value(l, v)->what == LOOP_CONST || get_value(l, v)->what == LOOP_INTEGER;
}

/* Skips casts, and scales and shifts by constants, back to their operand. */
static int skip_scalar_ops(const loop *l, int v) {
  while (v >= 0 && (get_value(l, v)->what == LOOP_OP || get_value(l, v)->what == LOOP_CAST)) {
    const int16_t *arg = get_value(l, v)->arg;
    bool scaled = get_value(l, v)->what == LOOP_CAST ||
                  ((is_op(l, v, "mul") || is_op(l, v, "add") || is_op(l, v, "div")) &&
                   is_number(l, arg[0]) != is_number(l, arg[1]));
    if (!scaled) return v;
    v = is_number(l, arg[0]) ? arg[1] : arg[0];
  }
  return v;
}

static bool is_sum(const loop *l, int v) {
  return v >= 0 && get_value(l, v)->what == LOOP_REDUCE && get_value(l, v)->reduce == LOOP_SUM;
}

static bool find_norm(const loop *l, norm *out) {
  for (int v = 0; v < (int)l->value.len; v++) {
    if (!is_op(l, v, "rsqrt")) continue;
    int sum = skip_scalar_ops(l, get_value(l, v)->arg[0]);
    if (!is_sum(l, sum)) continue;
    int square = get_value(l, sum)->arg[0], x = square >= 0 ? get_value(l, square)->arg[0] : -1;
    if (!is_op(l, square, "square") &&
        !(is_op(l, square, "mul") && get_value(l, square)->arg[1] == x))
      continue;
    *out = (norm){.root = v, .x = x, .y = x};
    if (is_op(l, x, "sub") && is_sum(l, skip_scalar_ops(l, get_value(l, x)->arg[1]))) {
      out->y = get_value(l, x)->arg[0];
      out->centred = true;
    }
    return true;
  }
  return false;
}

/* Marks the operands of value v, recursively. */
static void mark_before(const loop *l, int v, bool *marked) {
  marked[v] = true;
  for (int i = v; i >= 0; i--)
    for (int k = 0; marked[i] && k < 3; k++)
      if (get_value(l, i)->arg[k] >= 0) marked[get_value(l, i)->arg[k]] = true;
}

/* Marks the users of the normed value, except its scale and shift: one mul and one add by
 * operands that follow it. */
static void mark_behind(const loop *l, const norm *n, bool *marked) {
  bool follows[LOOP_VALUES_MAX] = {false};
  int normed = n->root;
  for (int i = n->root + 1; i < (int)l->value.len; i++) {
    const int16_t *arg = get_value(l, i)->arg;
    bool of_last = false;
    for (int k = 0; k < 3; k++) {
      follows[i] |= arg[k] >= n->root && (arg[k] == n->root || follows[arg[k]]);
      of_last |= arg[k] == normed;
    }
    bool own = of_last &&
               ((is_op(l, i, "mul") && (arg[0] == n->x || arg[1] == n->x)) ||
                ((is_op(l, i, "mul") || is_op(l, i, "add")) && normed != n->root &&
                 (get_value(l, arg[0])->what == LOOP_IN || get_value(l, arg[1])->what == LOOP_IN)));
    if (own) normed = i;
    else marked[i] = follows[i];
  }
}

static bool recognize_norm(const loop *l, title *t) {
  norm n;
  int sums = 0, folds = 0;
  if (!find_norm(l, &n)) return false;
  for (size_t i = 0; i < l->value.len; i++) sums += l->value.at[i].what == LOOP_REDUCE;
  for (size_t i = 0; i < l->store.len; i++) folds += l->store.at[i].fold;
  const char *name = n.centred ? "layer_norm" : "rms_norm";
  bool forward = !folds && sums == 1 + n.centred;
  bool before[LOOP_VALUES_MAX] = {false}, behind[LOOP_VALUES_MAX] = {false};
  if (forward) mark_before(l, n.y, before);
  if (forward) mark_behind(l, &n, behind);
  add_names(t, l, before);
  add_name(t, name);
  add_names(t, l, behind);
  return true;
}

/* --- all loops -------------------------------------------------------------------------------- */

void loop_title(const loop *l, char *text, size_t size) {
  title t = {.text = text, .size = size};
  size_t all_names = l->value.len + l->store.len;
  *text = 0;
  if (recognize_norm(l, &t)) return;
  for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
    bool all = true;
    for (int i = 0; i < 3 && known[k].ops[i]; i++) all &= has_name(l, all_names, known[k].ops[i]);
    if (!all) continue;
    add_name(&t, known[k].title);
    return;
  }
  for (size_t i = 0; i < all_names; i++) {
    const char *name = name_of(l, i);
    if (name && !has_name(l, i, name)) add_name(&t, name);
  }
  if (!t.names) add_name(&t, "copy");
}
