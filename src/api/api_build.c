/* hyperparallel.h: builders made of several ops, or of rows with lists of numbers. */
#include "api/api_call.h"
#include "base/dtype.h"
#include "ops/ops.h"

#include <math.h>

/* --- reductions --------------------------------------------------------------------------- */

HP_API hp_tensor hp_amax(hp_graph *g, hp_tensor x, const int64_t *axes, int n, bool keep) {
  API_BUILD(g, "x", HP_NONE);
  val v = API_VALUE(g, x);
  if (!v || (n && !api_need_given(g, axes, "axes"))) return HP_NONE;
  return api_tensor(g, ops_max(g, v, axes, n, keep));
}

/* The sum of 16-bit numbers is divided before it is rounded. */
HP_API hp_tensor hp_mean(hp_graph *g, hp_tensor x, const int64_t *axes, int n, bool keep) {
  API_BUILD(g, "x", HP_NONE);
  val v = API_VALUE(g, x);
  if (!v || (n && !api_need_given(g, axes, "axes"))) return HP_NONE;
  const ir_value of = *graph_value(g, v);
  if (!dtype_is_float(of.dtype))
    return ops_refuse(g, 0, "x is of %s; hp_cast it to a float dtype first",
                      dtype_name((hp_dtype)of.dtype));
  val sum = ops_sum(g, ops_cast(g, v, HP_F32), axes, n, keep);
  if (!sum) return HP_NONE;
  double count = 1;
  for (int i = 0; i < n; i++) count *= (double)of.dim[axes[i]];
  val mean = ops_binary(g, OP_DIV, sum, ops_const(g, HP_F32, count));
  return api_tensor(g, ops_cast(g, mean, (hp_dtype)of.dtype));
}

/* --- elements ----------------------------------------------------------------------------- */

HP_API hp_tensor hp_clamp(hp_graph *g, hp_tensor x, double low, double high) {
  API_BUILD(g, "x", HP_NONE);
  val v = API_VALUE(g, x);
  if (!v) return HP_NONE;
  hp_dtype t = (hp_dtype)graph_value(g, v)->dtype;
  if (!(low <= high))
    return ops_refuse(g, 0, "low is %g, high %g; low <= high was expected", low, high);
  if (low > -INFINITY) v = ops_binary(g, OP_MAX, v, api_number(g, t, low, "low"));
  if (high < INFINITY) v = ops_binary(g, OP_MIN, v, api_number(g, t, high, "high"));
  return api_tensor(g, v);
}

HP_API hp_tensor hp_pad(hp_graph *g, hp_tensor x, const int64_t *low, const int64_t *high,
                        double value) {
  API_BUILD(g, "x", HP_NONE);
  val v = API_VALUE(g, x);
  if (!api_need_given(g, low, "low") || !api_need_given(g, high, "high")) return HP_NONE;
  if (!v || !api_need_number(g, (hp_dtype)graph_value(g, v)->dtype, value, "value")) return HP_NONE;
  return api_tensor(g, ops_pad(g, v, low, high, value));
}

/* So many numbers from 0 on are all different in t, and none is rounded. */
static int64_t counts(hp_dtype t) {
  static const int64_t most[HP_DTYPE_COUNT] = {[HP_F32] = (1 << 24) + 1,
                                               [HP_BF16] = (1 << 8) + 1,
                                               [HP_F16] = (1 << 11) + 1,
                                               [HP_I32] = (int64_t)INT32_MAX + 1,
                                               [HP_I64] = (int64_t)INT64_MAX,
                                               [HP_U8] = 256,
                                               [HP_BOOL] = 2};
  return most[t];
}

HP_API hp_tensor hp_iota(hp_graph *g, hp_dtype t, hp_shape s, int axis) {
  API_BUILD(g, NULL, HP_NONE);
  if (!api_need_dtype(g, t, "t") || !api_need_shape(g, &s, "s")) return HP_NONE;
  if (axis >= 0 && axis < s.rank && s.dim[axis] > counts(t))
    return ops_refuse(g, 0, "dim %d of s is %lld; %s counts to %lld: a wider dtype was expected",
                      axis, (long long)s.dim[axis], dtype_name(t), (long long)counts(t) - 1);
  return api_tensor(g, ops_iota(g, t, s.dim, s.rank, axis));
}

/* --- tiers -------------------------------------------------------------------------------- */

HP_API hp_tensor hp_offload(hp_graph *g, hp_tensor x, int tier) {
  API_BUILD(g, "x", HP_NONE);
  val v = API_VALUE(g, x);
  if (!v) return HP_NONE;
  if (tier != HP_OFFLOAD_HOST && tier != HP_OFFLOAD_FLASH)
    return ops_refuse(g, 0, "tier is %d; HP_OFFLOAD_HOST or HP_OFFLOAD_FLASH was expected", tier);
  return api_tensor(g, ops_offload(g, v, tier == HP_OFFLOAD_HOST ? TIER_HOST : TIER_FLASH));
}

HP_API hp_tensor hp_fetch(hp_graph *g, hp_tensor x) {
  API_BUILD(g, "x", HP_NONE);
  val v = API_VALUE(g, x);
  if (!v) return HP_NONE;
  if (ops_tier(g, v) == TIER_DEVICE)
    return ops_refuse(g, 0, "x is on the device; the result of hp_offload was expected");
  return api_tensor(g, ops_fetch(g, v));
}

HP_API hp_tensor hp_detach(hp_graph *g, hp_tensor x) {
  API_BUILD(g, "x", HP_NONE);
  val v = API_VALUE(g, x);
  return v ? api_tensor(g, ops_fetch(g, ops_offload(g, v, TIER_HOST))) : HP_NONE;
}

/* --- convolution and pooling ------------------------------------------------------------------ */

/* One number for each spatial dim of x, `none` where it is 0. */
static void put_spatial(hp_graph *g, attr_record *a, val x, const char *name, const int64_t *list,
                        int64_t none) {
  int64_t number[2];
  int rank = graph_value(g, x)->rank, dims = rank == 4 ? 2 : 1;
  for (int d = 0; d < dims; d++) number[d] = list[d] ? list[d] : none;
  attr_put_list(a, number, dims);
  if (rank == 3 && list[1])
    ops_refuse(g, 0, "o->%s has a second number, %lld, x one spatial dim; 0 was expected", name,
               (long long)list[1]);
}

/* b has a number of x's dtype for each channel that the weights give. */
static bool check_bias(hp_graph *g, const val *in, val b) {
  const ir_value *x = graph_value(g, in[0]), *w = graph_value(g, in[1]), *have = graph_value(g, b);
  ir_value want = {.dtype = x->dtype, .rank = 1, .dim = {w->rank ? w->dim[0] : 0}};
  if (have->dtype == want.dtype && value_same_shape(have, &want)) return true;
  infer_ctx c = {.g = g, .in = &b, .node.loc = g->loc};
  str text = {0};
  value_print(&want, &text);
  graph_poison(g, ops_fail(&c, "b is %s; %s was expected, a number for each channel of the result",
                           ops_type(&c, 0), text.at ? text.at : ""));
  str_free(&text);
  return false;
}

HP_API hp_tensor hp_conv(hp_graph *g, hp_tensor x, hp_tensor w, hp_tensor b,
                         const hp_conv_options *o) {
  API_BUILD(g, "x w", HP_NONE);
  static const hp_conv_options usual;
  if (!o) o = &usual;
  val in[2] = {API_VALUE(g, x), API_VALUE(g, w)}, bias = api_value_or_none(g, b, "b");
  if (g->failure.code) return HP_NONE;
  attr_record a = {0};
  put_spatial(g, &a, in[0], "stride", o->stride, 1);
  put_spatial(g, &a, in[0], "pad", o->pad, 0);
  put_spatial(g, &a, in[0], "dilation", o->dilation, 1);
  attr_put_int(&a, o->groups ? o->groups : 1);
  if (g->failure.code || (bias && !check_bias(g, in, bias))) return HP_NONE;
  val y = ops_add(g, OP_CONV, in, 2, &a);
  if (!y || !bias) return api_tensor(g, y);
  int64_t dim[] = {graph_value(g, y)->dim[1], 1, 1};
  bias = ops_reshape(g, bias, dim, graph_value(g, y)->rank - 1);
  return bias ? api_tensor(g, ops_binary(g, OP_ADD, y, bias)) : HP_NONE;
}

static bool put_pool(hp_graph *g, attr_record *a, val x, const hp_pool_options *o) {
  if (!x || !api_need_given(g, o, "o")) return false;
  int64_t stride[2];
  for (int d = 0; d < 2; d++) stride[d] = o->stride[d] ? o->stride[d] : o->kernel[d];
  put_spatial(g, a, x, "kernel", o->kernel, 0);
  put_spatial(g, a, x, "stride", stride, 0);
  put_spatial(g, a, x, "pad", o->pad, 0);
  return !g->failure.code;
}

HP_API hp_tensor hp_max_pool(hp_graph *g, hp_tensor x, const hp_pool_options *o) {
  API_BUILD(g, "x", HP_NONE);
  attr_record a = {0};
  val v = API_VALUE(g, x);
  return put_pool(g, &a, v, o) ? api_tensor(g, ops_add(g, OP_MAX_POOL, &v, 1, &a)) : HP_NONE;
}

HP_API hp_tensor hp_avg_pool(hp_graph *g, hp_tensor x, const hp_pool_options *o) {
  API_BUILD(g, "x", HP_NONE);
  attr_record a = {0};
  val v = API_VALUE(g, x);
  if (!put_pool(g, &a, v, o)) return HP_NONE;
  attr_put_int(&a, !o->exclude_pad);
  return api_tensor(g, ops_add(g, OP_AVG_POOL, &v, 1, &a));
}
