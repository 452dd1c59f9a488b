#include "backend/cpu/engine/engine_split.h"

#include "base/dtype.h"

enum { CUT_ROWS = -1, CUT_COLS = -2 }; /* else the index of a batch dim */

typedef struct {
  const gemm_query *q;
  const gemm_args *args;
  engine_share *share;
  int cut;
  int64_t size, unit, parts; /* of the dim that is split; shares are multiples of the unit */
} split;

static const void *offset_elements(const void *p, hp_dtype type, int64_t elements) {
  return (const char *)p + elements * (int64_t)dtype_size(type);
}

static hp_status run_part(void *ctx, int64_t part) {
  split *s = ctx;
  int64_t units = (s->size + s->unit - 1) / s->unit;
  int64_t from = units * part / s->parts * s->unit, to = units * (part + 1) / s->parts * s->unit;
  if (to > s->size) to = s->size;
  if (from >= to) return HP_OK;
  gemm_query q = *s->q;
  gemm_args x = *s->args;
  gemm_batch step = s->cut == CUT_ROWS   ? (gemm_batch){0, q.a_m, 0, q.c_m}
                    : s->cut == CUT_COLS ? (gemm_batch){0, 0, q.b_n, q.c_n}
                                         : q.batch[s->cut];
  if (s->cut == CUT_ROWS) q.m = to - from;
  else if (s->cut == CUT_COLS) q.n = to - from;
  else q.batch[s->cut].size = to - from;
  x.a = offset_elements(x.a, q.a_type, from * step.a);
  x.b = offset_elements(x.b, q.b_type, from * step.b);
  x.c = (char *)x.c + from * step.c * (int64_t)dtype_size(q.c_type);
  if (x.bias && s->cut == CUT_COLS) x.bias += from;
  return s->share(&q, &x, (int)part);
}

gemm_query engine_row_major(const gemm_query *q, gemm_args *args) {
  gemm_query t = *q;
  if (q->c_n == 1 || q->c_m != 1 || q->bias || q->b_pack) return t;
  t.m = q->n, t.n = q->m;
  t.a_type = q->b_type, t.b_type = q->a_type;
  t.a_m = q->b_n, t.a_k = q->b_k;
  t.b_k = q->a_k, t.b_n = q->a_m;
  t.c_m = q->c_n, t.c_n = q->c_m;
  for (int i = 0; i < q->n_batch; i++) t.batch[i].a = q->batch[i].b, t.batch[i].b = q->batch[i].a;
  if (args) *args = (gemm_args){args->b, args->a, args->c, NULL};
  return t;
}

hp_status engine_split_run(const gemm_query *query, const gemm_args *given, pool *threads,
                           engine_share *share) {
  gemm_args args = *given;
  gemm_query transposed = engine_row_major(query, &args), *q = &transposed;
  if (q->m == 0 || q->n == 0 || gemm_items(q) == 0) return HP_OK;
  enum { UNIT = 32 }; /* rows and columns: full register tiles of any library */
  split s = {.q = q, .args = &args, .share = share, .parts = pool_size(threads)};
  s.cut = q->m >= q->n ? CUT_ROWS : CUT_COLS;
  s.size = s.cut == CUT_ROWS ? q->m : q->n;
  s.unit = UNIT;
  for (int i = 0; i < q->n_batch; i++) {
    if (q->batch[i].size < s.parts || (s.unit == 1 && q->batch[i].size <= s.size)) continue;
    s.cut = i, s.size = q->batch[i].size, s.unit = 1;
  }
  return pool_try(threads, s.parts, run_part, &s);
}
