/* Every value is a block of 64 lanes along the inner dim (elements of a map or row, columns of a
 * col kernel); an op is one pass over its block.  Values that do not vary along the inner dim
 * fill their block with copies, so that there is one kind of operand.  The order within a part
 * is that of the printed C: docs/internals/codegen.md. */
#include "codegen/loop_interp.h"

#include "base/philox.h"
#include "codegen/loop_expr.h"

#include <stddef.h>
#include <string.h>

/* --- the ops of expr.def, compiled ------------------------------------------------------------ */

#define LOOP_FN(...) __VA_ARGS__
#include "codegen/math.def"
#undef LOOP_FN

enum { BLOCK = 64 };

typedef union {
  float f[BLOCK];
  int64_t i[BLOCK];
} block;

enum { CLASS_f = LOOP_FLOAT, CLASS_i = LOOP_INT };
#define MEMBER_f(x)       (x)->f[k_]
#define MEMBER_i(x)       (x)->i[k_]
#define MEMBER_v(x)       0
#define TYPE_f            float
#define TYPE_i            int64_t
#define TYPE_v            int
#define FUNCTION(line)    op_##line
#define FUNCTION_AT(line) FUNCTION(line)

/* One function per row of expr.def, op_LINE: names alone are not unique. */
#define DEFINE(function, result, ta, tb, tc, expression)                                           \
  static void function(block *to, const block *x, const block *y, const block *z) {                \
    (void)y, (void)z;                                                                              \
    for (int k_ = 0; k_ < BLOCK; k_++) {                                                           \
      const TYPE_##ta a = MEMBER_##ta(x);                                                          \
      const TYPE_##tb b = MEMBER_##tb(y);                                                          \
      const TYPE_##tc c = MEMBER_##tc(z);                                                          \
      (void)b, (void)c;                                                                            \
      MEMBER_##result(to) = expression;                                                            \
    }                                                                                              \
  }
#define EXPR(name, result, work, ta, tb, tc, expression)                                           \
  DEFINE(FUNCTION_AT(__LINE__), result, ta, tb, tc, expression)
#include "codegen/expr.def"

typedef void (*op_fn)(block *, const block *, const block *, const block *);
static const op_fn plain_op[] = {
#define EXPR(...) FUNCTION_AT(__LINE__),
#include "codegen/expr.def"
};

/* The same, with the same bits, where fmaf is an instruction: as a call it takes most of the time
 * of what is made of it. */
#if defined(__x86_64__)
#define WIDE(line)    wide_op_##line
#define WIDE_AT(line) WIDE(line)
#define EXPR(name, result, work, ta, tb, tc, expression)                                           \
  __attribute__((target("avx2,fma"), flatten))                                                     \
  DEFINE(WIDE_AT(__LINE__), result, ta, tb, tc, expression)
#include "codegen/expr.def"
static const op_fn wide_op[] = {
#define EXPR(...) WIDE_AT(__LINE__),
#include "codegen/expr.def"
};
static const op_fn *choose_ops(void) {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? wide_op : plain_op;
}
#else
static const op_fn *choose_ops(void) { return plain_op; }
#endif

/* to[i + k] = join(to[i + k], x[j + k]) for k < n */
static void combine_blocks(const loop_value *v, block *to, int i, const block *x, int j, int n) {
  switch (v->reduce * 2 + v->cls) {
#define REDUCTION(id, name, class, identity, expression)                                           \
  case LOOP_##id * 2 + CLASS_##class:                                                              \
    for (int k = 0; k < n; k++) {                                                                  \
      const TYPE_##class a = to->class[i + k], b = x->class[j + k];                                \
      to->class[i + k] = expression;                                                               \
    }                                                                                              \
    break;
#include "codegen/expr.def"
  }
}

static void fill_identity(const loop_value *v, block *to) {
  switch (v->reduce * 2 + v->cls) {
#define REDUCTION(id, name, class, identity, expression)                                           \
  case LOOP_##id * 2 + CLASS_##class:                                                              \
    for (int k = 0; k < BLOCK; k++) to->class[k] = identity;                                       \
    break;
#include "codegen/expr.def"
  }
}

static void fill_block(const loop_value *v, block *to, const block *x) {
  for (int k = 0; k < BLOCK; k++) {
    if (v->cls == LOOP_FLOAT) to->f[k] = x->f[0];
    else to->i[k] = x->i[0];
  }
}

/* --- memory ----------------------------------------------------------------------------------- */

/* The position of a part: outer indices and their number, row of a col kernel, and `width` lanes
 * from `first`. */
typedef struct {
  const loop_plan *p;
  const op_fn *op;
  const void *const *in;
  void *const *out;
  void *scratch; /* of folds */
  int64_t at[HP_MAX_RANK], outer, row, first;
  int width;
  block slot[LOOP_VALUES_MAX];
} frame;

/* Element of lane 0; the distance of lanes is path->inner. */
static int64_t find_element(const frame *f, const plan_path *path) {
  int64_t e = path->offset + f->first * path->inner;
  if (f->p->kind == LOOP_COL) e += f->row * path->reduced;
  for (int d = 0; d < f->p->outer; d++) e += f->at[d] * path->outer[d];
  return e;
}

static void load_block(const frame *f, const plan_value *v, block *to) {
  const void *base = f->in[v->v.operand];
  const int64_t start = find_element(f, &v->path);
  const int64_t step = v->path.inner;
/* One loop per type; elements past the end are never read. */
#define LOAD(to_k, value)                                                                          \
  for (int k = 0; k < BLOCK; k++) {                                                                \
    const int64_t e = k < f->width ? start + k * step : start;                                     \
    (to_k) = (value);                                                                              \
  }                                                                                                \
  break
  switch ((hp_dtype)v->v.type) {
  case HP_F32: LOAD(to->f[k], ((const float *)base)[e]);
  case HP_BF16: LOAD(to->f[k], hp_load_bf16(((const uint16_t *)base)[e]));
  case HP_F16: LOAD(to->f[k], hp_load_f16(((const uint16_t *)base)[e]));
  case HP_I32: LOAD(to->i[k], ((const int32_t *)base)[e]);
  case HP_I64: LOAD(to->i[k], ((const int64_t *)base)[e]);
  case HP_U8: LOAD(to->i[k], ((const uint8_t *)base)[e]);
  case HP_BOOL: LOAD(to->i[k], ((const uint8_t *)base)[e] != 0);
  case HP_DTYPE_COUNT: break;
  }
#undef LOAD
}

static void store_block(const frame *f, const plan_store *s) {
  void *base = f->out[s->s.operand];
  const block *x = &f->slot[s->s.value];
  int64_t e = find_element(f, &s->path);
  int n = s->path.inner ? f->width : 1;
  if (s->s.type == HP_F32) {
    for (int k = 0; k < n; k++, e += s->path.inner) ((float *)base)[e] = x->f[k];
    return;
  }
  for (int k = 0; k < n; k++, e += s->path.inner) {
    switch ((hp_dtype)s->s.type) {
    case HP_F32: break;
    case HP_BF16: ((uint16_t *)base)[e] = hp_store_bf16(x->f[k]); break;
    case HP_F16: ((uint16_t *)base)[e] = hp_store_f16(x->f[k]); break;
    case HP_I32: ((int32_t *)base)[e] = (int32_t)x->i[k]; break;
    case HP_I64: ((int64_t *)base)[e] = x->i[k]; break;
    case HP_U8: ((uint8_t *)base)[e] = (uint8_t)x->i[k]; break;
    case HP_BOOL: ((uint8_t *)base)[e] = x->i[k] != 0; break;
    case HP_DTYPE_COUNT: break;
    }
  }
}

/* --- values ----------------------------------------------------------------------------------- */

static int64_t get_int(const block *x, loop_class cls, int k) {
  return cls == LOOP_FLOAT ? hp_to_int(x->f[k]) : x->i[k];
}

static void cast_block(hp_dtype type, loop_class from, const block *x, block *to) {
  bool f = from == LOOP_FLOAT;
  for (int k = 0; k < BLOCK; k++) {
    switch (type) {
    case HP_BF16: to->f[k] = hp_round_bf16(f ? x->f[k] : (float)x->i[k]); break;
    case HP_F16: to->f[k] = hp_load_f16(hp_store_f16(f ? x->f[k] : (float)x->i[k])); break;
    case HP_I32:
      to->i[k] = f ? hp_clamp_int(get_int(x, from, k), INT32_MIN, INT32_MAX) : (int32_t)x->i[k];
      break;
    case HP_I64: to->i[k] = get_int(x, from, k); break;
    case HP_U8: to->i[k] = f ? hp_clamp_int(get_int(x, from, k), 0, 255) : x->i[k] & 255; break;
    case HP_BOOL: to->i[k] = f ? x->f[k] != 0 : x->i[k] != 0; break;
    case HP_F32:
    case HP_DTYPE_COUNT: to->f[k] = f ? x->f[k] : (float)x->i[k]; break;
    }
  }
}

static void eval_value(frame *f, int n) {
  const plan_value *v = &f->p->value[n];
  block *to = &f->slot[n];
  const block *arg[3];
  for (int k = 0; k < 3; k++) arg[k] = &f->slot[v->v.arg[k] >= 0 ? v->v.arg[k] : n];
  switch ((loop_what)v->v.what) {
  case LOOP_IN: load_block(f, v, to); break;
  case LOOP_CONST:
    to->f[0] = v->v.f32;
    fill_block(&v->v, to, to);
    break;
  case LOOP_INTEGER:
    to->i[0] = v->v.i64;
    fill_block(&v->v, to, to);
    break;
  case LOOP_IOTA:
    for (int k = 0; k < BLOCK; k++) to->i[k] = find_element(f, &v->path) + k * v->path.inner;
    break;
  case LOOP_UNIFORM:
    for (int k = 0; k < BLOCK; k++)
      to->f[k] = philox_uniform((uint64_t)arg[0]->i[0], (uint64_t)v->v.i64,
                                (uint64_t)(find_element(f, &v->path) + k * v->path.inner));
    break;
  case LOOP_CAST:
    cast_block((hp_dtype)v->v.type, (loop_class)f->p->value[v->v.arg[0]].v.cls, arg[0], to);
    break;
  case LOOP_OP: f->op[v->v.op](to, arg[0], arg[1], arg[2]); break;
  case LOOP_REDUCE: break; /* filled where it is reduced */
  }
}

/* Values that are known before the loop, once `stage` reductions are done. */
static void eval_known(frame *f, int stage) {
  for (int i = 0; i < f->p->values; i++) {
    const plan_value *v = &f->p->value[i];
    if (v->stage == stage && !(v->varies & plan_loop_bit(f->p))) eval_value(f, i);
  }
}

static void eval_needed(frame *f, const bool *need) {
  for (int i = 0; i < f->p->values; i++)
    if (need[i]) eval_value(f, i);
}

/* --- reductions ------------------------------------------------------------------------------- */

static int64_t min_i64(int64_t a, int64_t b) { return a < b ? a : b; }

/* Elements b..e of a row, one block of lanes, combined with the first lane of `lanes`. */
static void reduce_row_block(frame *f, int n, const bool *need, int64_t b, int64_t e,
                             block *lanes) {
  const loop_value *v = &f->p->value[n].v;
  fill_identity(v, lanes);
  for (f->first = b; f->first < e; f->first += BLOCK) {
    f->width = (int)min_i64(BLOCK, e - f->first);
    eval_needed(f, need);
    for (int k = 0; k < f->width; k += PLAN_LANES)
      combine_blocks(v, lanes, 0, &f->slot[v->arg[0]], k, (int)min_i64(PLAN_LANES, f->width - k));
  }
  for (int w = PLAN_LANES / 2; w > 0; w /= 2) combine_blocks(v, lanes, 0, lanes, w, w);
  if (v->cls == LOOP_FLOAT && v->reduce >= LOOP_MAX) lanes->f[0] += 0.0f; /* -0 is 0 */
}

/* Row i of the columns, combined with the chains of a block of rows. */
static void reduce_col_block(frame *f, int n, const bool *need, int64_t b, int64_t e,
                             block *chain) {
  const loop_value *v = &f->p->value[n].v;
  fill_identity(v, chain);
  for (f->row = b; f->row < e; f->row++) {
    eval_needed(f, need);
    combine_blocks(v, chain, 0, &f->slot[v->arg[0]], 0, BLOCK);
  }
}

/* Computes reduction n into its slot. */
static void finish_reduction(frame *f, int n) {
  const loop_plan *p = f->p;
  const loop_value *v = &p->value[n].v;
  const bool col = p->kind == LOOP_COL;
  const int64_t size = col ? PLAN_COL_BLOCK : PLAN_ROW_BLOCK;
  const int64_t segment = col ? PLAN_COL_SEGMENT : PLAN_ROW_SEGMENT;
  bool need[LOOP_VALUES_MAX] = {false};
  block total, part, one;
  plan_need(p, v->arg[0], need);
  fill_identity(v, &total);
  for (int64_t s0 = 0; s0 < p->reduced; s0 += segment) {
    const int64_t s1 = min_i64(p->reduced, s0 + segment);
    fill_identity(v, &part);
    for (int64_t b = s0; b < s1; b += size) {
      if (col) reduce_col_block(f, n, need, b, min_i64(s1, b + size), &one);
      else reduce_row_block(f, n, need, b, min_i64(s1, b + size), &one);
      combine_blocks(v, &part, 0, &one, 0, col ? BLOCK : 1);
    }
    combine_blocks(v, &total, 0, &part, 0, col ? BLOCK : 1);
  }
  if (col) f->slot[n] = total;
  else fill_block(v, &f->slot[n], &total);
}

/* --- folds ------------------------------------------------------------------------------------ */

/* The reduction of fold n, as a value. */
static loop_value fold_value(const loop_plan *p, int n) {
  const loop_store *s = &p->store[n].s;
  return (loop_value){.reduce = s->reduce, .cls = p->value[s->value].v.cls};
}

/* Copies the result of a block of rows for fold n, in lanes, between scratch memory and x. */
static void move_left(const frame *f, int n, int64_t rows, bool write, block *x) {
  const loop_plan *p = f->p;
  int k = 0;
  for (int i = 0; i < n; i++) k += p->store[i].s.fold;
  int64_t *numbers = (int64_t *)f->scratch + k * plan_parts(p, 0) * p->inner;
  int64_t e = rows * p->inner + f->first;
  bool is_float = fold_value(p, n).cls == LOOP_FLOAT;
  size_t bytes = (size_t)f->width * (is_float ? sizeof(float) : sizeof(int64_t));
  void *at = is_float ? (void *)((float *)numbers + e) : (void *)(numbers + e);
  memcpy(write ? at : x, write ? x : at, bytes);
}

/* Adds the lanes of this row to the chains of its block. */
static void fold_row(frame *f, int n) {
  const loop_value v = fold_value(f->p, n);
  const int64_t rows = f->outer / PLAN_COL_BLOCK;
  block chain;
  fill_identity(&v, &chain);
  if (f->outer % PLAN_COL_BLOCK) move_left(f, n, rows, false, &chain);
  combine_blocks(&v, &chain, 0, &f->slot[f->p->store[n].s.value], 0, BLOCK);
  move_left(f, n, rows, true, &chain);
}

/* Stores a part of the columns: blocks chained to segments, and segments. */
static void store_folds(frame *f, int64_t part) {
  const loop_plan *p = f->p;
  const int64_t blocks = plan_parts(p, 0), segment = PLAN_COL_SEGMENT / PLAN_COL_BLOCK;
  f->first = part * PLAN_COLS;
  f->width = (int)min_i64(BLOCK, p->inner - f->first);
  for (int n = 0; n < p->stores; n++) {
    if (!p->store[n].s.fold) continue;
    const loop_value v = fold_value(p, n);
    block *total = &f->slot[p->store[n].s.value], chain, one = {{0}};
    fill_identity(&v, total);
    for (int64_t s = 0; s < blocks; s += segment) {
      fill_identity(&v, &chain);
      for (int64_t b = s; b < min_i64(blocks, s + segment); b++) {
        move_left(f, n, b, false, &one);
        combine_blocks(&v, &chain, 0, &one, 0, BLOCK);
      }
      combine_blocks(&v, total, 0, &chain, 0, BLOCK);
    }
    store_block(f, &p->store[n]);
  }
}

/* --- parts ------------------------------------------------------------------------------------ */

/* Stores of elements (which vary in the innermost loop), or the other stores. */
static void store_all(frame *f, bool elements) {
  for (int i = 0; i < f->p->stores; i++) {
    const plan_store *s = &f->p->store[i];
    if (((s->varies & plan_loop_bit(f->p)) != 0) != elements) continue;
    if (s->s.fold) fold_row(f, i);
    else store_block(f, s);
  }
}

static void run_final_loop(frame *f, int64_t from, int64_t to) {
  const loop_plan *p = f->p;
  bool need[LOOP_VALUES_MAX] = {false}, any = false;
  for (int i = 0; i < p->stores; i++) {
    if (!(p->store[i].varies & plan_loop_bit(p))) continue;
    plan_need(p, p->store[i].s.value, need);
    any = true;
  }
  if (!any) return;
  if (p->kind == LOOP_COL) {
    for (f->row = 0; f->row < p->reduced; f->row++) {
      eval_needed(f, need);
      store_all(f, true);
    }
    return;
  }
  for (f->first = from; f->first < to; f->first += BLOCK) {
    f->width = (int)min_i64(BLOCK, to - f->first);
    eval_needed(f, need);
    store_all(f, true);
  }
}

static void run_part(frame *f, int64_t part) {
  const loop_plan *p = f->p;
  const int64_t size = p->kind == LOOP_MAP ? PLAN_MAP_BLOCK : PLAN_COLS;
  const int64_t blocks = p->kind == LOOP_ROW ? 1 : p->inner / size + (p->inner % size != 0);
  int64_t t = part / blocks, first = part % blocks * size;
  f->outer = t;
  for (int d = p->outer - 1; d >= 0; d--) {
    f->at[d] = t % p->dim[d];
    t /= p->dim[d];
  }
  f->first = p->kind == LOOP_ROW ? 0 : first;
  f->width = (int)min_i64(BLOCK, p->inner - f->first);
  f->row = 0;
  eval_known(f, 0);
  for (int stage = 1; stage <= p->stages; stage++) {
    for (int n = 0; n < p->values; n++)
      if (p->value[n].v.what == LOOP_REDUCE && p->value[n].stage == stage) finish_reduction(f, n);
    eval_known(f, stage);
  }
  run_final_loop(f, first, p->kind == LOOP_ROW ? p->inner : min_i64(p->inner, first + size));
  store_all(f, false);
}

void loop_interpret(const loop_plan *p, int phase, const void *const *in, void *const *out,
                    void *scratch, int64_t from, int64_t to) {
  frame f; /* without zeros in its slots, which would take longer than a small part does */
  memset(&f, 0, offsetof(frame, slot));
  f.p = p, f.op = choose_ops(), f.in = in, f.out = out, f.scratch = scratch;
  HP_ASSERT(!p->split);
  if (p->folds && !phase) { /* the rows of blocks */
    from *= PLAN_COL_BLOCK;
    to = min_i64(p->outer_count, to * PLAN_COL_BLOCK);
  }
  for (int64_t part = from; part < to; part++) {
    if (phase) store_folds(&f, part);
    else run_part(&f, part);
  }
}
