#include "codegen/loop_plan.h"

#include <stdlib.h>
#include <string.h>

/* A dim of the space during the construction of the nest: its size and its strides in every
 * access. */
typedef struct {
  int64_t size;
  bool counted;                                      /* an iota counts it: it is not merged */
  int64_t stride[LOOP_VALUES_MAX + LOOP_STORES_MAX]; /* values first, then stores */
} axis;

typedef struct {
  axis *at;
  int n;
} axes;

void plan_free(loop_plan *p) {
  mem_free(p->value);
  mem_free(p->store);
  *p = (loop_plan){0};
}

static int64_t count_blocks(int64_t n, int64_t size) { return n / size + (n % size != 0); }

/* Segments of the reduced dim. */
static int64_t count_segments(const loop_plan *p) {
  return count_blocks(p->reduced, p->kind == LOOP_ROW ? PLAN_ROW_SEGMENT : PLAN_COL_SEGMENT);
}

int plan_phases(const loop_plan *p) { return p->split ? p->stages + 2 : p->folds ? 2 : 1; }

int64_t plan_parts(const loop_plan *p, int phase) {
  int64_t n = p->outer_count;
  if (p->folds) return phase ? count_blocks(p->inner, PLAN_COLS) : count_blocks(n, PLAN_COL_BLOCK);
  if (p->kind != LOOP_ROW)
    n *= count_blocks(p->inner, p->kind == LOOP_MAP ? PLAN_MAP_BLOCK : PLAN_COLS);
  return p->split ? n * count_segments(p) : n;
}

size_t plan_scratch(const loop_plan *p) {
  int64_t numbers = 0;
  if (p->folds) numbers = plan_parts(p, 0) * p->inner * p->folds;
  if (p->split) numbers = plan_parts(p, 0) * (p->kind == LOOP_COL ? PLAN_COLS : 1) * p->reductions;
  return (size_t)numbers * sizeof(int64_t);
}

void plan_need(const loop_plan *p, int value, bool *need) {
  const plan_value *v = &p->value[value];
  if (need[value] || !(v->varies & plan_loop_bit(p))) return;
  need[value] = true;
  for (int k = 0; k < 3; k++)
    if (v->v.arg[k] >= 0) plan_need(p, v->v.arg[k], need);
}

static bool is_same(const loop_value *a, const loop_value *b) {
  return a->what == b->what && a->cls == b->cls && a->type == b->type && a->reduce == b->reduce &&
         a->op == b->op && a->operand == b->operand && a->dim == b->dim && a->i64 == b->i64 &&
         !memcmp(a->arg, b->arg, sizeof a->arg) && !memcmp(&a->f32, &b->f32, sizeof a->f32) &&
         !memcmp(&a->at, &b->at, sizeof a->at);
}

/* The number of a value in the copy, added if it is new.  Equal values become one: a kernel that
 * was fused from forward and backward has such values. */
static int16_t add_value(loop_plan *p, const loop_value *v) {
  for (int i = 0; i < p->values; i++)
    if (is_same(&p->value[i].v, v)) return (int16_t)i;
  p->value[p->values].v = *v;
  return (int16_t)p->values++;
}

/* Copies the values that a store needs, in order, with new numbers. */
static void copy_live(const loop *l, loop_plan *p) {
  bool live[LOOP_VALUES_MAX] = {false};
  int16_t number[LOOP_VALUES_MAX];
  for (size_t i = 0; i < l->store.len; i++) live[l->store.at[i].value] = true;
  for (size_t i = l->value.len; i-- > 0;)
    for (int k = 0; k < 3 && live[i]; k++)
      if (l->value.at[i].arg[k] >= 0) live[l->value.at[i].arg[k]] = true;
  for (size_t i = 0; i < l->value.len; i++) {
    if (!live[i]) continue;
    loop_value v = l->value.at[i];
    for (int k = 0; k < 3; k++)
      if (v.arg[k] >= 0) v.arg[k] = number[v.arg[k]];
    bool same = v.what == LOOP_CAST && v.type == HP_F32 && p->value[v.arg[0]].v.cls == LOOP_FLOAT;
    number[i] = same ? v.arg[0] : add_value(p, &v);
  }
  for (size_t i = 0; i < l->store.len; i++) {
    p->store[i].s = l->store.at[i];
    p->store[i].s.value = number[l->store.at[i].value];
    p->folds += p->store[i].s.fold;
  }
  p->stores = (int)l->store.len;
}

/* The dims of the loop as axes, without the reduced one and those of size 1. */
static void axes_read(const loop *l, const loop_plan *p, axes *a, axis *reduced) {
  for (int d = 0; d < l->space.rank; d++) {
    axis x = {.size = l->space.dim[d]};
    for (int i = 0; i < p->values; i++) {
      const loop_value *v = &p->value[i].v;
      if (loop_has_strides(v)) x.stride[i] = v->at.stride[d];
      if (v->what == LOOP_IOTA && v->dim == d) {
        x.stride[i] = 1;
        x.counted = true;
      }
    }
    for (int i = 0; i < p->stores; i++) x.stride[p->values + i] = p->store[i].s.at.stride[d];
    if (d == loop_reduced_dim(l)) *reduced = x;
    else if (x.size != 1) a->at[a->n++] = x;
  }
}

/* Merges axes d and d + 1 if in all accesses a step over d equals a step over all of d + 1. */
static void axes_merge(const loop_plan *p, axes *a) {
  for (int d = 0; d + 1 < a->n;) {
    axis *x = &a->at[d], *y = x + 1;
    bool fits = !x->counted && !y->counted;
    for (int i = 0; fits && i < p->values + p->stores; i++) {
      int64_t step;
      fits = !__builtin_mul_overflow(y->stride[i], y->size, &step) && step == x->stride[i];
    }
    if (!fits) {
      d++;
      continue;
    }
    y->size *= x->size;
    memmove(x, y, (size_t)(a->n - d - 1) * sizeof *x);
    a->n--;
    d = d > 0 ? d - 1 : 0;
  }
}

/* Moves the axis with unit stride in most accesses to the end: it becomes the inner loop.
 * Stores count double; of equals the last one. */
static void axes_choose_inner(const loop_plan *p, axes *a) {
  int best = -1, best_score = -1;
  for (int d = 0; d < a->n; d++) {
    int score = 0;
    for (int i = 0; i < p->values + p->stores; i++)
      if (a->at[d].stride[i] == 1 && (i >= p->values || loop_has_strides(&p->value[i].v)))
        score += i >= p->values ? 2 : 1;
    if (score >= best_score) {
      best = d;
      best_score = score;
    }
  }
  if (best < 0 || best == a->n - 1) return;
  axis x = a->at[best];
  memmove(&a->at[best], &a->at[best + 1], (size_t)(a->n - best - 1) * sizeof x);
  a->at[a->n - 1] = x;
}

static plan_path make_path(const axes *outer, const axis *inner, const axis *reduced, int i,
                           int64_t offset) {
  plan_path path = {.offset = offset, .inner = inner->stride[i], .reduced = reduced->stride[i]};
  for (int d = 0; d < outer->n; d++) path.outer[d] = outer->at[d].stride[i];
  return path;
}

static void set_paths(loop_plan *p, const axes *outer, const axis *inner, const axis *reduced) {
  p->outer = outer->n;
  p->outer_count = 1;
  for (int d = 0; d < outer->n; d++) {
    p->dim[d] = outer->at[d].size;
    p->outer_count *= p->dim[d];
  }
  p->inner = inner->size;
  p->reduced = reduced->size;
  for (int i = 0; i < p->values; i++)
    p->value[i].path = make_path(outer, inner, reduced, i, p->value[i].v.at.offset);
  for (int i = 0; i < p->stores; i++)
    p->store[i].path = make_path(outer, inner, reduced, p->values + i, p->store[i].s.at.offset);
}

static uint8_t find_varying_axes(const loop_plan *p, const plan_path *path) {
  uint8_t bits = path->inner != 0 ? VARY_INNER : 0;
  if (p->kind == LOOP_ROW) return bits ? VARY_INNER | VARY_REDUCED : 0;
  return bits | (path->reduced != 0 ? VARY_REDUCED : 0);
}

/* Fills varies and stage, arguments before users. */
static void classify_values(loop_plan *p) {
  for (int i = 0; i < p->values; i++) {
    plan_value *v = &p->value[i];
    if (loop_has_strides(&v->v) || v->v.what == LOOP_IOTA)
      v->varies = find_varying_axes(p, &v->path);
    for (int k = 0; k < 3; k++) {
      if (v->v.arg[k] < 0) continue;
      const plan_value *x = &p->value[v->v.arg[k]];
      v->varies |= x->varies;
      if (x->stage > v->stage) v->stage = x->stage;
    }
    if (v->v.what != LOOP_REDUCE) continue;
    v->varies = p->kind == LOOP_COL ? VARY_INNER : 0;
    if (++v->stage > p->stages) p->stages = v->stage;
    p->reductions++;
  }
  for (int i = 0; i < p->stores; i++)
    p->store[i].varies =
        find_varying_axes(p, &p->store[i].path) | p->value[p->store[i].s.value].varies;
}

hp_status plan_create(const loop *l, loop_plan *out) {
  loop_plan p = {.kind = l->kind};
  axes a = {mem_calloc(HP_MAX_RANK + 1, sizeof(axis)), 0};
  p.value = mem_calloc(l->value.len, sizeof *p.value);
  p.store = mem_calloc(l->store.len, sizeof *p.store);
  if (!a.at || !p.value || !p.store) {
    mem_free(a.at);
    plan_free(&p);
    return HP_ERR_OOM;
  }
  axis one = {.size = 1}, *none = &a.at[HP_MAX_RANK], *reduced = none;
  *none = one;
  copy_live(l, &p);
  axes_read(l, &p, &a, reduced);
  axes_merge(&p, &a);
  if (p.kind == LOOP_ROW) {
    axis unused = one;
    set_paths(&p, &a, reduced, &unused);
    p.reduced = p.inner;
  } else {
    axes_choose_inner(&p, &a);
    axes_merge(&p, &a);
    axis inner = a.n ? a.at[--a.n] : one;
    set_paths(&p, &a, &inner, reduced);
  }
  classify_values(&p);
  /* depends on sizes alone, not on the number of threads; both give the same bits */
  p.split = p.stages && !p.folds && plan_parts(&p, 0) < PLAN_FEW_PARTS && count_segments(&p) > 1;
  mem_free(a.at);
  *out = p;
  return HP_OK;
}
