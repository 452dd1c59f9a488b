#include "backend/cpu/rows/rowops.h"

#include "backend/cpu/rows/rows_isa.h"
#include "base/dtype.h"
#include "base/mem.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

/* A free thread takes the next chunk of items; results do not depend on the thread of an item. */
typedef struct {
  rows_fn *fn;
  rows_job *job;
  int64_t items, chunk;
  atomic_llong next;
} deal;

static void run_thread(void *ctx, int64_t thread) {
  deal *d = ctx;
  (void)thread;
  for (int64_t i; (i = atomic_fetch_add(&d->next, d->chunk)) < d->items;)
    d->fn(d->job, i, i + d->chunk < d->items ? i + d->chunk : d->items);
}

static void run_rows(pool *p, rows_fn *fn, rows_job *j, int64_t items) {
  int64_t threads = pool_size(p), chunk = items / (8 * threads);
  deal d = {.fn = fn, .job = j, .items = items, .chunk = chunk ? chunk : 1};
  if (items > 0) pool_run(p, threads < items ? threads : items, run_thread, &d);
}

static hp_status check_float(const char *what, hp_dtype t) {
  if (!dtype_is_float(t))
    HP_FAIL(HP_ERR_ARG, "%s of %s: expected f32, bf16 or f16", what, dtype_name(t));
  return HP_OK;
}
static hp_status check_ids(const char *what, hp_dtype t) {
  if (t != HP_I32 && t != HP_I64)
    HP_FAIL(HP_ERR_ARG, "%s of %s: expected i32 or i64", what, dtype_name(t));
  return HP_OK;
}

/* --- cross-entropy ---------------------------------------------------------------------------- */

static rows_fn *const xent_of[ISA_COUNT] = ISA_TABLE(rows_xent);
static rows_fn *const xent_grad_of[ISA_COUNT] = ISA_TABLE(rows_xent_grad);

static hp_status check_labels(const row_labels *r) {
  HP_TRY(check_float("cross-entropy logits", r->dtype));
  HP_TRY(check_ids("cross-entropy labels", r->label_type));
  if (r->N < 0 || r->V < 1)
    HP_FAIL(HP_ERR_SHAPE, "cross-entropy of logits [%lld, %lld]: expected at least one class",
            (long long)r->N, (long long)r->V);
  for (int64_t i = 0; i < r->N; i++) {
    int64_t label = rows_index(r->labels, r->label_type, i);
    if (label != r->ignore && label != ID_ELSEWHERE && (label < 0 || label >= r->V))
      HP_FAIL(
          HP_ERR_INPUT,
          "cross-entropy: label %lld of row %lld is not one of %lld classes; expected 0..%lld, or "
          "%lld to leave the row out",
          (long long)label, (long long)i, (long long)r->V, (long long)r->V - 1,
          (long long)r->ignore);
  }
  return HP_OK;
}

hp_status row_cross_entropy(cpu_isa isa, pool *p, const row_labels *r, float *loss, float *lse) {
  rows_job j = {.labels = r, .out = loss, .lse_out = lse};
  HP_TRY(check_labels(r));
  run_rows(p, xent_of[isa], &j, r->N);
  return HP_OK;
}

hp_status row_cross_entropy_grad(cpu_isa isa, pool *p, const row_labels *r, const float *lse,
                                 const float *dloss, void *out) {
  rows_job j = {.labels = r, .lse = lse, .dloss = dloss, .y = out};
  HP_TRY(check_labels(r));
  j.stream = out != r->logits && r->N >= MEM_STREAM_BYTES / (r->V * (int64_t)dtype_size(r->dtype));
  run_rows(p, xent_grad_of[isa], &j, r->N);
  return HP_OK;
}

/* --- embedding -------------------------------------------------------------------------------- */

static rows_fn *const embedding_of[ISA_COUNT] = ISA_TABLE(rows_embedding);
static rows_fn *const embedding_grad_of[ISA_COUNT] = ISA_TABLE(rows_embedding_grad);

static hp_status check_row_ids(const row_ids *r) {
  HP_TRY(check_ids("embedding ids", r->id_type));
  if (r->V < 0 || r->C < 0 || r->n < 0)
    HP_FAIL(HP_ERR_SHAPE,
            "embedding of %lld ids in a table [%lld, %lld]: sizes must not be negative",
            (long long)r->n, (long long)r->V, (long long)r->C);
  for (int64_t i = 0; i < r->n; i++) {
    int64_t id = rows_index(r->ids, r->id_type, i);
    if (id != ID_ELSEWHERE && (id < 0 || id >= r->V))
      HP_FAIL(HP_ERR_INPUT,
              "embedding: id %lld at position %lld is not a row of the table; expected 0..%lld",
              (long long)id, (long long)i, (long long)r->V - 1);
  }
  return HP_OK;
}

hp_status row_embedding(cpu_isa isa, pool *p, const row_ids *r, hp_dtype dtype, const void *table,
                        void *out) {
  HP_TRY(check_row_ids(r));
  rows_job j = {.ids = r, .x = table, .y = out, .width = r->C * (int64_t)dtype_size(dtype)};
  if (!r->C) return HP_OK;
  j.stream = j.width % 4 == 0 && r->n >= MEM_STREAM_BYTES / j.width;
  run_rows(p, embedding_of[isa], &j, r->n);
  return HP_OK;
}

hp_status row_embedding_grad_work(const row_ids *r, size_t *bytes) {
  size_t n;
  if (r->V < 0 || r->n < 0 || !size_add((size_t)r->V + 2, (size_t)r->n, &n) ||
      !size_mul(n, sizeof(int64_t), bytes))
    HP_FAIL(HP_ERR_SHAPE, "embedding gradient of %lld ids in %lld rows: cannot be addressed",
            (long long)r->n, (long long)r->V);
  return HP_OK;
}

/* Positions in order of id, and of position within one: a counting sort.  start has V + 2 slots.
 * What is elsewhere has no place. */
static void sort_positions(const row_ids *r, int64_t *start, int64_t *position) {
  memset(start, 0, sizeof *start * (size_t)(r->V + 2));
  for (int64_t i = 0; i < r->n; i++) {
    int64_t id = rows_index(r->ids, r->id_type, i);
    if (id != ID_ELSEWHERE) start[id + 2]++;
  }
  for (int64_t v = 2; v < r->V + 2; v++) start[v] += start[v - 1];
  for (int64_t i = 0; i < r->n; i++) {
    int64_t id = rows_index(r->ids, r->id_type, i);
    if (id != ID_ELSEWHERE) position[start[id + 1]++] = i;
  }
}

hp_status row_embedding_grad(cpu_isa isa, pool *p, const row_ids *r, hp_dtype dy_type,
                             const void *dy, hp_dtype out_type, void *dtable, bool onto,
                             void *work) {
  HP_TRY(check_float("embedding gradient", dy_type));
  HP_TRY(check_float("embedding gradient", out_type));
  HP_TRY(check_row_ids(r));
  int64_t *start = work, *position = start + r->V + 2;
  sort_positions(r, start, position);
  rows_job j = {.x = dy,
                .dtype = dy_type,
                .y = dtable,
                .out_type = out_type,
                .width = r->C,
                .onto = onto,
                .start = start,
                .position = position};
  if (!onto && r->C) j.stream = r->V >= MEM_STREAM_BYTES / (r->C * (int64_t)dtype_size(out_type));
  run_rows(p, embedding_grad_of[isa], &j, r->V);
  return HP_OK;
}

/* --- rotary embedding ------------------------------------------------------------------------- */

static rows_fn *const rope_of[ISA_COUNT] = ISA_TABLE(rows_rope);

hp_status row_rope(cpu_isa isa, pool *p, const row_rope_spec *r, hp_dtype dtype, const void *x,
                   void *y) {
  HP_TRY(check_float("rotary embedding", dtype));
  if (r->B < 0 || r->T < 0 || r->H < 0 || r->R < 0 || r->R % 2 || r->R > r->D)
    HP_FAIL(HP_ERR_SHAPE,
            "rotary embedding turns %lld of %lld dims: expected an even number that is not larger",
            (long long)r->R, (long long)r->D);
  for (int64_t i = 0; i < r->B * r->T; i++)
    if (r->position[i] < 0 || r->position[i] >= r->P)
      HP_FAIL(HP_ERR_INPUT,
              "rotary embedding: position %d of token %lld of sequence %lld is outside the table; "
              "expected 0..%lld: make the sequence shorter or max_position_embeddings larger",
              (int)r->position[i], (long long)(i % r->T), (long long)(i / r->T),
              (long long)r->P - 1);
  rows_job j = {.rope = r, .dtype = dtype, .x = x, .y = y};
  run_rows(p, rope_of[isa], &j, r->B * r->T);
  return HP_OK;
}

/* --- over a tensor ---------------------------------------------------------------------------- */

static rows_fn *const sum_sq_of[ISA_COUNT] = ISA_TABLE(rows_sum_sq);
static rows_fn *const argmax_of[ISA_COUNT] = ISA_TABLE(rows_argmax);

static int64_t count_chunks(int64_t n) { return n / ROWS_CHUNK + (n % ROWS_CHUNK != 0); }

hp_status row_sum_sq_work(int64_t n, size_t *bytes) {
  if (n < 0) HP_FAIL(HP_ERR_SHAPE, "sum of %lld elements", (long long)n);
  *bytes = (size_t)count_chunks(n) * sizeof(float);
  return HP_OK;
}

hp_status row_sum_sq(cpu_isa isa, pool *p, hp_dtype dtype, const void *x, int64_t n, double *out,
                     void *work) {
  HP_TRY(check_float("sum of squares", dtype));
  rows_job j = {.dtype = dtype, .x = x, .n = n, .out = work};
  run_rows(p, sum_sq_of[isa], &j, count_chunks(n));
  double sum = 0;
  for (int64_t i = 0; i < count_chunks(n); i++) sum += (double)j.out[i];
  *out = sum;
  return HP_OK;
}

hp_status row_argmax(cpu_isa isa, pool *p, hp_dtype dtype, const void *x, int64_t N, int64_t V,
                     int32_t *out) {
  HP_TRY(check_float("argmax", dtype));
  if (V < 1 || V > INT32_MAX || N < 0)
    HP_FAIL(HP_ERR_SHAPE, "argmax of rows of %lld elements: expected 1..%d", (long long)V,
            INT32_MAX);
  rows_job j = {.dtype = dtype, .x = x, .y = out, .width = V};
  run_rows(p, argmax_of[isa], &j, N);
  return HP_OK;
}

/* --- random numbers --------------------------------------------------------------------------- */

static rows_fn *const random_of[ISA_COUNT] = ISA_TABLE(rows_random);

static hp_status check_random(const row_random_spec *r, hp_dtype dtype) {
  HP_TRY(check_float("random numbers", dtype));
  if (r->local.rank != r->global.rank || r->local.rank < 0 || r->local.rank > HP_MAX_RANK)
    HP_FAIL(HP_ERR_SHAPE, "random numbers: a shard of rank %d of a tensor of rank %d",
            r->local.rank, r->global.rank);
  for (int d = 0; d < r->local.rank; d++)
    if (r->local.dim[d] < 0 || r->start[d] < 0 || r->start[d] > r->global.dim[d] - r->local.dim[d])
      HP_FAIL(HP_ERR_SHAPE, "random numbers: dim %d: shard %lld..%lld of %lld", d,
              (long long)r->start[d], (long long)(r->start[d] + r->local.dim[d]),
              (long long)r->global.dim[d]);
  return HP_OK;
}

/* Dims that are there in full join the dim before them, so that runs are long; a scalar is a run.
 */
static void join_dims(row_random_spec *r) {
  int d = r->local.rank - 1;
  for (; d > 0 && r->local.dim[d] == r->global.dim[d]; d--) {
    r->local.dim[d - 1] *= r->local.dim[d];
    r->global.dim[d - 1] *= r->global.dim[d];
    r->start[d - 1] *= r->local.dim[d];
  }
  if (d < 0) d = 0, r->local.dim[0] = r->global.dim[0] = 1, r->start[0] = 0;
  r->local.rank = r->global.rank = d + 1;
}

hp_status row_random(cpu_isa isa, pool *p, const row_random_spec *spec, hp_dtype dtype, void *out) {
  row_random_spec r = *spec;
  HP_TRY(check_random(spec, dtype));
  join_dims(&r);
  int64_t runs = 1, width = r.local.dim[r.local.rank - 1];
  for (int d = 0; d < r.local.rank - 1; d++) runs *= r.local.dim[d];
  rows_job j = {.random = &r,
                .out_type = dtype,
                .y = out,
                .width = width,
                .n = count_chunks(width)};
  run_rows(p, random_of[isa], &j, runs * j.n);
  return HP_OK;
}
