/* hyperparallel.h: builders made of several ops, or of rows with lists of numbers. */
#include "base/dtype.h"
#include "ops/ops.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#define HP_API __attribute__((visibility("default")))

/* Poisons the graph with a call that makes no sense; why is printed as printf does. */
__attribute__((format(printf, 3, 4))) static hp_tensor refuse(hp_graph *g, const char *call,
                                                              const char *why, ...) {
  char text[256];
  va_list ap;
  if (g->failure.code) return HP_NONE;
  va_start(ap, why);
  vsnprintf(text, sizeof text, why, ap);
  va_end(ap);
  (void)err_set(HP_ERR_ARG, __FILE__, __LINE__, "%s \"%s\": %s", call, graph_str(g, g->loc), text);
  graph_poison(g, HP_ERR_ARG);
  return HP_NONE;
}

/* A list that is needed and is not there. */
static bool is_missing(hp_graph *g, const char *call, const void *list, const char *name) {
  if (list) return false;
  refuse(g, call, "the list `%s` is NULL", name);
  return true;
}

/* --- reductions --------------------------------------------------------------------------- */

HP_API hp_tensor hp_amax(hp_graph *g, hp_tensor x, const int64_t *axes, int n, bool keep) {
  if (!ops_is_value(g, OP_REDUCE_MAX, x) || (n && is_missing(g, "hp_amax", axes, "axes")))
    return HP_NONE;
  return ops_max(g, x, axes, n, keep);
}

/* The sum of 16-bit numbers is divided before it is rounded. */
HP_API hp_tensor hp_mean(hp_graph *g, hp_tensor x, const int64_t *axes, int n, bool keep) {
  if (!ops_is_value(g, OP_SUM, x) || (n && is_missing(g, "hp_mean", axes, "axes"))) return HP_NONE;
  const ir_value of = *graph_value(g, x);
  if (!dtype_is_float(of.dtype))
    return refuse(g, "hp_mean", "the tensor is of %s; cast it to a float dtype first",
                  dtype_name((hp_dtype)of.dtype));
  val sum = ops_sum(g, ops_cast(g, x, HP_F32), axes, n, keep);
  if (!sum) return HP_NONE;
  double count = 1;
  for (int i = 0; i < n; i++) count *= (double)of.dim[axes[i]];
  val mean = ops_binary(g, OP_DIV, sum, ops_const(g, HP_F32, count));
  return ops_cast(g, mean, (hp_dtype)of.dtype);
}

/* --- elements ----------------------------------------------------------------------------- */

/* A bound of an integer tensor is one of its numbers. */
static bool bound_fits(hp_dtype t, double bound) {
  double low = t == HP_I64 ? -0x1p63 : t == HP_I32 ? -0x1p31 : 0;
  double high = t == HP_I64 ? 0x1p63 : t == HP_I32 ? 0x1p31 : 0x1p8;
  return dtype_is_float(t) || isinf(bound) ||
         (bound >= low && bound < high && floor(bound) == bound);
}

HP_API hp_tensor hp_clamp(hp_graph *g, hp_tensor x, double low, double high) {
  if (!ops_is_value(g, OP_MAX, x)) return HP_NONE;
  hp_dtype t = (hp_dtype)graph_value(g, x)->dtype;
  if (!(low <= high))
    return refuse(g, "hp_clamp", "the lower bound %g is above the upper, %g", low, high);
  if (!bound_fits(t, low) || !bound_fits(t, high))
    return refuse(g, "hp_clamp", "bounds %g and %g of a tensor of %s; numbers of it were expected",
                  low, high, dtype_name(t));
  if (low > -INFINITY) x = ops_binary(g, OP_MAX, x, ops_const(g, t, low));
  if (high < INFINITY) x = ops_binary(g, OP_MIN, x, ops_const(g, t, high));
  return x;
}

HP_API hp_tensor hp_pad(hp_graph *g, hp_tensor x, const int64_t *low, const int64_t *high,
                        double value) {
  if (!ops_is_value(g, OP_PAD, x) || is_missing(g, "hp_pad", low, "low") ||
      is_missing(g, "hp_pad", high, "high"))
    return HP_NONE;
  return ops_pad(g, x, low, high, value);
}

HP_API hp_tensor hp_iota(hp_graph *g, hp_dtype t, hp_shape s, int axis) {
  return ops_iota(g, t, s.dim, s.rank, axis);
}

/* --- convolution and pooling ------------------------------------------------------------------ */

/* One number for each spatial dim of x, `none` where it is 0. */
static void put_spatial(attr_record *a, const ir_value *x, const int64_t *list, int64_t none) {
  int64_t number[2];
  int dims = x->rank == 4 ? 2 : 1;
  for (int d = 0; d < dims; d++) number[d] = list[d] ? list[d] : none;
  attr_put_list(a, number, dims);
}

HP_API hp_tensor hp_conv(hp_graph *g, hp_tensor x, hp_tensor w, hp_tensor b,
                         const hp_conv_options *o) {
  static const hp_conv_options usual;
  if (!o) o = &usual;
  if (!ops_is_value(g, OP_CONV, x)) return HP_NONE;
  const ir_value *of = graph_value(g, x);
  attr_record a = {0};
  put_spatial(&a, of, o->stride, 1);
  put_spatial(&a, of, o->pad, 0);
  put_spatial(&a, of, o->dilation, 1);
  attr_put_int(&a, o->groups ? o->groups : 1);
  val y = ops_add(g, OP_CONV, (val[]){x, w}, 2, &a);
  if (!y || b == HP_NONE || !ops_is_value(g, OP_CONV, b)) return b == HP_NONE ? y : HP_NONE;
  int64_t dim[] = {graph_value(g, y)->dim[1], 1, 1};
  b = ops_reshape(g, b, dim, graph_value(g, y)->rank - 1);
  return b ? ops_binary(g, OP_ADD, y, b) : HP_NONE;
}

static bool put_pool(hp_graph *g, const char *call, attr_record *a, hp_tensor x,
                     const hp_pool_options *o) {
  if (!ops_is_value(g, OP_MAX_POOL, x)) return false;
  if (!o) return refuse(g, call, "no options; they name the kernel"), false;
  const ir_value *of = graph_value(g, x);
  int64_t stride[2];
  for (int d = 0; d < 2; d++) stride[d] = o->stride[d] ? o->stride[d] : o->kernel[d];
  put_spatial(a, of, o->kernel, 0);
  put_spatial(a, of, stride, 0);
  put_spatial(a, of, o->pad, 0);
  return true;
}

HP_API hp_tensor hp_max_pool(hp_graph *g, hp_tensor x, const hp_pool_options *o) {
  attr_record a = {0};
  return put_pool(g, "hp_max_pool", &a, x, o) ? ops_add(g, OP_MAX_POOL, &x, 1, &a) : HP_NONE;
}

HP_API hp_tensor hp_avg_pool(hp_graph *g, hp_tensor x, const hp_pool_options *o) {
  attr_record a = {0};
  if (!put_pool(g, "hp_avg_pool", &a, x, o)) return HP_NONE;
  attr_put_int(&a, !o->exclude_pad);
  return ops_add(g, OP_AVG_POOL, &x, 1, &a);
}
