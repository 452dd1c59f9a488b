/* Folds of a row kernel.  Its rows are processed in blocks of 64: each row adds its elements to
 * chains, one per column, in scratch memory, which stay in a near cache.  Then, in a phase of
 * its own, the columns combine the results of all blocks: chained to segments, and these to the
 * result.  Names: fN chains of fold N in this block, zN the results of all its blocks, qN and vN
 * the chains of a segment and of segments. */
#include "codegen/loop_c_print.h"

#include "codegen/loop_expr.h"

#include <stdio.h>

enum { COLS = 512 }; /* columns that the last phase holds in arrays */

#define EACH_FOLD(w, n)                                                                            \
  for (int n = 0; n < (w)->p->stores; n++)                                                         \
    if ((w)->p->store[n].s.fold)

static loop_class get_class(const loop_c_printer *w, int n) {
  return (loop_class)w->p->value[w->p->store[n].s.value].v.cls;
}

static const char *get_type(const loop_c_printer *w, int n) {
  return loop_expr_type(get_class(w, n));
}

static const char *get_identity(const loop_c_printer *w, int n) {
  return loop_expr_identity((loop_reduction)w->p->store[n].s.reduce, get_class(w, n));
}

static void print_array(loop_c_printer *w, char letter, int n, int columns) {
  loop_c_line(w, "%s %c%d[%d];", get_type(w, n), letter, n, columns);
}

/* The numbers of fold n in scratch memory, `element` of them, as an array. */
static void print_numbers(loop_c_printer *w, char letter, int n, const char *element) {
  char to[24];
  int k = 0;
  for (int i = 0; i < n; i++) k += w->p->store[i].s.fold;
  snprintf(to, sizeof to, "%c%d", letter, n);
  loop_c_print_scratch(w, to, get_type(w, n), k, element);
}

static void print_fill(loop_c_printer *w, char letter, int n, const char *columns) {
  loop_c_line(w, "for (int64_t c = 0; c < %s; c++) %c%d[c] = %s;", columns, letter, n,
              get_identity(w, n));
}

/* to[] = join(to[], from[]) for w columns */
static void print_chain(loop_c_printer *w, int n, char to, const char *from) {
  char a[24];
  snprintf(a, sizeof a, "%c%d[c]", to, n);
  loop_c_line(w, "IVDEP for (int64_t c = 0; c < w; c++) {");
  loop_c_print_fold(w, n, a, from);
  loop_c_line(w, "}");
}

/* Fold n of w columns from `first`. */
static void print_columns(loop_c_printer *w, int n) {
  const loop_store *s = &w->p->store[n].s;
  char from[48];
  str value = {0};
  print_array(w, 'v', n, COLS);
  print_array(w, 'q', n, COLS);
  print_numbers(w, 'z', n, "first");
  print_fill(w, 'v', n, "w");
  loop_c_line(w, "for (int64_t s = 0; s < blocks; s += %d) {", PLAN_COL_SEGMENT / PLAN_COL_BLOCK);
  print_fill(w, 'q', n, "w");
  loop_c_line(w, "for (int64_t b = s; b < blocks && b < s + %d; b++) {",
              PLAN_COL_SEGMENT / PLAN_COL_BLOCK);
  snprintf(from, sizeof from, "z%d[b * p[0] + c]", n);
  print_chain(w, n, 'q', from);
  loop_c_line(w, "}");
  snprintf(from, sizeof from, "q%d[c]", n);
  print_chain(w, n, 'v', from);
  loop_c_line(w, "}");
  snprintf(from, sizeof from, "v%d[c]", n);
  loop_expr_store((hp_dtype)s->type, from, &value);
  if (str_status(&value)) w->out->failed = true;
  else if (!loop_c_has_step(&w->p->store[n].path))
    loop_c_line(w, "IVDEP for (int64_t c = 0; c < w; c++) o%d[c] = %s;", n, value.at);
  else loop_c_line(w, "IVDEP for (int64_t c = 0; c < w; c++) o%d[c * xo%d] = %s;", n, n, value.at);
  str_free(&value);
}

void loop_c_print_folded(loop_c_printer *w) {
  loop_c_line(w, "const int64_t blocks = (p[2] + %d) / %d;", PLAN_COL_BLOCK - 1, PLAN_COL_BLOCK);
  loop_c_line(w, "const int64_t numbers = blocks * p[0];");
  loop_c_line(w, "if (phase == 1) {");
  loop_c_line(w, "const int64_t last = to * %d < p[0] ? to * %d : p[0];", PLAN_COLS, PLAN_COLS);
  loop_c_line(w, "for (int64_t first = from * %d; first < last; first += %d) {", PLAN_COLS, COLS);
  loop_c_line(w, "const int64_t w = last - first < %d ? last - first : %d;", COLS, COLS);
  loop_c_line(w, "int64_t t = 0, u = 0;"); /* a fold does not vary over the outer dims */
  loop_c_print_outer(w);
  loop_c_print_paths(w, "first");
  EACH_FOLD(w, n) print_columns(w, n);
  loop_c_line(w, "}");
  loop_c_line(w, "return;");
  loop_c_line(w, "}");
  loop_c_line(w, "from *= %d;", PLAN_COL_BLOCK);
  loop_c_line(w, "to = to * %d < p[2] ? to * %d : p[2];", PLAN_COL_BLOCK, PLAN_COL_BLOCK);
}

void loop_c_print_chains(loop_c_printer *w) {
  char block[40];
  snprintf(block, sizeof block, "u0 / %d * p[0]", PLAN_COL_BLOCK);
  EACH_FOLD(w, n) print_numbers(w, 'f', n, block);
  loop_c_line(w, "if (u0 %% %d == 0) {", PLAN_COL_BLOCK);
  EACH_FOLD(w, n) print_fill(w, 'f', n, "p[0]");
  loop_c_line(w, "}");
}
