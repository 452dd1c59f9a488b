/* Elementwise ops. */
#include "ops/ops.h"

#include "base/dtype.h"

#include <math.h>
#include <stdio.h>

/* --- shapes ------------------------------------------------------------------------------ */

hp_status infer_same(infer_ctx *c) {
  c->out[0] = *graph_value(c->g, c->in[0]);
  c->out[0].layout = 0;
  return HP_OK;
}

static hp_status want_float(infer_ctx *c, int i) {
  if (!dtype_is_float(graph_value(c->g, c->in[i])->dtype))
    return ops_fail(c, "%s is %s, a float dtype was expected", ops_operand(c, i), ops_type(c, i));
  return HP_OK;
}

hp_status infer_float(infer_ctx *c) {
  HP_TRY(want_float(c, 0));
  return infer_same(c);
}

/* The broadcast shape of all operands, aligned at the last dim. */
static hp_status broadcast_shape(infer_ctx *c, int first) {
  ir_value *o = &c->out[0];
  o->rank = 0;
  for (int i = first; i < c->node.n_in; i++) {
    const ir_value *v = graph_value(c->g, c->in[i]);
    if (v->rank > o->rank) o->rank = v->rank;
  }
  for (int d = 0; d < o->rank; d++) o->dim[d] = 1;
  for (int i = first; i < c->node.n_in; i++) {
    const ir_value *v = graph_value(c->g, c->in[i]);
    for (int d = 0; d < v->rank; d++) {
      int64_t *to = &o->dim[d + o->rank - v->rank];
      if (*to == 1) *to = v->dim[d];
      else if (v->dim[d] != 1 && v->dim[d] != *to)
        return ops_fail(
            c, "%s is %s, %s is %s; they do not broadcast: %lld != %lld in dim %d from the right",
            ops_operand(c, first), ops_type(c, first), ops_operand(c, i), ops_type(c, i),
            (long long)*to, (long long)v->dim[d], v->rank - d);
    }
  }
  return HP_OK;
}

static hp_status want_same_dtype(infer_ctx *c, int a, int b) {
  if (graph_value(c->g, c->in[a])->dtype != graph_value(c->g, c->in[b])->dtype)
    return ops_fail(c, "%s is %s, %s is %s; cast one, dtypes must be equal", ops_operand(c, a),
                    ops_type(c, a), ops_operand(c, b), ops_type(c, b));
  return HP_OK;
}

hp_status infer_bcast(infer_ctx *c) {
  HP_TRY(want_same_dtype(c, 0, 1));
  c->out[0].dtype = graph_value(c->g, c->in[0])->dtype;
  return broadcast_shape(c, 0);
}

hp_status infer_bcast_float(infer_ctx *c) {
  HP_TRY(want_float(c, 0));
  return infer_bcast(c);
}

hp_status infer_compare(infer_ctx *c) {
  HP_TRY(infer_bcast(c));
  c->out[0].dtype = HP_BOOL;
  return HP_OK;
}

hp_status infer_bool(infer_ctx *c) {
  for (int i = 0; i < c->node.n_in; i++)
    if (graph_value(c->g, c->in[i])->dtype != HP_BOOL)
      return ops_fail(c, "%s is %s, bool was expected", ops_operand(c, i), ops_type(c, i));
  c->out[0].dtype = HP_BOOL;
  return broadcast_shape(c, 0);
}

hp_status infer_select(infer_ctx *c) {
  if (graph_value(c->g, c->in[0])->dtype != HP_BOOL)
    return ops_fail(c, "the condition is %s, bool was expected", ops_type(c, 0));
  HP_TRY(want_same_dtype(c, 1, 2));
  c->out[0].dtype = graph_value(c->g, c->in[1])->dtype;
  return broadcast_shape(c, 0);
}

hp_status infer_cast(infer_ctx *c) {
  HP_TRY(infer_same(c));
  c->out[0].dtype = (uint8_t)attr_int(c->g, &c->node, "dtype");
  return HP_OK;
}

/* --- gradients: x the operand, y the result, dy its gradient ------------------------------- */

#define G  (c->g)
#define X  (c->in[0])
#define Y  (c->out[0])
#define DY (c->dout[0])

static val add_mul(grad_ctx *c, val a, val b) { return ops_binary(G, OP_MUL, a, b); }
static val add_one_minus(grad_ctx *c, val x) {
  return ops_binary(G, OP_SUB, ops_const(G, (hp_dtype)graph_value(G, x)->dtype, 1), x);
}

void grad_neg(grad_ctx *c) { c->din[0] = ops_unary(G, OP_NEG, DY); }

/* 0 at 0, as PyTorch has it. */
void grad_abs(grad_ctx *c) { c->din[0] = add_mul(c, DY, ops_unary(G, OP_SIGN, X)); }

void grad_exp(grad_ctx *c) { c->din[0] = add_mul(c, DY, Y); }

void grad_exp2(grad_ctx *c) { c->din[0] = ops_scale(G, add_mul(c, DY, Y), 0.69314718055994530942); }
void grad_log(grad_ctx *c) { c->din[0] = ops_binary(G, OP_DIV, DY, X); }
void grad_log1p(grad_ctx *c) {
  val one = ops_const(G, (hp_dtype)graph_value(G, X)->dtype, 1);
  c->din[0] = ops_binary(G, OP_DIV, DY, ops_binary(G, OP_ADD, X, one));
}
void grad_sqrt(grad_ctx *c) { c->din[0] = ops_scale(G, ops_binary(G, OP_DIV, DY, Y), 0.5); }

/* y = x^-1/2: dy/dx = -y^3 / 2 */
void grad_rsqrt(grad_ctx *c) {
  val y3 = add_mul(c, add_mul(c, Y, Y), Y);
  c->din[0] = ops_scale(G, add_mul(c, DY, y3), -0.5);
}

void grad_recip(grad_ctx *c) {
  c->din[0] = ops_unary(G, OP_NEG, add_mul(c, DY, ops_unary(G, OP_SQUARE, Y)));
}

void grad_square(grad_ctx *c) { c->din[0] = ops_scale(G, add_mul(c, DY, X), 2); }

void grad_tanh(grad_ctx *c) {
  c->din[0] = add_mul(c, DY, add_one_minus(c, ops_unary(G, OP_SQUARE, Y)));
}

void grad_sigmoid(grad_ctx *c) { c->din[0] = add_mul(c, DY, add_mul(c, Y, add_one_minus(c, Y))); }

/* x in f32: a gradient of several steps is rounded to 16 bits once, at its end. */
static val widen_to_f32(grad_ctx *c, val x) { return ops_cast(G, x, HP_F32); }
/* DY slope, in the dtype of x */
static val apply_chain_rule(grad_ctx *c, val slope) {
  val dx = add_mul(c, widen_to_f32(c, DY), slope);
  return ops_cast(G, dx, (hp_dtype)graph_value(G, X)->dtype);
}

/* y = x s(x): dy/dx = s (1 + x (1 - s)) */
void grad_silu(grad_ctx *c) {
  val x = widen_to_f32(c, X), s = ops_unary(G, OP_SIGMOID, x), one = ops_const(G, HP_F32, 1);
  c->din[0] =
      apply_chain_rule(c, add_mul(c, s,
                                  ops_binary(G, OP_ADD, one, add_mul(c, x, add_one_minus(c, s)))));
}

void grad_softplus(grad_ctx *c) { c->din[0] = add_mul(c, DY, ops_unary(G, OP_SIGMOID, X)); }

static const double inv_sqrt_2pi = 0.39894228040143267794, sqrt_half = 0.70710678118654752440;

/* y = x Phi(x): dy/dx = Phi(x) + x phi(x) */
void grad_gelu(grad_ctx *c) {
  val x = widen_to_f32(c, X), one = ops_const(G, HP_F32, 1);
  val erf = ops_unary(G, OP_ERF, ops_scale(G, x, sqrt_half));
  val cdf = ops_scale(G, ops_binary(G, OP_ADD, one, erf), 0.5);
  val pdf = ops_scale(G, ops_unary(G, OP_EXP, ops_scale(G, ops_unary(G, OP_SQUARE, x), -0.5)),
                      inv_sqrt_2pi);
  c->din[0] = apply_chain_rule(c, ops_binary(G, OP_ADD, cdf, add_mul(c, x, pdf)));
}

/* y = x s(u), u = 2 a (x + b x^3): dy/dx = s + x s (1 - s) 2 a (1 + 3 b x^2) */
void grad_gelu_tanh(grad_ctx *c) {
  const double a = 0.79788456080286535588, b = 0.044715;
  val x = widen_to_f32(c, X), x2 = ops_unary(G, OP_SQUARE, x), linear = ops_const(G, HP_F32, 2 * a);
  val u = add_mul(c, x, ops_binary(G, OP_ADD, ops_scale(G, x2, 2 * a * b), linear));
  val du = ops_binary(G, OP_ADD, ops_scale(G, x2, 6 * a * b), linear);
  val s = ops_unary(G, OP_SIGMOID, u);
  val right = add_mul(c, add_mul(c, x, du), add_mul(c, s, add_one_minus(c, s)));
  c->din[0] = apply_chain_rule(c, ops_binary(G, OP_ADD, s, right));
}

void grad_relu(grad_ctx *c) {
  val zero = ops_const(G, (hp_dtype)graph_value(G, X)->dtype, 0);
  c->din[0] = ops_select(G, ops_binary(G, OP_GT, X, zero), DY, zero);
}

void grad_erf(grad_ctx *c) {
  val e = ops_unary(G, OP_EXP, ops_unary(G, OP_NEG, ops_unary(G, OP_SQUARE, X)));
  c->din[0] = ops_scale(G, add_mul(c, DY, e), 1.12837916709551257390);
}

void grad_sin(grad_ctx *c) { c->din[0] = add_mul(c, DY, ops_unary(G, OP_COS, X)); }
void grad_cos(grad_ctx *c) {
  c->din[0] = ops_unary(G, OP_NEG, add_mul(c, DY, ops_unary(G, OP_SIN, X)));
}

/* A gradient is rounded and widened where its value was, but for that of a param that is one
 * contraction: its sums are f32 anyhow, and are kept so. */
void grad_cast(grad_ctx *c) {
  hp_dtype t = (hp_dtype)graph_value(G, X)->dtype;
  if (!dtype_is_float(t)) return;
  const ir_node d = *graph_def(G, DY);
  if (t == HP_F32 && graph_def(G, X)->op == OP_PARAM && d.op == OP_EINSUM && d.n_in == 2) {
    const val *in = graph_in(G, &d);
    c->din[0] = ops_einsum(G, attr_str(G, &d, "eq"), in[0], in[1], t);
  } else {
    c->din[0] = ops_cast(G, DY, t);
  }
}

/* The gradient is annotated too, as grad.<name>. */
void grad_annotate(grad_ctx *c) {
  char name[192];
  attr_record a = {0};
  snprintf(name, sizeof name, "grad.%s", attr_str(G, &c->node, "name"));
  attr_put_str(&a, G, name);
  c->din[0] = ops_add(G, OP_ANNOTATE, &DY, 1, &a);
}

void grad_add(grad_ctx *c) {
  c->din[0] = ops_unbroadcast(G, DY, c->in[0]);
  c->din[1] = ops_unbroadcast(G, DY, c->in[1]);
}

void grad_sub(grad_ctx *c) {
  c->din[0] = ops_unbroadcast(G, DY, c->in[0]);
  c->din[1] = ops_unbroadcast(G, ops_unary(G, OP_NEG, DY), c->in[1]);
}

void grad_mul(grad_ctx *c) {
  c->din[0] = ops_unbroadcast(G, add_mul(c, DY, c->in[1]), c->in[0]);
  c->din[1] = ops_unbroadcast(G, add_mul(c, DY, c->in[0]), c->in[1]);
}

void grad_div(grad_ctx *c) {
  val d = ops_binary(G, OP_DIV, DY, c->in[1]);
  c->din[0] = ops_unbroadcast(G, d, c->in[0]);
  c->din[1] = ops_unbroadcast(G, ops_unary(G, OP_NEG, add_mul(c, d, Y)), c->in[1]);
}

/* To the operand that was taken; of equals, to the first. */
static void grad_pick(grad_ctx *c, int compare) {
  val zero = ops_const(G, (hp_dtype)graph_value(G, X)->dtype, 0);
  val first = ops_binary(G, compare, c->in[0], c->in[1]);
  c->din[0] = ops_unbroadcast(G, ops_select(G, first, DY, zero), c->in[0]);
  c->din[1] = ops_unbroadcast(G, ops_select(G, first, zero, DY), c->in[1]);
}
void grad_max(grad_ctx *c) { grad_pick(c, OP_GE); }
void grad_min(grad_ctx *c) { grad_pick(c, OP_LE); }

/* d a^b = b a^(b - 1) da + a^b log(a) db, the latter 0 where a is 0. */
void grad_pow(grad_ctx *c) {
  hp_dtype t = (hp_dtype)graph_value(G, X)->dtype;
  val a = c->in[0], b = c->in[1], zero = ops_const(G, t, 0);
  val lower = ops_binary(G, OP_POW, a, ops_binary(G, OP_SUB, b, ops_const(G, t, 1)));
  val log_a = ops_unary(G, OP_LOG, a);
  log_a = ops_select(G, ops_binary(G, OP_GT, a, zero), log_a, zero);
  c->din[0] = ops_unbroadcast(G, add_mul(c, DY, add_mul(c, b, lower)), a);
  c->din[1] = ops_unbroadcast(G, add_mul(c, DY, add_mul(c, Y, log_a)), b);
}

void grad_select(grad_ctx *c) {
  val zero = ops_const(G, (hp_dtype)graph_value(G, DY)->dtype, 0);
  c->din[1] = ops_unbroadcast(G, ops_select(G, c->in[0], DY, zero), c->in[1]);
  c->din[2] = ops_unbroadcast(G, ops_select(G, c->in[0], zero, DY), c->in[2]);
}
