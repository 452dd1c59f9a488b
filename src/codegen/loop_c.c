/* Shape of what is printed (docs/internals/codegen.md has a whole kernel):
 *   - element loops are plain loops over contiguous or strided elements that the compiler turns
 *     into vector code; `IVDEP` tells it that elements do not depend on each other (an output that
 *     is also an input has the same access, so an element only meets itself);
 *   - maps and rows go in chunks that stay in L1.  A chunk is several short loops over arrays zN:
 *     elements of 16 bits are widened, random numbers drawn, each dear value (an exp) has a loop of
 *     its own, and what is to be stored is narrowed.  Every loop then works on lanes of 32 bits,
 * and its dependences are short enough that the processor overlaps many elements;
 *   - results that go past the caches are streamed: their chunk is computed aside and copied;
 *   - a row reduction pads the array of its argument to whole lanes with the identity and joins it
 *     to 64 lanes: the element expression vectorises whatever it is;
 *   - what is dear (an exp) and needed again in a later loop over the same row is kept on the stack
 *     for the first elements of the row, and computed again for the others and with folds;
 *   - a column reduction keeps one chain per column in an array that a vector loop updates.
 * Names: vN value, aN and oN address of the access of value or store N, xN its inner stride. */
#include "codegen/loop_c_print.h"

#include "base/dtype.h"
#include "codegen/loop_expr.h"

#include <stdio.h>
#include <string.h>

enum { ROWS_AHEAD = 3, COLS_MOST = 1024, COLS_LEAST = 256, COLS_BYTES = 32768 };
enum { STRIP = 2 * LOOP_C_CHUNK }; /* columns for which a group of rows stays */

/* --- reductions ----------------------------------------------------------------------------- */

/* Values that are known once `stage` reductions are done and that vary with exactly `varies`. */
static bool is_due(const loop_c_printer *w, int n, int stage, int varies) {
  const plan_value *v = &w->p->value[n];
  return v->v.what != LOOP_REDUCE && v->stage == stage && v->varies == varies;
}

/* What is known before the loops of the next stage. */
static void print_known(loop_c_printer *w, int stage) {
  const loop_plan *p = w->p;
  bool columns = false;
  for (int i = 0; i < p->values; i++) {
    if (is_due(w, i, stage, 0)) loop_c_print_value(w, i);
    if (p->kind != LOOP_COL || !is_due(w, i, stage, VARY_INNER)) continue;
    loop_c_line(w, "%s v%d[COLS];", loop_c_type(&p->value[i]), i);
    columns = true;
  }
  if (!columns) return;
  loop_c_line(w, "IVDEP for (int64_t c = 0; c < w; c++) {");
  for (int i = 0; i < p->values; i++)
    if (is_due(w, i, stage, VARY_INNER)) loop_c_print_value(w, i);
  loop_c_line(w, "}");
}

/* Elements s0 .. s1 of a row into qN: a chain of blocks of lanes. */
static void print_row_segment(loop_c_printer *w, int stage) {
  EACH_REDUCTION(w, n, stage)
  loop_c_line(w, "%s q%d = %s;", loop_c_type(&w->p->value[n]), n, loop_c_identity(&w->p->value[n]));
  loop_c_line(w, "for (int64_t b = s0; b < s1; b += %d) {", PLAN_ROW_BLOCK);
  loop_c_line(w, "const int64_t e = s1 - b < %d ? s1 : b + %d;", PLAN_ROW_BLOCK, PLAN_ROW_BLOCK);
  EACH_REDUCTION(w, n, stage) {
    loop_c_line(w, "%s l%d[%d];", loop_c_type(&w->p->value[n]), n, PLAN_LANES);
    loop_c_line(w, "for (int i = 0; i < %d; i++) l%d[i] = %s;", PLAN_LANES, n,
                loop_c_identity(&w->p->value[n]));
  }
  loop_c_print_chunks(w, stage, "b", "e");
  EACH_REDUCTION(w, n, stage) {
    char a[24], b[24];
    snprintf(a, sizeof a, "q%d", n);
    snprintf(b, sizeof b, "r%d", n);
    loop_c_line(w, "const %s %s = hp_lanes_%s(l%d);", loop_c_type(&w->p->value[n]), b,
                loop_c_lanes_name(w, n).at, n);
    loop_c_print_join(w, n, a, b);
  }
  loop_c_line(w, "}");
}

/* Runs of a row lie too far apart for the processor to see them coming. */
static void print_rows_ahead(loop_c_printer *w, const bool *need) {
  for (int n = 0; n < w->p->values; n++) {
    const plan_value *v = &w->p->value[n];
    if (need[n] && v->v.what == LOOP_IN && v->path.inner == 1 && v->path.reduced)
      loop_c_line(w, "hp_fetch(a%d + (i + %d) * ya%d, w * (int64_t)sizeof *a%d);", n, ROWS_AHEAD, n,
                  n);
  }
}

/* Rows s0 .. s1 of the columns into qN[]: chains of blocks of rows. */
static void print_col_segment(loop_c_printer *w, int stage) {
  bool need[LOOP_VALUES_MAX];
  loop_c_need_stage(w, stage, need);
  EACH_REDUCTION(w, n, stage) {
    const plan_value *v = &w->p->value[n];
    loop_c_line(w, "%s q%d[COLS], l%d[COLS];", loop_c_type(v), n, n);
    loop_c_line(w, "for (int64_t c = 0; c < w; c++) q%d[c] = %s;", n, loop_c_identity(v));
  }
  loop_c_line(w, "for (int64_t b = s0; b < s1; b += %d) {", PLAN_COL_BLOCK);
  loop_c_line(w, "const int64_t e = s1 - b < %d ? s1 : b + %d;", PLAN_COL_BLOCK, PLAN_COL_BLOCK);
  EACH_REDUCTION(w, n, stage)
  loop_c_line(w, "for (int64_t c = 0; c < w; c++) l%d[c] = %s;", n,
              loop_c_identity(&w->p->value[n]));
  loop_c_line(w, "for (int64_t i = b; i < e; i++) {");
  print_rows_ahead(w, need);
  loop_c_print_needed(w, need, VARY_REDUCED);
  loop_c_line(w, "IVDEP for (int64_t c = 0; c < w; c++) {");
  loop_c_print_needed(w, need, VARY_INNER | VARY_REDUCED);
  EACH_REDUCTION(w, n, stage) {
    char a[24];
    snprintf(a, sizeof a, "l%d[c]", n);
    loop_c_print_join(w, n, a, loop_c_value_name(w, w->p->value[n].v.arg[0]).at);
  }
  loop_c_line(w, "}");
  loop_c_line(w, "}");
  EACH_REDUCTION(w, n, stage) {
    char a[24], b[24];
    snprintf(a, sizeof a, "q%d[c]", n);
    snprintf(b, sizeof b, "l%d[c]", n);
    loop_c_line(w, "IVDEP for (int64_t c = 0; c < w; c++) {");
    loop_c_print_join(w, n, a, b);
    loop_c_line(w, "}");
  }
  loop_c_line(w, "}");
}

static void print_segment(loop_c_printer *w, int stage) {
  if (w->p->kind == LOOP_ROW) print_row_segment(w, stage);
  else print_col_segment(w, stage);
}

/* vN = join(vN, b), for every column of a column kernel. */
static void print_chain(loop_c_printer *w, int n, const char *b) {
  char a[24];
  bool col = w->p->kind == LOOP_COL;
  snprintf(a, sizeof a, col ? "v%d[c]" : "v%d", n);
  if (col) loop_c_line(w, "IVDEP for (int64_t c = 0; c < w; c++) {");
  loop_c_print_join(w, n, a, b);
  if (col) loop_c_line(w, "}");
}

static void print_start(loop_c_printer *w, int n) {
  const plan_value *v = &w->p->value[n];
  if (w->p->kind == LOOP_ROW) {
    loop_c_line(w, "%s v%d = %s;", loop_c_type(v), n, loop_c_identity(v));
    return;
  }
  loop_c_line(w, "%s v%d[COLS];", loop_c_type(v), n);
  loop_c_line(w, "for (int64_t c = 0; c < w; c++) v%d[c] = %s;", n, loop_c_identity(v));
}

/* The reductions of a stage, whole, in one part: segment after segment. */
static void print_reduce(loop_c_printer *w, int stage) {
  EACH_REDUCTION(w, n, stage) print_start(w, n);
  loop_c_line(w, "for (int64_t s0 = 0; s0 < p[1]; s0 += SEGMENT) {");
  loop_c_line(w, "const int64_t s1 = p[1] - s0 < SEGMENT ? p[1] : s0 + SEGMENT;");
  print_segment(w, stage);
  EACH_REDUCTION(w, n, stage) {
    char b[24];
    snprintf(b, sizeof b, w->p->kind == LOOP_COL ? "q%d[c]" : "q%d", n);
    print_chain(w, n, b);
  }
  loop_c_line(w, "}");
}

/* The same over parts that are segments: phase stage - 1 leaves qN in the scratch memory, later
 * phases chain what lies there.  A part has a number, or one a column. */
static void print_reduce_split(loop_c_printer *w, int stage) {
  bool col = w->p->kind == LOOP_COL;
  int k = 0;
  for (int n = 0; n < w->p->values; n++)
    k += w->p->value[n].v.what == LOOP_REDUCE && w->p->value[n].stage < stage;
  loop_c_line(w, "if (phase == %d) {", stage - 1);
  print_segment(w, stage);
  int at = k;
  EACH_REDUCTION(w, n, stage) {
    char to[24];
    snprintf(to, sizeof to, "z%d", n);
    loop_c_print_scratch(w, to, loop_c_type(&w->p->value[n]), at++, "u * WIDTH");
    if (col) loop_c_line(w, "for (int64_t c = 0; c < w; c++) z%d[c] = q%d[c];", n, n);
    else loop_c_line(w, "*z%d = q%d;", n, n);
  }
  loop_c_line(w, "continue;");
  loop_c_line(w, "}");
  EACH_REDUCTION(w, n, stage) {
    print_start(w, n);
    loop_c_line(w, "for (int64_t h = 0; h < segments; h++) {");
    loop_c_print_scratch(w, "z", loop_c_type(&w->p->value[n]), k++,
                         "((s / segments * segments + h) * blocks + u % blocks) * WIDTH");
    print_chain(w, n, col ? "z[c]" : "z[0]");
    loop_c_line(w, "}");
  }
}

/* --- kernels -------------------------------------------------------------------------------- */

/* The loop that stores elements, after all reductions: an output that is an input of the kernel is
 * overwritten only when nothing reads it any more. */
static void print_final(loop_c_printer *w) {
  const loop_plan *p = w->p;
  bool need[LOOP_VALUES_MAX], any = false;
  for (int i = 0; i < p->stores; i++) any |= loop_c_is_element_store(w, i);
  if (!any) return;
  if (p->kind != LOOP_COL) {
    loop_c_print_chunks(w, p->stages + 1, "s0", "s1");
    return;
  }
  loop_c_need_stage(w, p->stages + 1, need);
  loop_c_line(w, "for (int64_t i = s0; i < s1; i++) {");
  loop_c_print_needed(w, need, VARY_REDUCED);
  loop_c_line(w, "IVDEP for (int64_t c = 0; c < w; c++) {");
  loop_c_print_needed(w, need, VARY_INNER | VARY_REDUCED);
  for (int i = 0; i < p->stores; i++)
    if (loop_c_is_element_store(w, i)) loop_c_print_store(w, i);
  loop_c_line(w, "}");
  loop_c_line(w, "}");
}

/* Stores of what is one per row or column, last, for the same reason. */
static void print_scalar_stores(loop_c_printer *w) {
  const loop_plan *p = w->p;
  bool any = false;
  for (int i = 0; i < p->stores; i++) any |= !loop_c_is_element_store(w, i);
  if (!any) return;
  /* a phase of its own: parts of the same row still read what this may overwrite */
  if (p->split) loop_c_line(w, "if (phase == %d && s %% segments == 0) {", p->stages + 1);
  if (p->kind == LOOP_COL) loop_c_line(w, "IVDEP for (int64_t c = 0; c < w; c++) {");
  for (int i = 0; i < p->stores; i++)
    if (!loop_c_is_element_store(w, i)) loop_c_print_store(w, i);
  if (p->kind == LOOP_COL) loop_c_line(w, "}");
  if (p->split) loop_c_line(w, "}");
}

static void print_map(loop_c_printer *w) {
  loop_c_line(w, "const int64_t blocks = (p[0] + %d) / %d;", PLAN_MAP_BLOCK - 1, PLAN_MAP_BLOCK);
  loop_c_line(w, "for (int64_t u = from; u < to; u++) {");
  loop_c_line(w, "const int64_t first = u %% blocks * %d;", PLAN_MAP_BLOCK);
  loop_c_line(w, "const int64_t s0 = 0, s1 = p[0] - first < %d ? p[0] - first : %d;",
              PLAN_MAP_BLOCK, PLAN_MAP_BLOCK);
  loop_c_line(w, "int64_t t = u / blocks;");
  loop_c_print_outer(w);
  loop_c_print_paths(w, "first");
  print_known(w, 0);
  print_final(w);
  print_scalar_stores(w); /* a map of one element */
  loop_c_line(w, "(void)t;");
  loop_c_line(w, "}");
}

static void print_reductions(loop_c_printer *w) {
  print_known(w, 0);
  for (int stage = 1; stage <= w->p->stages; stage++) {
    if (w->p->split) print_reduce_split(w, stage);
    else print_reduce(w, stage);
    print_known(w, stage);
  }
}

static void print_stages(loop_c_printer *w) {
  const loop_plan *p = w->p;
  print_reductions(w);
  if (!p->split) loop_c_line(w, "const int64_t s0 = 0, s1 = p[1];");
  if (p->split) loop_c_line(w, "if (phase == %d) {", p->stages);
  print_final(w);
  if (p->split) loop_c_line(w, "}");
  print_scalar_stores(w);
  loop_c_line(w, "(void)s0, (void)s1, (void)t;");
}

/* A part u of a split kernel is a segment, s, of a block of columns: first all blocks of one
 * segment, then those of the next.  The sizes that identify them, and those of scratch memory: */
static void print_segments(loop_c_printer *w, int width) {
  loop_c_line(w, "enum { WIDTH = %d };", width);
  loop_c_line(w, "const int64_t segments = (p[1] + SEGMENT - 1) / SEGMENT;");
  loop_c_line(w, "const int64_t numbers = p[2] * segments * blocks * WIDTH;");
  loop_c_line(w, "(void)numbers;");
}

/* The part's segment and its rows or elements. */
static void print_split_bounds(loop_c_printer *w) {
  loop_c_line(w, "const int64_t s = u / blocks;");
  loop_c_line(w, "const int64_t s0 = s %% segments * SEGMENT;");
  loop_c_line(w, "const int64_t s1 = p[1] - s0 < SEGMENT ? p[1] : s0 + SEGMENT;");
}

/* Values of a row that its elements and stores use, once all reductions are done: results of the
 * reductions, and values that are computed again. */
typedef struct {
  bool left[LOOP_VALUES_MAX], again[LOOP_VALUES_MAX];
} row_values;

static void find_used(const loop_c_printer *w, row_values *to) {
  const loop_plan *p = w->p;
  bool need[LOOP_VALUES_MAX], used[LOOP_VALUES_MAX] = {false};
  loop_c_need_stage(w, p->stages + 1, need);
  for (int n = 0; n < p->values; n++)
    for (int k = 0; k < 3 && need[n]; k++)
      if (p->value[n].v.arg[k] >= 0) used[p->value[n].v.arg[k]] = true;
  for (int i = 0; i < p->stores; i++) used[loop_c_stored_value(w, i)] = true;
  for (int n = 0; n < p->values; n++) {
    const bool literal = p->value[n].v.what == LOOP_CONST || p->value[n].v.what == LOOP_INTEGER;
    used[n] &= !p->value[n].varies;
    to->left[n] = used[n] && !literal;
    to->again[n] = used[n] && literal;
  }
}

/* Begins a loop over the rows u of a group. */
static void print_row_of_group(loop_c_printer *w) {
  loop_c_line(w, "for (int64_t u = u0; u < u1; u++) {");
  loop_c_line(w, "int64_t t = u;");
  loop_c_print_outer(w);
  loop_c_print_paths(w, "0");
}

/* The same, with the results of its reductions. */
static void print_row_again(loop_c_printer *w, const row_values *used) {
  print_row_of_group(w);
  for (int n = 0; n < w->p->values; n++) {
    if (used->again[n]) loop_c_print_value(w, n);
    if (used->left[n])
      loop_c_line(w, "const %s v%d = n%d[u - u0];", loop_c_type(&w->p->value[n]), n, n);
  }
}

/* Rows of a kernel with folds: the reductions of a few rows, then ranges of columns, each with
 * the elements of all these rows.  So the chains of a range are in the L1 cache, and are loaded
 * once per group of rows; nN[] holds the results of the reductions of each row. */
static void print_row_groups(loop_c_printer *w) {
  _Static_assert(PLAN_COL_BLOCK % LOOP_C_ROWS == 0, "a group of rows lies in one block");
  row_values used;
  bool any = false;
  find_used(w, &used);
  loop_c_line(w, "for (int64_t u0 = from; u0 < to; u0 += %d) {", LOOP_C_ROWS);
  loop_c_line(w, "const int64_t u1 = to - u0 < %d ? to : u0 + %d;", LOOP_C_ROWS, LOOP_C_ROWS);
  loop_c_print_chains(w);
  for (int n = 0; n < w->p->values; n++)
    if (used.left[n]) loop_c_line(w, "%s n%d[%d];", loop_c_type(&w->p->value[n]), n, LOOP_C_ROWS);
  print_row_of_group(w);
  print_reductions(w);
  for (int n = 0; n < w->p->values; n++)
    if (used.left[n]) loop_c_line(w, "n%d[u - u0] = v%d;", n, n);
  loop_c_line(w, "}");
  loop_c_line(w, "for (int64_t s0 = 0; s0 < p[1]; s0 += %d) {", STRIP);
  loop_c_line(w, "const int64_t s1 = p[1] - s0 < %d ? p[1] : s0 + %d;", STRIP, STRIP);
  print_row_again(w, &used);
  print_final(w);
  loop_c_line(w, "}");
  loop_c_line(w, "}");
  for (int i = 0; i < w->p->stores; i++) any |= !loop_c_is_element_store(w, i);
  if (any) {
    print_row_again(w, &used);
    print_scalar_stores(w);
    loop_c_line(w, "}");
  }
  loop_c_line(w, "}");
}

static void print_row(loop_c_printer *w) {
  bool split = w->p->split;
  loop_c_line(w, "enum { SEGMENT = %d };", PLAN_ROW_SEGMENT);
  if (w->p->folds) {
    loop_c_print_folded(w);
    print_row_groups(w);
    return;
  }
  loop_c_choose_kept(w);
  for (int n = 0; n < w->p->values; n++)
    if (w->kept[n]) loop_c_line(w, "float kept%d[%d];", n, LOOP_C_KEPT);
  if (split) {
    loop_c_line(w, "enum { blocks = 1 };");
    print_segments(w, 1);
  }
  loop_c_line(w, "for (int64_t u = from; u < to; u++) {");
  if (split) print_split_bounds(w);
  loop_c_line(w, split ? "int64_t t = s / segments;" : "int64_t t = u;");
  loop_c_print_outer(w);
  loop_c_print_paths(w, "0");
  print_stages(w);
  loop_c_line(w, "}");
}

/* Columns per step: long runs of memory, while sums and column values fit in the L1 cache. */
static int choose_column_count(const loop_plan *p) {
  int arrays = 2 * p->reductions, columns = COLS_MOST;
  for (int i = 0; i < p->values; i++) arrays += p->value[i].varies == VARY_INNER;
  while (columns > COLS_LEAST && arrays * columns * (int)sizeof(float) > COLS_BYTES) columns /= 2;
  return columns;
}

static void print_col(loop_c_printer *w) {
  bool split = w->p->split;
  loop_c_line(w, "enum { SEGMENT = %d, COLS = %d };", PLAN_COL_SEGMENT, choose_column_count(w->p));
  loop_c_line(w, "const int64_t blocks = (p[0] + %d) / %d;", PLAN_COLS - 1, PLAN_COLS);
  if (split) print_segments(w, PLAN_COLS);
  loop_c_line(w, "for (int64_t u = from, done; u < to; u += done) {");
  if (split) print_split_bounds(w);
  loop_c_line(w, "const int64_t first = u %% blocks * %d;", PLAN_COLS);
  loop_c_line(w, "int64_t w = p[0] - first < COLS ? p[0] - first : COLS;");
  /* several parts with the same position at once: longer runs of memory */
  loop_c_line(w, "w = w < (to - u) * %d ? w : (to - u) * %d;", PLAN_COLS, PLAN_COLS);
  loop_c_line(w, "done = (w + %d) / %d;", PLAN_COLS - 1, PLAN_COLS);
  loop_c_line(w, split ? "int64_t t = s / segments;" : "int64_t t = u / blocks;");
  loop_c_print_outer(w);
  loop_c_print_paths(w, "first");
  print_stages(w);
  loop_c_line(w, "}");
}

void loop_c_print(const loop_plan *p, str *out) {
  loop_c_printer w = {.p = p, .out = out};
  loop_c_line(&w, "(const void *const *in, void *const *out, const int64_t *p, void *scratch, "
                  "int64_t phase, int64_t stream, int64_t from, int64_t to) {");
  loop_c_line(&w, "(void)in, (void)out, (void)scratch, (void)phase, (void)stream;");
  if (p->kind == LOOP_MAP) print_map(&w);
  else if (p->kind == LOOP_ROW) print_row(&w);
  else print_col(&w);
  loop_c_line(&w, "if (stream) hp_streamed();");
  loop_c_line(&w, "}");
}
