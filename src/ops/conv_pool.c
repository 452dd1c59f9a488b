/* Convolution and pooling over one or two spatial dims: tensors [N,C,L] or [N,C,H,W], weights
 * [O,C/groups,K] or [O,C/groups,KH,KW]. */
#include "base/dtype.h"
#include "ops/ops.h"

#include <stdio.h>
#include <string.h>

enum { SPATIAL_MAX = 2 };

/* What a window does along the spatial dims. */
typedef struct {
  int dims;
  int64_t size[SPATIAL_MAX], kernel[SPATIAL_MAX], stride[SPATIAL_MAX], pad[SPATIAL_MAX],
      dilation[SPATIAL_MAX];
} window;

static const int64_t list_limit = 1 << 30, padded_limit = (int64_t)1 << 40;

/* The attribute `key`: one number of at least `least` for each spatial dim. */
static hp_status read_list(infer_ctx *c, const char *key, int dims, int64_t least, int64_t *to) {
  int64_t list[ATTR_LIST_MAX];
  int n = attr_list(c->g, &c->node, key, list);
  if (n != dims)
    return ops_fail(c, "%s has %d numbers; one for each of %d spatial dims was expected", key, n,
                    dims);
  for (int d = 0; d < dims; d++) {
    if (list[d] < least || list[d] > list_limit)
      return ops_fail(c, "%s is %lld along spatial dim %d; %lld to %lld was expected", key,
                      (long long)list[d], d, (long long)least, (long long)list_limit);
    to[d] = list[d];
  }
  return HP_OK;
}

/* Operand i is [N,C,L] or [N,C,H,W] of floats: the number of spatial dims. */
static hp_status read_image(infer_ctx *c, int i, window *w) {
  const ir_value *x = graph_value(c->g, c->in[i]);
  if (!dtype_is_float(x->dtype) || (x->rank != 3 && x->rank != 4))
    return ops_fail(c, "%s is %s; [N,C,L] or [N,C,H,W] of a float dtype was expected",
                    ops_operand(c, i), ops_type(c, i));
  w->dims = x->rank - 2;
  for (int d = 0; d < w->dims; d++) w->size[d] = x->dim[2 + d];
  return HP_OK;
}

/* How often the window fits along each spatial dim of `x`, the name of an operand or of what is
 * given.  An empty image is refused, as in PyTorch, whatever its padding. */
static hp_status count_windows(infer_ctx *c, const window *w, const char *x, int64_t *result) {
  double padded = 1;
  for (int d = 0; d < w->dims; d++) {
    if (w->size[d] == 0)
      return ops_fail(c, "%s is empty along spatial dim %d; 1 or more was expected", x, d);
    int64_t have = w->size[d] + 2 * w->pad[d], need = w->dilation[d] * (w->kernel[d] - 1) + 1;
    if (need > have)
      return ops_fail(c,
                      "the kernel covers %lld along spatial dim %d, %s has %lld with its padding; "
                      "a smaller kernel or more padding was expected",
                      (long long)need, d, x, (long long)have);
    result[d] = (have - need) / w->stride[d] + 1;
    padded *= (double)have;
  }
  if (padded > (double)padded_limit)
    return ops_fail(c, "%s has %.0f places with its padding; %lld at most was expected", x, padded,
                    (long long)padded_limit);
  return HP_OK;
}

static void set_out(infer_ctx *c, hp_dtype t, int64_t n, int64_t channels, const int64_t *spatial,
                    int dims) {
  ir_value *o = &c->out[0];
  *o = (ir_value){.dtype = (uint8_t)t, .rank = (uint8_t)(2 + dims)};
  o->dim[0] = n;
  o->dim[1] = channels;
  for (int d = 0; d < dims; d++) o->dim[2 + d] = spatial[d];
}

/* --- convolution ------------------------------------------------------------------------------ */

static hp_status read_window(infer_ctx *c, window *w) {
  HP_TRY(read_list(c, "stride", w->dims, 1, w->stride));
  HP_TRY(read_list(c, "pad", w->dims, 0, w->pad));
  return read_list(c, "dilation", w->dims, 1, w->dilation);
}

/* The kernel's size, from operand 1, the weights. */
static hp_status read_kernel(infer_ctx *c, window *w) {
  const ir_value *weights = graph_value(c->g, c->in[1]);
  for (int d = 0; d < w->dims; d++) {
    w->kernel[d] = weights->dim[2 + d];
    if (w->kernel[d] < 1 || w->kernel[d] > list_limit)
      return ops_fail(c, "%s is %s, a kernel of %lld along spatial dim %d; 1 to %lld was expected",
                      ops_operand(c, 1), ops_type(c, 1), (long long)w->kernel[d], d,
                      (long long)list_limit);
  }
  return HP_OK;
}

static hp_status want_one_type(infer_ctx *c, int dims) {
  const ir_value *a = graph_value(c->g, c->in[0]), *b = graph_value(c->g, c->in[1]);
  if (a->dtype != b->dtype || b->rank != 2 + dims)
    return ops_fail(c, "%s is %s, %s is %s; two of one dtype and rank were expected",
                    ops_operand(c, 0), ops_type(c, 0), ops_operand(c, 1), ops_type(c, 1));
  return HP_OK;
}

/* Channels of x and y and the groups that both are in. */
static hp_status want_groups(infer_ctx *c, int64_t in, int64_t out) {
  int64_t groups = attr_int(c->g, &c->node, "groups");
  if (in < 1 || out < 1)
    return ops_fail(c, "%lld channels become %lld; 1 or more of both were expected", (long long)in,
                    (long long)out);
  if (groups < 1 || in % groups || out % groups)
    return ops_fail(c,
                    "%lld channels become %lld in %lld groups; groups that divide both were "
                    "expected",
                    (long long)in, (long long)out, (long long)groups);
  return HP_OK;
}

hp_status infer_conv(infer_ctx *c) {
  const ir_value *x = graph_value(c->g, c->in[0]), *w = graph_value(c->g, c->in[1]);
  int64_t groups = attr_int(c->g, &c->node, "groups"), result[SPATIAL_MAX];
  window win;
  HP_TRY(read_image(c, 0, &win));
  HP_TRY(want_one_type(c, win.dims));
  HP_TRY(want_groups(c, x->dim[1], w->dim[0]));
  if (w->dim[1] != x->dim[1] / groups)
    return ops_fail(c, "%s is %s, %s is %s, groups %lld; weights of %lld channels were expected",
                    ops_operand(c, 0), ops_type(c, 0), ops_operand(c, 1), ops_type(c, 1),
                    (long long)groups, (long long)(x->dim[1] / groups));
  HP_TRY(read_window(c, &win));
  HP_TRY(read_kernel(c, &win));
  HP_TRY(count_windows(c, &win, ops_operand(c, 0), result));
  set_out(c, (hp_dtype)x->dtype, x->dim[0], w->dim[0], result, win.dims);
  return HP_OK;
}

/* dy is what a window over `size` gives; else a message says what is. */
static hp_status want_result(infer_ctx *c, int i, const window *w) {
  const ir_value *dy = graph_value(c->g, c->in[i]);
  int64_t result[SPATIAL_MAX];
  HP_TRY(count_windows(c, w, "x", result));
  for (int d = 0; d < w->dims; d++)
    if (dy->dim[2 + d] != result[d])
      return ops_fail(c, "dy is %s; %lld along spatial dim %d was expected", ops_type(c, i),
                      (long long)result[d], d);
  return HP_OK;
}

hp_status infer_conv_dx(infer_ctx *c) {
  const ir_value *dy = graph_value(c->g, c->in[0]), *w = graph_value(c->g, c->in[1]);
  int64_t groups = attr_int(c->g, &c->node, "groups"), in;
  window win;
  HP_TRY(read_image(c, 0, &win));
  HP_TRY(want_one_type(c, win.dims));
  if (groups < 1 || __builtin_mul_overflow(w->dim[1], groups, &in))
    return ops_fail(c, "groups is %lld", (long long)groups);
  HP_TRY(want_groups(c, in, w->dim[0]));
  if (dy->dim[1] != w->dim[0])
    return ops_fail(c, "dy is %s, the weights %s; dy of their channels was expected",
                    ops_type(c, 0), ops_type(c, 1));
  HP_TRY(read_window(c, &win));
  HP_TRY(read_list(c, "size", win.dims, 0, win.size));
  HP_TRY(read_kernel(c, &win));
  HP_TRY(want_result(c, 0, &win));
  set_out(c, (hp_dtype)dy->dtype, dy->dim[0], in, win.size, win.dims);
  return HP_OK;
}

hp_status infer_conv_dw(infer_ctx *c) {
  const ir_value *x = graph_value(c->g, c->in[0]), *dy = graph_value(c->g, c->in[1]);
  window win;
  HP_TRY(read_image(c, 0, &win));
  HP_TRY(want_one_type(c, win.dims));
  HP_TRY(want_groups(c, x->dim[1], dy->dim[1]));
  if (dy->dim[0] != x->dim[0])
    return ops_fail(c, "x is %s, dy is %s; as many images were expected", ops_type(c, 0),
                    ops_type(c, 1));
  HP_TRY(read_window(c, &win));
  HP_TRY(read_list(c, "kernel", win.dims, 1, win.kernel));
  HP_TRY(want_result(c, 1, &win));
  set_out(c, (hp_dtype)x->dtype, dy->dim[1], x->dim[1] / attr_int(c->g, &c->node, "groups"),
          win.kernel, win.dims);
  return HP_OK;
}

static void put_attr_list(attr_record *a, const grad_ctx *c, const char *key) {
  int64_t list[ATTR_LIST_MAX];
  int n = attr_list(c->g, &c->node, key, list);
  attr_put_list(a, list, n);
}

/* One of the three rows on a and b, with the window of c's node; the two gradients also get the
 * spatial dims of `like`: of x, or of the weights. */
static val add_conv(const grad_ctx *c, int op, val a, val b, val like) {
  attr_record r = {0};
  if (op != OP_CONV) {
    const ir_value *v = graph_value(c->g, like);
    attr_put_list(&r, v->dim + 2, v->rank - 2);
  }
  put_attr_list(&r, c, "stride");
  put_attr_list(&r, c, "pad");
  put_attr_list(&r, c, "dilation");
  attr_put_int(&r, attr_int(c->g, &c->node, "groups"));
  return ops_add(c->g, op, (val[]){a, b}, 2, &r);
}

/* y = conv(x, w), dx = conv_dx(dy, w) and dw = conv_dw(x, dy) are linear in both: the gradient
 * of each is made of the two others. */
void grad_conv(grad_ctx *c) {
  c->din[0] = add_conv(c, OP_CONV_DX, c->dout[0], c->in[1], c->in[0]);
  c->din[1] = add_conv(c, OP_CONV_DW, c->in[0], c->dout[0], c->in[1]);
}
void grad_conv_dx(grad_ctx *c) {
  c->din[0] = add_conv(c, OP_CONV, c->dout[0], c->in[1], 0);
  c->din[1] = add_conv(c, OP_CONV_DW, c->dout[0], c->in[0], c->in[1]);
}
void grad_conv_dw(grad_ctx *c) {
  c->din[0] = add_conv(c, OP_CONV_DX, c->in[1], c->dout[0], c->in[0]);
  c->din[1] = add_conv(c, OP_CONV, c->in[0], c->dout[0], 0);
}

/* Of all three: each element of y takes a product with every weight of its channel. */
op_cost cost_conv(const hp_graph *g, const ir_node *n) {
  op_cost k = cost_copy(g, n);
  const val *in = graph_in(g, n);
  const ir_value *w = graph_value(g, n->op == OP_CONV_DW ? n->out0 : in[1]);
  const ir_value *y = graph_value(g, n->op == OP_CONV ? n->out0 : in[n->op == OP_CONV_DW]);
  double taps = 1;
  for (int d = 1; d < w->rank; d++) taps *= (double)w->dim[d];
  k.flops = 2 * taps * (double)value_elements(y);
  return k;
}

/* --- pooling ---------------------------------------------------------------------------------- */

static hp_status read_pool(infer_ctx *c, window *w) {
  HP_TRY(read_list(c, "kernel", w->dims, 1, w->kernel));
  HP_TRY(read_list(c, "stride", w->dims, 1, w->stride));
  HP_TRY(read_list(c, "pad", w->dims, 0, w->pad));
  for (int d = 0; d < w->dims; d++) {
    w->dilation[d] = 1;
    if (w->pad[d] > w->kernel[d] / 2)
      return ops_fail(c,
                      "pad is %lld along spatial dim %d; at most half of the kernel, %lld, was "
                      "expected",
                      (long long)w->pad[d], d, (long long)(w->kernel[d] / 2));
  }
  return HP_OK;
}

hp_status infer_pool(infer_ctx *c) {
  const ir_value *x = graph_value(c->g, c->in[0]);
  int64_t result[SPATIAL_MAX];
  window w;
  HP_TRY(read_image(c, 0, &w));
  HP_TRY(read_pool(c, &w));
  HP_TRY(count_windows(c, &w, ops_operand(c, 0), result));
  set_out(c, (hp_dtype)x->dtype, x->dim[0], x->dim[1], result, w.dims);
  return HP_OK;
}

/* dy of a pool over `size`, with the images and channels of operand 0. */
static hp_status infer_pool_dx(infer_ctx *c, window *w) {
  const ir_value *dy = graph_value(c->g, c->in[0]);
  HP_TRY(read_pool(c, w));
  HP_TRY(want_result(c, 0, w));
  set_out(c, (hp_dtype)dy->dtype, dy->dim[0], dy->dim[1], w->size, w->dims);
  return HP_OK;
}

hp_status infer_max_pool_dx(infer_ctx *c) {
  const ir_value *dy = graph_value(c->g, c->in[0]), *x = graph_value(c->g, c->in[1]);
  window w;
  HP_TRY(read_image(c, 0, &w));
  HP_TRY(read_image(c, 1, &w));
  if (dy->dtype != x->dtype || dy->rank != x->rank || dy->dim[0] != x->dim[0] ||
      dy->dim[1] != x->dim[1])
    return ops_fail(c, "dy is %s, x is %s; the same images and channels were expected",
                    ops_type(c, 0), ops_type(c, 1));
  return infer_pool_dx(c, &w);
}

hp_status infer_avg_pool_dx(infer_ctx *c) {
  window w;
  HP_TRY(read_image(c, 0, &w));
  HP_TRY(read_list(c, "size", w.dims, 0, w.size));
  return infer_pool_dx(c, &w);
}

static void put_window(attr_record *a, const grad_ctx *c) {
  put_attr_list(a, c, "kernel");
  put_attr_list(a, c, "stride");
  put_attr_list(a, c, "pad");
}

void grad_max_pool(grad_ctx *c) {
  attr_record a = {0};
  put_window(&a, c);
  c->din[0] = ops_add(c->g, OP_MAX_POOL_DX, (val[]){c->dout[0], c->in[0]}, 2, &a);
}

void grad_avg_pool(grad_ctx *c) {
  attr_record a = {0};
  const ir_value *x = graph_value(c->g, c->in[0]);
  attr_put_list(&a, x->dim + 2, x->rank - 2);
  put_window(&a, c);
  attr_put_int(&a, attr_int(c->g, &c->node, "include_pad"));
  c->din[0] = ops_add(c->g, OP_AVG_POOL_DX, c->dout, 1, &a);
}

void grad_avg_pool_dx(grad_ctx *c) {
  attr_record a = {0};
  put_window(&a, c);
  attr_put_int(&a, attr_int(c->g, &c->node, "include_pad"));
  c->din[0] = ops_add(c->g, OP_AVG_POOL, c->dout, 1, &a);
}

op_cost cost_pool(const hp_graph *g, const ir_node *n) {
  op_cost k = cost_copy(g, n);
  int64_t kernel[ATTR_LIST_MAX];
  int dims = attr_list(g, n, "kernel", kernel);
  bool forward = n->op == OP_MAX_POOL || n->op == OP_AVG_POOL;
  k.flops = (double)value_elements(graph_value(g, forward ? n->out0 : graph_in(g, n)[0]));
  for (int d = 0; d < dims; d++) k.flops *= (double)kernel[d];
  return k;
}
