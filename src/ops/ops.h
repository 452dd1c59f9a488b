/* The meaning of the op table's rows: shapes, gradients, costs; and the builders that every graph
 * is made with.  One file per op family holds the functions that ops.def names. */
#ifndef OPS_OPS_H
#define OPS_OPS_H

#include "base/dtype.h"
#include "ir/attr.h"
#include "ir/graph.h"

/* --- shape rules ----------------------------------------------------------------------- */

enum { OPS_OUT_MAX = 3 }; /* results of a row that is not `fused` */

typedef struct {
  const hp_graph *g;
  ir_node node; /* op, n_in and attr are set */
  const val *in;
  ir_value out[OPS_OUT_MAX]; /* to be filled: dtype, rank, dim */
} infer_ctx;

/* --- gradients ------------------------------------------------------------------------- */

typedef struct {
  hp_graph *g;   /* to which the backward is appended */
  ir_node node;  /* the forward node */
  const val *in; /* its operands */
  val out[OPS_OUT_MAX];
  val dout[OPS_OUT_MAX]; /* gradients of its results, 0 = none */
  val din[255]; /* to be filled: gradients of its operands; one left 0 is unknown, and asking
                   for it is an error, never a silent zero */
} grad_ctx;

/* The gradient is refused, with the reason: poisons the graph. */
void ops_no_grad(const grad_ctx *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

typedef struct {
  double flops; /* multiply and add are two */
  double bytes; /* read and written once each */
} op_cost;

typedef struct {
  hp_status (*infer)(infer_ctx *c);
  void (*grad)(grad_ctx *c);
  op_cost (*cost)(const hp_graph *g, const ir_node *n);
} op_meaning;
extern const op_meaning op_meanings[OP_COUNT];

#define OP(id, name, in_min, in_max, out, attrs, infer, grad, rule, lin, cost, flags, doc)         \
  hp_status infer_##infer(infer_ctx *c);                                                           \
  void grad_##grad(grad_ctx *c);                                                                   \
  op_cost cost_##cost(const hp_graph *g, const ir_node *n);
#include "ir/ops.def"
#undef OP

/* --- builders --------------------------------------------------------------------------
 * Check operands, infer shapes, append.  Return the first result; 0 and a poisoned graph on
 * failure.  An operand 0 gives 0.  Two calls as arguments of one are made in the order that the
 * compiler likes: give one of them a line of its own, or the graph depends on the compiler. */

val ops_add(hp_graph *g, int op, const val *in, int n_in, const attr_record *attrs);
val ops_unary(hp_graph *g, int op, val x);
val ops_binary(hp_graph *g, int op, val a, val b);
val ops_const(hp_graph *g, hp_dtype t, double value); /* scalar, [] */
val ops_scale(hp_graph *g, val x, double factor);     /* x * factor in x's dtype */
val ops_select(hp_graph *g, val cond, val a, val b);
val ops_cast(hp_graph *g, val x, hp_dtype t); /* x itself when it has that dtype */
val ops_sum(hp_graph *g, val x, const int64_t *axes, int n, bool keep);
val ops_max(hp_graph *g, val x, const int64_t *axes, int n, bool keep);
val ops_sum_last(hp_graph *g, val x); /* last dim, kept as 1 */
val ops_max_last(hp_graph *g, val x);
val ops_reshape(hp_graph *g, val x, const int64_t *dim, int rank);
val ops_transpose(hp_graph *g, val x, const int64_t *perm);
val ops_broadcast(hp_graph *g, val x, const int64_t *dim, int rank);
val ops_slice(hp_graph *g, val x, const int64_t *start, const int64_t *stop, const int64_t *step);
val ops_pad(hp_graph *g, val x, const int64_t *lo, const int64_t *hi, double value);
val ops_concat(hp_graph *g, const val *x, int n, int axis);
/* x in a tier beyond the device, which only fetch and output read; and from there on the device. */
val ops_offload(hp_graph *g, val x, int tier);
val ops_fetch(hp_graph *g, val x);
/* The tier that v lies in, which is a part of its type. */
int ops_tier(const hp_graph *g, val v);
val ops_einsum(hp_graph *g, const char *eq, val a, val b, hp_dtype out);
/* The same with chains that start from c, whose dtype and shape the result has. */
val ops_einsum_onto(hp_graph *g, const char *eq, val a, val b, val c);
/* The rows of dy summed by id into a table of so many rows, from 0 or, where it is not 0, from c.
 */
val ops_embedding_grad(hp_graph *g, val dy, val ids, val c, int64_t rows);
val ops_leaf(hp_graph *g, int op, const char *name, hp_dtype t, const int64_t *dim, int rank);
val ops_iota(hp_graph *g, hp_dtype t, const int64_t *dim, int rank, int axis);
val ops_random(hp_graph *g, int op, val seed, int64_t stream, hp_dtype t, const int64_t *dim,
               int rank); /* OP_UNIFORM or OP_NORMAL */
void ops_output(hp_graph *g, const char *name, val x);
void ops_assign(hp_graph *g, val param, val x);

/* dy summed over the dims along which `like` was broadcast, in like's dtype: the gradient of a
 * broadcasting operand. */
val ops_unbroadcast(hp_graph *g, val dy, val like);

/* The number that a constant of value x has in an integer dtype, before it is wrapped to the dtype:
 * toward zero, within 64 bits, 0 for NaN. */
int64_t ops_const_int(double x);

/* The expected share of rows with one of a group's experts, if each row has `slots` different ones
 * of all experts by chance, and the groups are equal. */
double ops_needed_share(int64_t experts, int64_t groups, int64_t slots);

/* Failure of a shape rule: "op "where": what", with HP_ERR_SHAPE.  The op goes by the public
 * function that was called for it, where there is one. */
hp_status ops_fail(const infer_ctx *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Poisons the graph, unless it is, with a call that makes no sense; `op` is what it was to add, 0 =
 * none in particular.  Returns 0. */
val ops_refuse(hp_graph *g, int op, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* For shape rules: operand i is a seed, i64[]; attribute `key` is a share, in [0, 1). */
hp_status ops_check_seed(infer_ctx *c, int i);
hp_status ops_check_rate(infer_ctx *c, const char *key);
/* "f32[2,3]" of operand i, with its name when it is an input or a param; and what it is called
 * where the op is added, else "operand 1".  In rotating buffers: for messages. */
const char *ops_type(const infer_ctx *c, int i);
const char *ops_operand(const infer_ctx *c, int i);
/* What sums start from, operand 2, is like the result. */
hp_status ops_check_start(infer_ctx *c);

/* Re-infers every node and compares with the graph's types, and checks the names: on every graph
 * that is read, and after passes in tests.  On failure *node is the one that is wrong. */
hp_status ops_verify_at(const hp_graph *g, uint32_t *node);
hp_status ops_verify(const hp_graph *g);
/* One node, not a fused one: its operands are made before it, its results have the types that its
 * row's rule gives. */
hp_status ops_verify_node(const hp_graph *g, uint32_t node);
/* An output's name is its own; inputs (params) of one name have one type. */
hp_status ops_check_names(const hp_graph *g, uint32_t *node);

#endif
