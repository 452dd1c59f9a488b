/* Random kernels: any dims, strides, types, ops and stages, on any numbers; compiled code must give
 * the bits of the interpreter. */
#include "loop_case.h"

#include "base/dtype.h"
#include "codegen/loop_expr.h"

#include <stdlib.h>

enum { KERNELS = 16 };

static uint32_t below(uint32_t *seed, uint32_t n) { return loop_case_random(seed) % n; }

/* Strides of a dense tensor with the dims in random order, some broadcast when `some`; in elements
 * of `gap`. */
static void random_strides(uint32_t *seed, const hp_shape *space, int skip, bool some, int64_t gap,
                           int64_t *stride) {
  int order[HP_MAX_RANK];
  int64_t step = gap;
  for (int d = 0; d < space->rank; d++) order[d] = d;
  for (int d = space->rank - 1; d > 0 && below(seed, 2); d--) {
    int other = (int)below(seed, (uint32_t)d + 1), t = order[d];
    order[d] = order[other];
    order[other] = t;
  }
  for (int i = space->rank - 1; i >= 0; i--) {
    int d = order[i];
    stride[d] = step;
    if (d == skip || (some && below(seed, 4) == 0)) stride[d] = 0;
    else step *= space->dim[d] > 0 ? space->dim[d] : 1;
  }
}

static int add_uniform(uint32_t *seed, loop *l) {
  int64_t stride[HP_MAX_RANK];
  int from = loop_int(l, (int64_t)below(seed, 9) << 31);
  random_strides(seed, &l->space, -1, true, 1 + below(seed, 2), stride);
  return loop_uniform(l, from, below(seed, 5), stride,
                      (int64_t)below(seed, 9) << 32 | below(seed, 7));
}

static int add_value(uint32_t *seed, loop *l, const int *have, int n) {
  int a = have[below(seed, (uint32_t)n)], b = have[below(seed, (uint32_t)n)];
  int c = have[below(seed, (uint32_t)n)];
  static const char *const reductions[] = {"sum", "max", "min", "prod", "sum"};
  uint32_t kind = below(seed, 12);
  if (kind == 0) return loop_cast(l, (hp_dtype)below(seed, HP_DTYPE_COUNT), a);
  if (kind == 1) return loop_const(l, (float)below(seed, 9) / 4 - 1);
  if (kind == 2) return loop_iota(l, (int)below(seed, (uint32_t)l->space.rank), below(seed, 7));
  if (kind == 10) return add_uniform(seed, l);
  if (kind == 3 && l->kind != LOOP_MAP) return loop_reduce(l, reductions[below(seed, 5)], a);
  /* an op whose first argument has the class of a; the others are cast to fit */
  for (;;) {
    int row = (int)below(seed, (uint32_t)loop_expr_count());
    const loop_expr *e = loop_expr_row(row);
    if (e->arg[0] != l->value.at[a].cls) continue;
    int arg[3] = {a, b, c};
    for (int i = 1; i < e->n; i++)
      if (l->value.at[arg[i]].cls != e->arg[i])
        arg[i] = loop_cast(l, e->arg[i] == LOOP_FLOAT ? HP_F32 : HP_I64, arg[i]);
    return loop_op(l, e->name, arg[0], e->n > 1 ? arg[1] : -1, e->n > 2 ? arg[2] : -1);
  }
}

static void random_loop(uint32_t seed, loop *l) {
  static const int64_t sizes[] = {1, 2, 3, 5, 16, 1, 2, 4};
  static const int64_t large[] = {1, 258, 4099, 300, 70, 31, 17, 129};
  hp_shape space = {.rank = 1 + (int)below(&seed, 3)};
  for (int d = 0; d < space.rank; d++) space.dim[d] = sizes[below(&seed, 8)];
  space.dim[below(&seed, (uint32_t)space.rank)] = large[below(&seed, 8)];
  loop_begin(l, (loop_kind)below(&seed, 3), &space);
  int64_t stride[HP_MAX_RANK];
  int have[64], n = 0;
  int inputs = 1 + (int)below(&seed, 3);
  for (int i = 0; i < inputs; i++) {
    random_strides(&seed, &space, -1, true, 1 + below(&seed, 2), stride);
    have[n++] = loop_in(l, i, (hp_dtype)below(&seed, HP_DTYPE_COUNT), stride, below(&seed, 3));
  }
  int ops = 3 + (int)below(&seed, 10);
  for (int i = 0; i < ops; i++) {
    have[n] = add_value(&seed, l, have, n);
    n++;
  }
  int reduced = l->kind == LOOP_ROW ? space.rank - 1 : 0;
  for (int i = 0; i < 3; i++) {
    int v = i == 0 ? have[n - 1] : have[below(&seed, (uint32_t)n)];
    hp_dtype type;
    do type = (hp_dtype)below(&seed, HP_DTYPE_COUNT);
    while (loop_class_of(type) != (loop_class)l->value.at[v].cls);
    bool scalar = l->kind != LOOP_MAP && l->value.at[v].what == LOOP_REDUCE;
    random_strides(&seed, &space, scalar ? reduced : -1, false, 1, stride);
    loop_out(l, i, type, stride, 0, v);
  }
}

TEST(random_kernels_compile_to_the_bits_of_the_interpreter) {
  const char *base = getenv("LOOP_SEED");
  uint32_t first = base ? (uint32_t)atoi(base) : 1;
  char *text[KERNELS];
  for (int i = 0; i < KERNELS; i++) {
    loop l;
    str s = {0};
    random_loop((first + (uint32_t)i) * 7919u, &l);
    CHECK_OK(loop_status(&l));
    loop_print(&l, "; ", &s);
    text[i] = str_take(&s);
    CHECK(text[i]);
    loop_free(&l);
  }
  loop_case_check_isa(LOOP_ISA_BEST, (const char *const *)text, KERNELS, true);
  for (int i = 0; i < KERNELS; i++) mem_free(text[i]);
}
