/* Kernels that move elements: copy, update, pad, concat, local_shard.  All are runs of contiguous
 * bytes. */
#include "backend/cpu/cpu_kernel.h"
#include "backend/cpu/rows/rowops.h"
#include "base/dtype.h"
#include "ops/ops.h"

#include <string.h>

enum { PART_BYTES = 256 << 10 };

/* n runs of `bytes` bytes: run i goes from from + i * from_step to to + i * to_step. */
typedef struct {
  char *to;
  const char *from;
  int64_t n, bytes, to_step, from_step, per_part;
} runs;

static void move_part(void *ctx, int64_t part) {
  const runs *r = ctx;
  int64_t first = part * r->per_part,
          last = first + r->per_part < r->n ? first + r->per_part : r->n;
  for (int64_t i = first; i < last; i++)
    memcpy(r->to + i * r->to_step, r->from + i * r->from_step, (size_t)r->bytes);
}

static void move_runs(const cpu_call *c, runs r) {
  if (r.n <= 0 || r.bytes <= 0) return;
  if (r.n == 1 && r.bytes > PART_BYTES) { /* one long run: cut it */
    int64_t whole = r.bytes / PART_BYTES, rest = r.bytes % PART_BYTES;
    if (rest) memcpy(r.to + whole * PART_BYTES, r.from + whole * PART_BYTES, (size_t)rest);
    r = (runs){r.to, r.from, whole, PART_BYTES, PART_BYTES, PART_BYTES, 1};
  }
  r.per_part = PART_BYTES / r.bytes > 0 ? PART_BYTES / r.bytes : 1;
  int64_t parts = (r.n + r.per_part - 1) / r.per_part;
  if (c->stream == STREAM_COMPUTE) pool_run(c->dev->threads, parts, move_part, &r);
  else
    for (int64_t i = 0; i < parts; i++) move_part(&r, i);
}

void cpu_move(const cpu_call *c, void *to, const void *from, int64_t bytes) {
  if (to != from) move_runs(c, (runs){to, from, 1, bytes, 0, 0, 1});
}

hp_status run_copy(const cpu_call *c) {
  cpu_move(c, c->at[1], c->at[0], value_bytes(call_type(c, 0)));
  return HP_OK;
}

/* Bytes of the dims from `axis` on, and the product of the dims before it. */
static int64_t count_inner_bytes(const ir_value *t, int axis) {
  int64_t n = (int64_t)dtype_size((hp_dtype)t->dtype);
  for (int i = axis; i < t->rank; i++) n *= t->dim[i];
  return n;
}
static int64_t outer_count(const ir_value *t, int axis) {
  int64_t n = 1;
  for (int i = 0; i < axis; i++) n *= t->dim[i];
  return n;
}

/* x with y written into it from index pos on; x and the result are mostly the same memory. */
hp_status run_update(const cpu_call *c) {
  const ir_value *x = call_type(c, 0), *y = call_type(c, 1);
  int axis = (int)inst_int(c->p, c->n, "axis");
  const int32_t *pos = c->at[2];
  int64_t n = call_type(c, 2)->rank ? x->dim[0] : 1;
  for (int64_t i = 0; i < n; i++)
    if (pos[i] < 0 || pos[i] > x->dim[axis] - y->dim[axis])
      HP_FAIL(HP_ERR_ARG, "update \"%s\": %lld elements from index %d on do not fit in %lld",
              program_str(c->p, c->n->loc), (long long)y->dim[axis], pos[i],
              (long long)x->dim[axis]);
  cpu_move(c, c->at[3], c->at[0], value_bytes(x));
  int64_t step = count_inner_bytes(x, axis), run = count_inner_bytes(y, axis);
  int64_t each = n ? outer_count(x, axis) / n : 0;
  for (int64_t i = 0; i < n; i++) {
    char *to = (char *)c->at[3] + i * each * step + pos[i] * count_inner_bytes(x, axis + 1);
    move_runs(c, (runs){to, (char *)c->at[1] + i * each * run, each, run, step, run, 1});
  }
  return HP_OK;
}

hp_status run_concat(const cpu_call *c) {
  const ir_value *out = call_type(c, c->n->n_in);
  int axis = (int)inst_int(c->p, c->n, "axis");
  char *to = c->at[c->n->n_in];
  for (int i = 0; i < c->n->n_in; i++) {
    int64_t run = count_inner_bytes(call_type(c, i), axis);
    move_runs(c, (runs){to, c->at[i], outer_count(out, axis), run, count_inner_bytes(out, axis),
                        run, 1});
    to += run;
  }
  return HP_OK;
}

/* The layout of `whole`, or of the box of it that `part` fills. */
static row_layout make_row_layout(const ir_value *part, const ir_value *whole) {
  row_layout l = {.rank = part->rank};
  int64_t from = 1, to = 1;
  for (int d = part->rank - 1; d >= 0; d--) {
    l.dim[d] = part->dim[d];
    l.from[d] = from;
    l.to[d] = to;
    from *= part->dim[d];
    to *= whole->dim[d];
  }
  return l;
}

/* The value everywhere, then the operand in its place. */
hp_status run_pad(const cpu_call *c) {
  const ir_value *x = call_type(c, 0), *y = call_type(c, 1);
  int64_t lo[ATTR_LIST_MAX], first = 0;
  size_t size = dtype_size((hp_dtype)y->dtype);
  float value = (float)inst_float(c->p, c->n, "value");
  int64_t bits = ops_const_int(inst_float(c->p, c->n, "value"));
  if (y->dtype == HP_BOOL) bits = bits != 0;
  if (dtype_is_float((hp_dtype)y->dtype))
    HP_TRY(dtype_convert((hp_dtype)y->dtype, &bits, HP_F32, &value, 1));
  row_layout all = make_row_layout(y, y), part = make_row_layout(x, y);
  HP_TRY(row_fill(c->dev->threads, &all, size, &bits, c->at[1]));
  inst_list(c->p, c->n, "lo", lo);
  for (int d = 0; d < x->rank; d++) first += lo[d] * part.to[d];
  return row_copy(c->dev->threads, &part, size, c->at[0], (char *)c->at[1] + first * (int64_t)size);
}

/* The device's own shard of a dim. */
hp_status run_local_shard(const cpu_call *c) {
  const ir_value *x = call_type(c, 0), *y = call_type(c, 1);
  int dim = (int)inst_int(c->p, c->n, "dim");
  int64_t from = count_inner_bytes(x, dim), to = count_inner_bytes(y, dim);
  const char *own = (const char *)c->at[0] + c->place * to;
  move_runs(c, (runs){c->at[1], own, outer_count(x, dim), to, to, from, 1});
  return HP_OK;
}
