/* What devices do together: shapes of a device's part before and after. */
#include "base/dtype.h"
#include "ops/ops.h"

/* Attribute `key` as a dim of the operand; devices `n` at least 1. */
static hp_status read_dim(infer_ctx *c, const char *key, int64_t *dim, int64_t *n) {
  const ir_value *x = graph_value(c->g, c->in[0]);
  *dim = attr_int(c->g, &c->node, key);
  *n = attr_int(c->g, &c->node, "n");
  if (*n < 1) return ops_fail(c, "of %lld devices", (long long)*n);
  if (*dim < 0 || *dim >= x->rank)
    return ops_fail(c, "%lld is not a dim of %s", (long long)*dim, ops_type(c, 0));
  return HP_OK;
}

static hp_status cut_dim(infer_ctx *c, int64_t dim, int64_t n) {
  if (c->out[0].dim[dim] % n)
    return ops_fail(c, "dim %lld of %s is not divided by %lld", (long long)dim, ops_type(c, 0),
                    (long long)n);
  c->out[0].dim[dim] /= n;
  return HP_OK;
}

static hp_status join_dim(infer_ctx *c, int64_t dim, int64_t n) {
  if (__builtin_mul_overflow(c->out[0].dim[dim], n, &c->out[0].dim[dim]))
    return ops_fail(c, "the result is too long");
  return HP_OK;
}

hp_status infer_part(infer_ctx *c) {
  int64_t dim, n;
  HP_TRY(read_dim(c, "dim", &dim, &n));
  HP_TRY(infer_same(c));
  return cut_dim(c, dim, n);
}

hp_status infer_locate(infer_ctx *c) {
  const ir_value *x = graph_value(c->g, c->in[0]);
  int64_t n = attr_int(c->g, &c->node, "n"), size = attr_int(c->g, &c->node, "size");
  if (x->dtype != HP_I32 && x->dtype != HP_I64)
    return ops_fail(c, "the indices are %s, expected i32 or i64", ops_type(c, 0));
  if (n < 1 || size < 0)
    return ops_fail(c, "%lld devices, shards of %lld", (long long)n, (long long)size);
  return infer_same(c);
}

hp_status infer_place(infer_ctx *c) {
  if (graph_value(c->g, c->in[0])->dtype != HP_I32)
    return ops_fail(c, "the operand is %s, expected i32", ops_type(c, 0));
  return infer_same(c);
}

hp_status infer_zigzag(infer_ctx *c) {
  int64_t dim, n;
  HP_TRY(read_dim(c, "dim", &dim, &n));
  HP_TRY(infer_same(c));
  if (c->out[0].dim[dim] % 2)
    return ops_fail(c, "dim %lld of %s has no halves", (long long)dim, ops_type(c, 0));
  return HP_OK;
}

hp_status infer_gather(infer_ctx *c) {
  int64_t dim, n;
  HP_TRY(read_dim(c, "dim", &dim, &n));
  HP_TRY(infer_same(c));
  return join_dim(c, dim, n);
}

hp_status infer_exchange(infer_ctx *c) {
  int64_t dim, to, n;
  HP_TRY(read_dim(c, "dim", &dim, &n));
  HP_TRY(read_dim(c, "to", &to, &n));
  if (dim == to) return ops_fail(c, "dim %lld is both gathered and sharded", (long long)dim);
  HP_TRY(infer_same(c));
  HP_TRY(join_dim(c, dim, n));
  return cut_dim(c, to, n);
}

/* The first dims of `rows` are those of the ids [R...,J], which number its rows. */
static hp_status check_rows(infer_ctx *c, const ir_value *rows, int64_t dim) {
  const ir_value *ids = graph_value(c->g, c->in[1]);
  int dims = ids->rank - 1;
  bool fits = dtype_is_float((hp_dtype)rows->dtype) && ids->dtype == HP_I32 && dims <= rows->rank;
  for (int d = 0; fits && d < dims; d++) fits = ids->dim[d] == rows->dim[d];
  if (!fits || dim >= dims)
    return ops_fail(c,
                    "the rows are %s, their ids %s, dim %lld; expected floats [R...,C...] and "
                    "i32[R...,J] with a dim of R",
                    ops_type(c, 0), ops_type(c, 1), (long long)dim);
  int64_t size = attr_int(c->g, &c->node, "size"), shards = attr_int(c->g, &c->node, "shards");
  int64_t groups = attr_int(c->g, &c->node, "groups");
  if (size < 1 || shards < 1 || groups < 1 || shards % groups || shards > INT32_MAX / size)
    return ops_fail(c, "%lld shards of %lld experts, in %lld groups; expected 1 or more of each",
                    (long long)shards, (long long)size, (long long)groups);
  return HP_OK;
}

/* One less the share of ways to choose `slots` of all experts without one of the group. */
double ops_needed_share(int64_t experts, int64_t groups, int64_t slots) {
  double none = 1, all = (double)experts, others = all - all / (double)groups;
  for (int64_t i = 0; i < slots && none > 0; i++)
    none *= others > (double)i ? (others - (double)i) / (all - (double)i) : 0;
  return 1 - none;
}

hp_status infer_dispatch(infer_ctx *c) {
  HP_TRY(infer_gather(c));
  return check_rows(c, &c->out[0], attr_int(c->g, &c->node, "dim"));
}

hp_status infer_combine(infer_ctx *c) {
  HP_TRY(check_rows(c, graph_value(c->g, c->in[0]), attr_int(c->g, &c->node, "dim")));
  return infer_part(c);
}
