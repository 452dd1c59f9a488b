/* The op grid: every row of the op table against its float64 reference, its gradient against finite
 * differences, compiled against interpreted, on every instruction set, for the cases of grid.def.
 */
#include "base/dtype.h"
#include "ops/grid.h"
#include "pass/autodiff.h"
#include "pass/pass.h"
#include "test.h"

#include <math.h>
#include <stdlib.h>

/* --- the program against the reference ------------------------------------------------------- */

typedef struct {
  const char *isa; /* NULL: the best */
  int threads;
  bool interpret;
} setting;

typedef struct {
  grid_graph x;
  void *in[GRID_LEAVES]; /* bytes by leaf */
  ref_run ref;
} trial;

static size_t bytes_of(const hp_graph *g, val v) { return (size_t)value_bytes(graph_value(g, v)); }
static void *room(size_t n) {
  void *p = calloc(n + 1, 1);
  HP_ASSERT(p);
  return p;
}

static void trial_begin(trial *t, const grid_row *row, bool few) {
  rng r = {.seed = 77 + (uint64_t)row->op};
  grid_graph_make(row, few, &t->x);
  CHECK_OK(ops_verify(t->x.g));
  ref_begin(&t->ref, t->x.g, false);
  for (int i = 0; i < t->x.leaves; i++) {
    t->in[i] = room(bytes_of(t->x.g, t->x.leaf[i].v));
    grid_leaf_fill(&t->x, &t->x.leaf[i], &r, t->in[i]);
    ref_set(&t->ref, t->x.leaf[i].v, t->in[i]);
  }
  ref_eval(&t->ref);
}

static void trial_end(trial *t) {
  for (int i = 0; i < t->x.leaves; i++) free(t->in[i]);
  ref_end(&t->ref);
  grid_graph_free(&t->x);
}

static bool is_param(const trial *t, int leaf) {
  return graph_def(t->x.g, t->x.leaf[leaf].v)->op == OP_PARAM;
}

/* The value that a param has after a run. */
static val becomes(const hp_graph *g, val param) {
  for (size_t i = 0; i < g->nodes.len; i++) {
    const ir_node *n = graph_node(g, (uint32_t)i);
    if (n->op == OP_ASSIGN && graph_in(g, n)[0] == param) return graph_in(g, n)[1];
  }
  return param;
}

typedef struct {
  hp_io io[4 * GRID_LEAVES];
  val v[4 * GRID_LEAVES]; /* 0: an input */
  int n;
} results;

/* Compiles and runs; every output and every param is in *out, in the order of the graph. */
static void run(trial *t, const setting *s, results *out) {
  hp_device_options o = {.threads = s->threads, .interpret = s->interpret, .engine = "packed"};
  hp_compile_options none = {0};
  hp_device *d;
  hp_program *p;
  hp_graph *g = t->x.g;
  if (s->isa) setenv("HYPER_ISA", s->isa, 1);
  else unsetenv("HYPER_ISA");
  CHECK_OK(hp_device_open(&o, &d));
  out->n = 0;
  for (int i = 0; i < t->x.leaves; i++) {
    const grid_leaf *l = &t->x.leaf[i];
    size_t n = bytes_of(g, l->v);
    if (is_param(t, i)) {
      CHECK_OK(hp_param_create(d, l->name, hp_dtype_of(g, l->v), hp_shape_of(g, l->v)));
      CHECK_OK(hp_write(d, l->name, t->in[i], n));
    } else {
      out->v[out->n] = 0;
      out->io[out->n++] = (hp_io){l->name, t->in[i], n};
    }
  }
  for (size_t i = 0; i < g->nodes.len; i++) {
    const ir_node *n = graph_node(g, (uint32_t)i);
    if (n->op != OP_OUTPUT) continue;
    val v = graph_in(g, n)[0];
    out->v[out->n] = v;
    out->io[out->n++] = (hp_io){attr_str(g, n, "name"), room(bytes_of(g, v)), bytes_of(g, v)};
  }
  CHECK_OK(hp_compile(g, d, &none, &p));
  CHECK_OK(hp_run(p, out->io, out->n));
  for (int i = 0; i < t->x.leaves; i++) {
    const grid_leaf *l = &t->x.leaf[i];
    if (!is_param(t, i)) continue;
    hp_io *io = &out->io[out->n];
    *io = (hp_io){l->name, room(bytes_of(g, l->v)), bytes_of(g, l->v)};
    CHECK_OK(hp_read(d, l->name, io->data, io->bytes));
    out->v[out->n++] = becomes(g, l->v);
  }
  hp_program_free(p);
  hp_device_close(d);
}

static void results_free(results *r) {
  for (int i = 0; i < r->n; i++)
    if (r->v[i]) free(r->io[i].data);
}

static void check_reference(const trial *t, const results *r) {
  int64_t unknown = 0, all = 0;
  char why[200];
  for (int i = 0; i < r->n; i++) {
    if (!r->v[i]) continue;
    all += t->ref.value[r->v[i]].n;
    if (ref_compare(&t->ref, r->v[i], r->io[i].data, &unknown, why))
      test_fail(__FILE__, __LINE__, "%s: %s", r->io[i].name, why);
  }
  if (unknown * 10 > all)
    test_fail(__FILE__, __LINE__, "%lld of %lld elements have no reference", (long long)unknown,
              (long long)all);
}

static bool same_numbers(hp_dtype type, const void *a, const void *b, size_t bytes) {
  if (!memcmp(a, b, bytes)) return true;
  if (!dtype_is_float(type)) return false;
  for (size_t k = 0; k < bytes / dtype_size(type); k++) { /* the payload of a NaN is free */
    float u, v;
    const char *pa = (const char *)a + k * dtype_size(type),
               *pb = (const char *)b + k * dtype_size(type);
    HP_ASSERT(!dtype_convert(HP_F32, &u, type, pa, 1) && !dtype_convert(HP_F32, &v, type, pb, 1));
    if (memcmp(&u, &v, 4) && !(isnan(u) && isnan(v))) return false;
  }
  return true;
}

static void check_same(const trial *t, const results *a, const results *b, const char *who) {
  CHECK_EQ(a->n, b->n);
  for (int i = 0; i < a->n; i++) {
    if (!a->v[i]) continue;
    hp_dtype type = hp_dtype_of(t->x.g, a->v[i]);
    if (!same_numbers(type, a->io[i].data, b->io[i].data, a->io[i].bytes))
      test_fail(__FILE__, __LINE__, "%s (%s): %s gives other bits than the interpreter",
                a->io[i].name, dtype_name(type), who);
  }
}

typedef struct {
  const char *who;
  setting s;
} other_run;

/* The interpreter against the reference, and all others against the interpreter. */
static void check_runs(const grid_row *row, bool few, const other_run *others, size_t n) {
  trial t;
  results *first = room(sizeof *first), *other = room(sizeof *other);
  trial_begin(&t, row, few);
  run(&t, &(setting){NULL, 1, true}, first);
  check_reference(&t, first);
  for (size_t i = 0; i < n; i++) {
    run(&t, &others[i].s, other);
    check_same(&t, first, other, others[i].who);
    results_free(other);
  }
  results_free(first);
  free(first);
  free(other);
  trial_end(&t);
}

static grid_row of_types(const grid_row *row, unsigned types) {
  grid_row r = *row;
  r.types &= types;
  return r;
}

/* Kernels that are built with the library, of every instruction set; those of loops are
 * interpreted. */
static void check_library(const grid_row *row) {
  static const other_run others[] = {{"AVX2", {"avx2", 1, true}},
                                     {"plain C", {"plain", 1, true}},
                                     {"two threads", {NULL, 2, true}}},
                         no_dot = {"AVX-512 without bf16", {"avx512", 1, true}};
  grid_row bf16 = of_types(row, 1u << HP_BF16);
  check_runs(row, false, others, sizeof others / sizeof *others);
  if (bf16.types) check_runs(&bf16, false, &no_dot, 1);
}

/* Compiled loops.  A compiler takes most of the grid's time: every dtype is compiled for this
 * machine's best instruction set, and f32 for AVX2, whose C text is another one.  What a function
 * of an element becomes on every instruction set is checked in test_jit_run.c, and all of it by
 * check_all_compiled. */
static void check_compiled(const grid_row *row) {
  static const other_run best = {"compiled code", {NULL, 1, false}},
                         avx2 = {"compiled code for AVX2", {"avx2", 1, false}};
  grid_row f32 = of_types(row, 1u << HP_F32);
  check_runs(row, true, &best, 1);
  if (f32.types) check_runs(&f32, true, &avx2, 1);
}

/* AVX-512 without bf16 instructions is another code for bf16 alone: the rest is compiled once. */
static void check_all_compiled(const grid_row *row) {
  static const other_run others[] = {{"compiled code", {NULL, 1, false}},
                                     {"compiled code for AVX2", {"avx2", 1, false}},
                                     {"compiled code in plain C", {"plain", 1, false}}},
                         no_dot = {"compiled code for AVX-512 without bf16", {"avx512", 1, false}};
  grid_row bf16 = of_types(row, 1u << HP_BF16);
  check_runs(row, false, others, sizeof others / sizeof *others);
  if (bf16.types) check_runs(&bf16, false, &no_dot, 1);
}

/* --- gradients against finite differences ----------------------------------------------------- */

static double loss_at(ref_run *r, val loss, double *element, double x) {
  *element = x;
  ref_again(r);
  ref_eval(r);
  return r->value[loss].f[0];
}

/* The row of an embedding's table that gets no gradient, whatever the loss does with it. */
static bool is_skipped(const ref_run *r, val leaf, int64_t k) {
  use_lists uses;
  bool skipped = false;
  CHECK_OK(use_lists_build(r->g, &uses));
  for (uint32_t i = uses.use0[leaf]; i < uses.use0[leaf + 1]; i++) {
    const ir_node *n = graph_node(r->g, uses.use[i]);
    if (n->op != OP_EMBEDDING) continue;
    skipped = k / r->value[leaf].dim[1] == attr_int(r->g, n, "skip");
  }
  use_lists_free(&uses);
  return skipped;
}

/* Some elements of a leaf: all of a small one. */
static void check_leaf(ref_run *r, val loss, val leaf, const double *grad, rng *random) {
  int64_t n = r->value[leaf].n, some = n < 24 ? n : 24;
  for (int64_t i = 0; i < some; i++) {
    int64_t k = some == n ? i : rng_below(random, (int)n);
    double *at = &r->value[leaf].f[k], x = *at, h = 1e-5 * (1 + fabs(x));
    double up = loss_at(r, loss, at, x + h), down = loss_at(r, loss, at, x - h);
    double want = is_skipped(r, leaf, k) ? 0 : (up - down) / (2 * h);
    *at = x;
    if (!(fabs(grad[k] - want) <= 1e-6 * (1 + fabs(want)) + 1e-15 * fabs(up) / h))
      test_fail(__FILE__, __LINE__, "d loss / d %%%u[%lld] is %.9g, by differences %.9g", leaf,
                (long long)k, grad[k], want);
  }
}

static void check_difference(const grid_row *row, const char *line) {
  grid_graph x = {0};
  rng random = {.seed = 99 + (uint64_t)row->op};
  ref_run r;
  val y, wrt[8], grad[8];
  CHECK_OK(graph_create(NULL, &x.g));
  grid_add_case(&x, row, line, HP_F32, false, &y);
  int n = grid_wrt(&x, 0, wrt);
  if (n && dtype_is_float(graph_value(x.g, y)->dtype)) {
    val loss = grid_loss(&x, y);
    CHECK_OK(pass_autodiff(x.g, loss, wrt, n, grad));
    ref_begin(&r, x.g, true);
    for (int i = 0; i < x.leaves; i++) {
      void *bytes = room(bytes_of(x.g, x.leaf[i].v));
      grid_leaf_fill(&x, &x.leaf[i], &random, bytes);
      ref_set(&r, x.leaf[i].v, bytes);
      free(bytes);
    }
    ref_eval(&r);
    double *kept[8];
    for (int k = 0; k < n; k++) {
      size_t count = (size_t)r.value[grad[k]].n;
      kept[k] = room(count * sizeof *kept[k]);
      memcpy(kept[k], r.value[grad[k]].f, count * sizeof *kept[k]);
    }
    for (int k = 0; k < n; k++) {
      check_leaf(&r, loss, wrt[k], kept[k], &random);
      free(kept[k]);
    }
    ref_end(&r);
  }
  graph_free(x.g);
}

static void check_refusal(const grid_row *row, const char *line) {
  grid_graph x = {0};
  val y, wrt[8], grad[8];
  CHECK_OK(graph_create(NULL, &x.g));
  grid_add_case(&x, row, line, HP_F32, false, &y);
  int n = grid_wrt(&x, 0, wrt);
  CHECK(n > 0);
  CHECK_FAILS(pass_autodiff(x.g, grid_loss(&x, y), wrt, n, grad), op_table[row->op].name);
  graph_free(x.g);
}

/* --- one test a row, and a longer one ----------------------------------------------------------
 */

static void check_row(const grid_row *row) {
  if (row->gradient == GRID_OF) grid_each_case(row, check_difference);
  if (row->gradient == GRID_REFUSED) grid_each_case(row, check_refusal);
  if (!*row->cases) return;
  check_library(row);
  check_compiled(row);
}

#define OP(id, name, ...)                                                                          \
  static void test_row_##id(void) { check_row(&grid_rows[OP_##id]); }                              \
  static void torture_row_##id(void) {                                                             \
    if (*grid_rows[OP_##id].cases) check_all_compiled(&grid_rows[OP_##id]);                        \
  }                                                                                                \
  __attribute__((constructor)) static void register_row_##id(void) {                               \
    test_register(__FILE__, "row_" name, test_row_##id);                                           \
    test_register(__FILE__, "torture_row_" name, torture_row_##id);                                \
  }
#include "ir/ops.def"
#undef OP
