#include "codegen/loop.h"

#include "base/dtype.h"
#include "codegen/loop_expr.h"
#include "codegen/loop_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const loop_reduction_name[LOOP_REDUCE_COUNT] = {"sum", "prod", "max", "min"};
const char *const loop_kind_name[3] = {"map", "row", "col"};

/* Elements are addressed within +-2^58, so that byte addresses and their differences fit. */
static const int64_t element_max = (int64_t)1 << 58, fold_columns_max = (int64_t)1 << 40;

loop_class loop_class_of(hp_dtype type) { return dtype_is_float(type) ? LOOP_FLOAT : LOOP_INT; }

#define POISON(l, code, ...)                                                                       \
  do {                                                                                             \
    if (!(l)->failed) (l)->failed = err_set((code), __FILE__, __LINE__, __VA_ARGS__);              \
    return -1;                                                                                     \
  } while (0)

static int begin_loop(loop *l, loop_kind kind, const hp_shape *space) {
  *l = (loop){.kind = kind};
  if (kind > LOOP_COL || space->rank < 1 || space->rank > HP_MAX_RANK)
    POISON(l, HP_ERR_ARG, "loop: %d dims, 1 to %d were expected", space->rank, HP_MAX_RANK);
  l->space = *space;
  int64_t n = 1;
  for (int d = 0; d < space->rank; d++) {
    /* an empty dim does not hide that the others are too large */
    if (space->dim[d] < 0 || __builtin_mul_overflow(n, space->dim[d] ? space->dim[d] : 1, &n) ||
        n > element_max)
      POISON(l, HP_ERR_SHAPE,
             "loop: dim %d is %lld: sizes must not be negative, and their product "
             "at most 2^58",
             d, (long long)space->dim[d]);
  }
  return 0;
}

void loop_begin(loop *l, loop_kind kind, const hp_shape *space) {
  (void)begin_loop(l, kind, space);
}

void loop_free(loop *l) {
  vec_free(&l->value);
  vec_free(&l->store);
  *l = (loop){0};
}

int loop_reduced_dim(const loop *l) {
  return l->kind == LOOP_MAP ? -1 : l->kind == LOOP_ROW ? l->space.rank - 1 : 0;
}

/* The lowest and highest element of an access; false when it leaves 0 .. 2^58. */
static bool find_access_range(const loop *l, const loop_access *at, int64_t *low, int64_t *high) {
  int64_t lo = at->offset, hi = at->offset, step;
  for (int d = 0; d < l->space.rank; d++) {
    int64_t last = l->space.dim[d] > 0 ? l->space.dim[d] - 1 : 0;
    if (__builtin_mul_overflow(last, at->stride[d], &step) ||
        __builtin_add_overflow(step < 0 ? lo : hi, step, step < 0 ? &lo : &hi))
      return false;
  }
  *low = lo;
  *high = hi;
  return lo >= 0 && hi <= element_max;
}

/* Adds a value; its number, or -1. */
static int push_value(loop *l, loop_value v) {
  if (l->failed) return -1;
  if (l->value.len >= LOOP_VALUES_MAX)
    POISON(l, HP_ERR_ARG, "loop: more than %d values; cut the kernel in two", LOOP_VALUES_MAX);
  if (!vec_push(&l->value, v)) {
    l->failed = HP_ERR_OOM;
    return -1;
  }
  return (int)l->value.len - 1;
}

static bool is_value(const loop *l, int v) { return v >= 0 && (size_t)v < l->value.len; }

static int access_set(loop *l, const char *what, int operand, hp_dtype type, const int64_t *stride,
                      int64_t offset, loop_access *at) {
  int64_t low, high;
  if (operand < 0 || operand >= LOOP_OPERANDS_MAX)
    POISON(l, HP_ERR_ARG, "loop: %s %d: operand numbers are 0 to %d", what, operand,
           LOOP_OPERANDS_MAX - 1);
  if ((unsigned)type >= HP_DTYPE_COUNT)
    POISON(l, HP_ERR_ARG, "loop: %s %d: no element type has number %d", what, operand, (int)type);
  *at = (loop_access){.offset = offset};
  for (int d = 0; d < l->space.rank; d++) {
    if (stride[d] < -element_max || stride[d] > element_max)
      POISON(l, HP_ERR_ARG, "loop: %s %d: a stride beyond +-2^58", what, operand);
    at->stride[d] = stride[d];
  }
  if (!find_access_range(l, at, &low, &high))
    POISON(l, HP_ERR_ARG, "loop: %s %d: strides and offset reach below element 0 or beyond 2^58",
           what, operand);
  return 0;
}

int loop_in(loop *l, int operand, hp_dtype type, const int64_t *stride, int64_t offset) {
  loop_access at;
  if (l->failed || access_set(l, "in", operand, type, stride, offset, &at)) return -1;
  for (size_t i = 0; i < l->value.len; i++) {
    const loop_value *v = &l->value.at[i];
    if (v->what == LOOP_IN && v->operand == operand && v->type != type)
      POISON(l, HP_ERR_ARG, "loop: in %d is read as %s and as %s; give each its own number",
             operand, dtype_name(v->type), dtype_name(type));
  }
  return push_value(l, (loop_value){.what = LOOP_IN,
                                    .cls = loop_class_of(type),
                                    .type = (uint8_t)type,
                                    .operand = (uint16_t)operand,
                                    .arg = {-1, -1, -1},
                                    .at = at});
}

int loop_const(loop *l, float x) {
  return push_value(l, (loop_value){.what = LOOP_CONST,
                                    .cls = LOOP_FLOAT,
                                    .arg = {-1, -1, -1},
                                    .f32 = x});
}

int loop_int(loop *l, int64_t x) {
  return push_value(l, (loop_value){.what = LOOP_INTEGER,
                                    .cls = LOOP_INT,
                                    .arg = {-1, -1, -1},
                                    .i64 = x});
}

int loop_iota(loop *l, int dim, int64_t from) {
  if (l->failed) return -1;
  if (dim < 0 || dim >= l->space.rank)
    POISON(l, HP_ERR_ARG, "loop: iota %d: the kernel has dims 0 to %d", dim, l->space.rank - 1);
  if (from < -element_max || from > element_max)
    POISON(l, HP_ERR_ARG, "loop: iota %d: a start beyond +-2^58", dim);
  return push_value(l, (loop_value){.what = LOOP_IOTA,
                                    .cls = LOOP_INT,
                                    .dim = (uint16_t)dim,
                                    .arg = {-1, -1, -1},
                                    .at = {.offset = from}});
}

/* Is value v the same number at all indices? */
static bool is_single(const loop *l, int v) {
  const loop_value *x = &l->value.at[v];
  for (int d = 0; d < l->space.rank; d++)
    if (x->at.stride[d]) return false;
  return x->what == LOOP_IN || x->what == LOOP_INTEGER;
}

int loop_uniform(loop *l, int seed, int64_t stream, const int64_t *stride, int64_t offset) {
  loop_access at;
  if (l->failed || access_set(l, "uniform", 0, HP_F32, stride, offset, &at)) return -1;
  if (!is_value(l, seed) || l->value.at[seed].cls != LOOP_INT || !is_single(l, seed))
    POISON(l, HP_ERR_ARG, "loop: uniform: seed %%%d is not one integer for all elements", seed);
  return push_value(l, (loop_value){.what = LOOP_UNIFORM,
                                    .cls = LOOP_FLOAT,
                                    .arg = {(int16_t)seed, -1, -1},
                                    .i64 = stream,
                                    .at = at});
}

int loop_cast(loop *l, hp_dtype type, int a) {
  if (l->failed) return -1;
  if ((unsigned)type >= HP_DTYPE_COUNT || !is_value(l, a))
    POISON(l, HP_ERR_ARG, "loop: cast of %%%d to type %d: no such value or type", a, (int)type);
  return push_value(l, (loop_value){.what = LOOP_CAST,
                                    .cls = loop_class_of(type),
                                    .type = (uint8_t)type,
                                    .arg = {(int16_t)a, -1, -1}});
}

int loop_op(loop *l, const char *name, int a, int b, int c) {
  const int arg[3] = {a, b, c};
  uint8_t cls[3];
  char classes[64] = "";
  size_t used = 0;
  int n = a < 0 ? 0 : b < 0 ? 1 : c < 0 ? 2 : 3;
  if (l->failed) return -1;
  for (int i = 0; i < n; i++) {
    if (!is_value(l, arg[i]))
      POISON(l, HP_ERR_ARG, "loop: %s: value %%%d does not exist yet", name, arg[i]);
    cls[i] = l->value.at[arg[i]].cls;
    used += (size_t)snprintf(classes + used, sizeof classes - used, "%s%s", i ? ", " : "",
                             cls[i] == LOOP_FLOAT ? "float" : "integer");
  }
  int r = loop_expr_find(name, cls, n);
  if (r < 0)
    POISON(l, HP_ERR_ARG,
           "loop: no elementwise op \"%s\" takes (%s); the ops are in expr.def, a "
           "cast changes the class",
           name, classes);
  return push_value(l, (loop_value){.what = LOOP_OP,
                                    .cls = loop_expr_row(r)->cls,
                                    .op = (uint16_t)r,
                                    .arg = {(int16_t)a, (int16_t)b, (int16_t)c}});
}

static int find_reduction(loop *l, const char *name) {
  for (int r = 0; r < LOOP_REDUCE_COUNT; r++)
    if (!strcmp(name, loop_reduction_name[r])) return r;
  POISON(l, HP_ERR_ARG, "loop: no reduction \"%s\"; there are sum, prod, max, min", name);
}

int loop_reduce(loop *l, const char *name, int a) {
  if (l->failed) return -1;
  int r = find_reduction(l, name);
  if (r < 0) return -1;
  if (l->kind == LOOP_MAP)
    POISON(l, HP_ERR_ARG, "loop: %s in a map kernel; reductions need kind row or col", name);
  if (!is_value(l, a)) POISON(l, HP_ERR_ARG, "loop: %s: value %%%d does not exist yet", name, a);
  return push_value(l, (loop_value){.what = LOOP_REDUCE,
                                    .cls = l->value.at[a].cls,
                                    .reduce = (uint8_t)r,
                                    .arg = {(int16_t)a, -1, -1}});
}

/* False if the value has one number per row (column): it does not vary along the reduced dim.
 * All values of a map vary. */
static bool moves_along_reduced(const loop *l, int value) {
  int d = loop_reduced_dim(l);
  bool varies[LOOP_VALUES_MAX];
  for (int i = 0; i <= value; i++) {
    const loop_value *v = &l->value.at[i];
    varies[i] = d < 0;
    if (loop_has_strides(v)) varies[i] |= d >= 0 && v->at.stride[d] != 0;
    if (v->what == LOOP_IOTA) varies[i] |= v->dim == d;
    for (int k = 0; k < 3 && v->what != LOOP_REDUCE; k++)
      if (v->arg[k] >= 0) varies[i] |= varies[v->arg[k]];
  }
  return varies[value];
}

/* True if no two indices of the space store to the same element: sorted by size, each stride is
 * larger than the total extent of the smaller ones.  `skip` is a dim that is not iterated. */
static bool is_injective(const loop *l, const loop_access *at, int skip) {
  bool used[HP_MAX_RANK] = {false};
  int64_t reach = 0;
  for (int n = 0; n < l->space.rank; n++) {
    int best = -1;
    for (int d = 0; d < l->space.rank; d++)
      if (!used[d] && (best < 0 || llabs(at->stride[d]) < llabs(at->stride[best]))) best = d;
    used[best] = true;
    if (best == skip || l->space.dim[best] < 2) continue;
    if (llabs(at->stride[best]) <= reach) return false;
    reach += llabs(at->stride[best]) * (l->space.dim[best] - 1); /* fits: access_range was asked */
  }
  return true;
}

/* Are the strides of a fold 0 on all dims but the last, and nonzero there?  The scratch memory
 * of a fold (loop_plan.h) is counted in bytes. */
static int check_fold(loop *l, int operand, const loop_access *at) {
  int last = l->space.rank - 1;
  bool fits = l->kind == LOOP_ROW && at->stride[last] != 0;
  for (int d = 0; d < last; d++) fits &= at->stride[d] == 0;
  if (!fits)
    POISON(l, HP_ERR_ARG,
           "loop: out %d: a fold is of a row kernel and has stride 0 on all dims but the last",
           operand);
  if (l->space.dim[last] > fold_columns_max)
    POISON(l, HP_ERR_ARG, "loop: out %d: a fold of more than 2^40 columns", operand);
  return 0;
}

/* Adds a store, or a fold if it names a reduction. */
static int add_store(loop *l, const char *fold, int operand, hp_dtype type, const int64_t *stride,
                     int64_t offset, int value) {
  loop_access at;
  if (l->failed || access_set(l, "out", operand, type, stride, offset, &at)) return -1;
  if (!is_value(l, value))
    POISON(l, HP_ERR_ARG, "loop: out %d: value %%%d does not exist", operand, value);
  if (l->value.at[value].cls != loop_class_of(type))
    POISON(l, HP_ERR_ARG, "loop: out %d: %%%d is %s, the type is %s; add a cast", operand, value,
           l->value.at[value].cls == LOOP_FLOAT ? "float" : "integer", dtype_name(type));
  for (size_t i = 0; i < l->store.len; i++)
    if (l->store.at[i].operand == operand && l->store.at[i].type != type)
      POISON(l, HP_ERR_ARG, "loop: out %d is written as %s and as %s", operand,
             dtype_name(l->store.at[i].type), dtype_name(type));
  int d = loop_reduced_dim(l);
  bool scalar = d >= 0 && at.stride[d] == 0 && !moves_along_reduced(l, value);
  int reduce = fold ? find_reduction(l, fold) : 0;
  if (reduce < 0 || (fold && check_fold(l, operand, &at))) return -1;
  if (!fold && !is_injective(l, &at, scalar ? d : -1))
    POISON(l, HP_ERR_ARG,
           "loop: out %d: several elements are stored in one place; a stride may be "
           "0 only on the reduced dim, for a reduced value",
           operand);
  if (l->store.len >= LOOP_STORES_MAX)
    POISON(l, HP_ERR_ARG, "loop: more than %d stores", LOOP_STORES_MAX);
  if (!vec_push(&l->store, ((loop_store){.operand = (uint16_t)operand,
                                         .type = (uint8_t)type,
                                         .reduce = (uint8_t)reduce,
                                         .fold = fold != NULL,
                                         .value = (int16_t)value,
                                         .at = at})))
    l->failed = HP_ERR_OOM;
  return 0;
}

void loop_out(loop *l, int operand, hp_dtype type, const int64_t *stride, int64_t offset,
              int value) {
  (void)add_store(l, NULL, operand, type, stride, offset, value);
}

void loop_fold(loop *l, const char *name, int operand, hp_dtype type, const int64_t *stride,
               int64_t offset, int value) {
  (void)add_store(l, name, operand, type, stride, offset, value);
}

int loop_inputs(const loop *l) {
  int n = 0;
  for (size_t i = 0; i < l->value.len; i++)
    if (l->value.at[i].what == LOOP_IN && l->value.at[i].operand >= n)
      n = l->value.at[i].operand + 1;
  return n;
}

int loop_outputs(const loop *l) {
  int n = 0;
  for (size_t i = 0; i < l->store.len; i++)
    if (l->store.at[i].operand >= n) n = l->store.at[i].operand + 1;
  return n;
}

/* False if an empty dim means that the access touches nothing.  An empty reduced dim does not if
 * the access does not vary along it, since it then belongs to a value of the row, or of the
 * columns of a fold. */
static bool is_touched(const loop *l, const loop_access *at, bool fold) {
  int r = loop_reduced_dim(l);
  for (int d = 0; d < l->space.rank; d++)
    if (l->space.dim[d] == 0 && ((d != r && !fold) || at->stride[d] != 0)) return false;
  return true;
}

bool loop_extent(const loop *l, bool output, int operand, hp_dtype *type, int64_t *low,
                 int64_t *high) {
  size_t n = output ? l->store.len : l->value.len;
  bool found = false;
  for (size_t i = 0; i < n; i++) {
    const loop_access *at = output ? &l->store.at[i].at : &l->value.at[i].at;
    int64_t lo, hi;
    if (!output && l->value.at[i].what != LOOP_IN) continue;
    if ((output ? l->store.at[i].operand : l->value.at[i].operand) != operand) continue;
    if (!is_touched(l, at, output && l->store.at[i].fold) || !find_access_range(l, at, &lo, &hi))
      continue;
    *type = (hp_dtype)(output ? l->store.at[i].type : l->value.at[i].type);
    *low = found && *low < lo ? *low : lo;
    *high = found && *high > hi ? *high : hi;
    found = true;
  }
  return found;
}

/* Elements that an access touches. */
static double count_touched(const loop *l, const loop_access *at, bool fold) {
  double n = is_touched(l, at, fold) ? 1 : 0;
  for (int d = 0; d < l->space.rank; d++)
    if (at->stride[d]) n *= (double)l->space.dim[d];
  return n;
}

/* Machine operations, roughly. */
static int count_operations(const loop_value *v) {
  return v->what == LOOP_OP ? loop_expr_row(v->op)->work : v->what == LOOP_UNIFORM ? 24 : 1;
}

void loop_cost(const loop *l, double *flops, double *bytes) {
  double all = 1, kept = 1, f = 0, b = 0;
  for (int d = 0; d < l->space.rank; d++) {
    all *= (double)l->space.dim[d];
    if (d != loop_reduced_dim(l)) kept *= (double)l->space.dim[d];
  }
  for (size_t i = 0; i < l->value.len; i++) {
    const loop_value *v = &l->value.at[i];
    if (v->what == LOOP_IN) b += count_touched(l, &v->at, false) * (double)dtype_size(v->type);
    if (v->what == LOOP_OP || v->what == LOOP_CAST || v->what == LOOP_UNIFORM)
      f += (moves_along_reduced(l, (int)i) ? all : kept) * count_operations(v);
    if (v->what == LOOP_REDUCE) f += all;
  }
  for (size_t i = 0; i < l->store.len; i++) {
    const loop_store *s = &l->store.at[i];
    b += count_touched(l, &s->at, s->fold) * (double)dtype_size(s->type);
    if (s->fold) f += all;
  }
  *flops = f;
  *bytes = b;
}

hp_status loop_status(const loop *l) {
  if (l->failed) return l->failed;
  if (!l->space.rank) HP_FAIL(HP_ERR_ARG, "loop: not begun");
  if (!l->store.len) HP_FAIL(HP_ERR_ARG, "loop: it stores nothing; an out line was expected");
  return HP_OK;
}
