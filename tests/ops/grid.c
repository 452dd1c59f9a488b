#include "ops/grid.h"

#include "base/dtype.h"
#include "ir/scan.h"
#include "pass/autodiff.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* --- the table ----------------------------------------------------------------------------- */

enum {
  S = 1 << HP_F32,
  F = S | 1 << HP_BF16 | 1 << HP_F16,
  W = 1 << HP_I32 | 1 << HP_I64 | 1 << HP_U8,
  N = F | W,
  B = 1 << HP_BOOL,
  A = N | B
};

const grid_row grid_rows[OP_COUNT] = {
#define GRID(id, types, gradient, low, high, cases)                                                \
  [OP_##id] = {OP_##id, types, GRID_##gradient, low, high, cases},
#include "ops/grid.def"
#undef GRID
};

/* Every row of the op table needs one here: a name that is not declared below is such a row. */
enum {
#define GRID(id, ...) IN_THE_GRID_##id,
#include "ops/grid.def"
#undef GRID
#define OP(id, ...) CHECKED_##id = IN_THE_GRID_##id,
#include "ir/ops.def"
#undef OP
};

/* --- one case --------------------------------------------------------------------------------- */

enum { LINE_MAX_ = 512 };

/* The case with the dtype in T's place, and $ replaced by its number (names must differ). */
static void substitute(const char *line, hp_dtype t, int number, char out[LINE_MAX_]) {
  size_t n = 0;
  for (const char *c = line; *c && *c != '\n'; c++) {
    bool alone = (c == line || strchr(" =", c[-1])) && strchr("[],}", c[1]);
    HP_ASSERT(n + 16 < LINE_MAX_);
    if (*c == 'T' && alone) n += (size_t)sprintf(out + n, "%s", dtype_name(t));
    else if (*c == '$') n += (size_t)sprintf(out + n, "%d", number);
    else out[n++] = *c;
  }
  out[n] = 0;
}

static grid_leaf *add_leaf(grid_graph *x, const grid_row *row, val v) {
  HP_ASSERT(x->leaves < GRID_LEAVES);
  grid_leaf *l = &x->leaf[x->leaves++];
  const ir_node *n = graph_def(x->g, v);
  hp_dtype t = (hp_dtype)graph_value(x->g, v)->dtype;
  *l = (grid_leaf){.v = v, .name = attr_str(x->g, n, "name"), .low = row->low, .high = row->high};
  if (t == HP_BOOL) l->low = 0, l->high = 2;
  return l;
}

/* "f32[2,3]", then "=a..b" and "!" where they stand. */
static val operand(grid_graph *x, const grid_row *row, scanner *s, int k) {
  ir_value t = {0};
  char name[32];
  HP_ASSERT(!scan_type(s, &t));
  snprintf(name, sizeof name, "%c%d.%d", k ? 'x' : 'p', x->cases, k);
  val v = ops_leaf(x->g, k ? OP_INPUT : OP_PARAM, name, (hp_dtype)t.dtype, t.dim, t.rank);
  HP_ASSERT(v);
  grid_leaf *l = add_leaf(x, row, v);
  if (scan_peek(s) == '=') {
    int64_t low, high;
    HP_ASSERT(scan_accept(s, '=') && !scan_integer(s, &low));
    HP_ASSERT(scan_accept(s, '.') && scan_accept(s, '.') && !scan_integer(s, &high));
    l->low = (double)low, l->high = (double)high;
    l->whole = l->no_gradient = true;
  }
  if (scan_peek(s) == '!') l->no_gradient = scan_accept(s, '!');
  return v;
}

static attr_record record_of(const hp_graph *g, uint32_t attr) {
  attr_record a = {0};
  size_t bytes = 0;
  const void *words = attr ? intern_get(&g->pool->attrs, attr, &bytes) : NULL;
  if (bytes) memcpy(a.word, words, bytes);
  a.n = (int)(bytes / sizeof a.word[0]);
  return a;
}

void grid_add_case(grid_graph *x, const grid_row *row, const char *line, hp_dtype t, bool outputs,
                   val *out) {
  char text[LINE_MAX_], name[32];
  val in[16];
  int n = 0;
  uint32_t attr;
  substitute(line + (*line == '~'), t, x->cases, text);
  scanner s = scan_begin(text, strlen(text), op_table[row->op].name);
  HP_ASSERT(scan_next_line(&s));
  for (scan_blanks(&s); scan_is_word(scan_peek(&s)); scan_blanks(&s))
    in[n] = operand(x, row, &s, n), n++;
  if (scan_attributes(&s, x->g, (op_id)row->op, &attr) || scan_end_of_line(&s))
    err_bug(__FILE__, __LINE__, err_message());
  scan_free(&s);
  attr_record a = record_of(x->g, attr);
  val v = ops_add(x->g, row->op, in, n, &a);
  if (graph_status(x->g)) err_bug(__FILE__, __LINE__, err_message());
  int results = v ? graph_def(x->g, v)->n_out : 0;
  if (row->op == OP_INPUT || row->op == OP_PARAM) add_leaf(x, row, v);
  for (int k = 0; outputs && k < results; k++) {
    snprintf(name, sizeof name, "o%d.%d", x->cases, k);
    ops_output(x->g, name, v + (val)k);
  }
  *out = v;
  x->cases++;
}

val grid_loss(grid_graph *x, val y) {
  static const grid_row weights = {.low = -1, .high = 1};
  char name[32];
  if (ops_tier(x->g, y) != TIER_DEVICE) y = ops_fetch(x->g, y);
  ir_value t = *graph_value(x->g, y);
  int64_t axes[HP_MAX_RANK] = {0, 1, 2, 3, 4, 5};
  snprintf(name, sizeof name, "w%d", x->cases);
  val w = ops_leaf(x->g, OP_INPUT, name, HP_F32, t.dim, t.rank);
  add_leaf(x, &weights, w)->no_gradient = true;
  val wy = ops_binary(x->g, OP_MUL, w, ops_cast(x->g, y, HP_F32));
  return ops_sum(x->g, wy, axes, t.rank, false);
}

int grid_wrt(const grid_graph *x, int first, val wrt[8]) {
  int n = 0;
  for (int i = first; i < x->leaves && n < 8; i++)
    if (!x->leaf[i].no_gradient && dtype_is_float(graph_value(x->g, x->leaf[i].v)->dtype))
      wrt[n++] = x->leaf[i].v;
  return n;
}

/* --- all cases -------------------------------------------------------------------------------- */

static void add_gradients(grid_graph *x, int first_leaf, val y) {
  val wrt[8], grad[8];
  char name[32];
  int n = grid_wrt(x, first_leaf, wrt);
  if (!n || !dtype_is_float(graph_value(x->g, y)->dtype)) return;
  val loss = grid_loss(x, y);
  if (pass_autodiff(x->g, loss, wrt, n, grad)) err_bug(__FILE__, __LINE__, err_message());
  for (int k = 0; k < n; k++) {
    snprintf(name, sizeof name, "g%d.%d", x->cases, k);
    ops_output(x->g, name, grad[k]);
  }
}

static const char *next_line(const char *line) {
  const char *end = strchr(line, '\n');
  return end ? end + 1 : line + strlen(line);
}

void grid_each_case(const grid_row *row, void (*f)(const grid_row *row, const char *line)) {
  for (const char *line = row->cases; *line; line = next_line(line)) f(row, line);
}

void grid_graph_make(const grid_row *row, bool few, grid_graph *x) {
  *x = (grid_graph){0};
  HP_ASSERT(!graph_create(NULL, &x->g));
  for (int t = 0; t < HP_DTYPE_COUNT; t++)
    for (const char *line = row->cases; *line && row->types >> t & 1; line = next_line(line)) {
      int first = x->leaves;
      val y;
      if (few && *line == '~') continue;
      grid_add_case(x, row, line, (hp_dtype)t, true, &y);
      if (row->gradient == GRID_OF) add_gradients(x, first, y);
    }
}

void grid_graph_free(grid_graph *x) { graph_free(x->g); }

void grid_leaf_fill(const grid_graph *x, const grid_leaf *l, rng *r, void *bytes) {
  const ir_value *t = graph_value(x->g, l->v);
  hp_dtype type = (hp_dtype)t->dtype;
  size_t size = dtype_size(type);
  for (int64_t k = 0; k < value_elements(t); k++) {
    double u = l->low + (l->high - l->low) * rng_unit(r);
    int64_t i = (int64_t)floor(u);
    float f = (float)(l->whole ? floor(u) : u);
    char *to = (char *)bytes + (size_t)k * size;
    if (dtype_is_float(type)) HP_ASSERT(!dtype_convert(type, to, HP_F32, &f, 1));
    else memcpy(to, &i, size);
  }
}
