/* Shared by the files of the sharding pass: the state of a walk, and the functions that they
 * call from one another. */
#ifndef SHARD_SHARD_STATE_H
#define SHARD_SHARD_STATE_H

#include "ir/rewrite.h"
#include "shard/shard.h"
#include "shard/rule_node.h"

/* Which device owns a row of a value: of row r the device that holds expert ids[r], if each
 * device holds `each` experts.  The other devices have zeros or undefined numbers in this row. */
typedef struct {
  val ids;                      /* in the original graph */
  uint8_t n, axis[LAYOUT_AXES]; /* axes that shard the experts; n 0: all devices have all rows */
  bool zeros;
  int64_t each;
} owners;

/* Bit a of dim[d]: dim d of a value comes from a dim of an input that axis a shards. */
typedef struct {
  uint8_t dim[HP_MAX_RANK];
} dim_axes;

/* Paths found so far, by shape and both layouts: the blocks of a model need the same ones. */
typedef struct {
  map place;
  VEC(path) way;
} shard_ways;

typedef struct {
  rewrite r;
  const shard_plan *plan;
  const mesh *m;
  use_lists users;
  layout *made; /* of the original graph's values, where they are computed */
  layout *now;  /* of their latest form, from which later users start */
  dim_axes *rows;
  owners *owned; /* of the latest form; its layout does not show them */
  bool *wide;    /* the latest form is in f32: a partial sum of 16-bit numbers */
  shard_ways *ways;
} shard;

/* How one node is computed. */
typedef struct {
  layout need[RULE_TENSORS], out[RULE_TENSORS];
  double cost;
  bool found, keeps_rows;
} choice;

/* The cheapest layouts in which to compute the node; r is its rule. */
hp_status shard_choose(shard *s, const ir_node *n, rule *r, choice *best);
/* Must the node be written in other ops, because the layouts of its operands do not fit its
 * rule? */
bool shard_expands(const shard *s, const ir_node *n);
hp_status shard_cross_entropy(shard *s, const ir_node *n);

/* Rows of experts.  shard_settle makes a partial sum of a value with owned rows if the node
 * cannot read it so, and the node's layouts must be chosen again; the others set the owners of
 * results, and return the owners of the operands (NULL: none). */
hp_status shard_settle(shard *s, val old);
hp_status shard_settle_operands(shard *s, const ir_node *n, const choice *c, bool *changed);
void shard_own_results(shard *s, const ir_node *n, choice *c);
const owners *shard_owners_of_operands(const shard *s, const ir_node *n);

/* Sharded rows of an input; of a node's results; and after an annotation: if its layout gathers
 * rows on purpose, they are not followed further. */
void shard_rows_of_input(shard *s, val v);
void shard_rows_of_results(shard *s, const ir_node *n, const rule *r);
void shard_rows_of_annotation(shard *s, val from, val to);
uint8_t shard_row_axes(const dim_axes *rows); /* of all dims */
/* The layout l of result v of n, with its rows sharded by the axes that shard the rows of the
 * operands. */
void shard_rows_home(const shard *s, const ir_node *n, val v, const layout *l, layout *out);
/* Are the results' rows sharded by the axes that shard the operands' rows? */
bool shard_keeps_rows(const shard *s, const ir_node *n, const choice *c);

/* Is the node attention whose queries are sharded along the sequence, which its rule does not
 * allow? */
bool shard_cuts_sequence(const shard *s, const ir_node *n);
hp_status shard_attention(shard *s, const ir_node *n);
/* Attention with dropout on some of the sequences and heads: extends the seed operand by their
 * position, so that the random numbers are those of the global tensor. */
void shard_place_dropout(shard *s, const ir_node *n, const choice *c, val *in);

/* The layout declared for the name of a node of g; false: none.  Its shards have a length of
 * their own only if they do not divide a dim. */
bool shard_declared(const hp_graph *g, const shard_plan *plan, const ir_node *n, layout *out);
/* The layout of a param that is combined elementwise with the value; false: there is none. */
bool shard_wanted(const hp_graph *g, const use_lists *users, const shard_plan *plan, val v,
                  layout *out);

/* --- moves */
hp_status shard_path(const shard *s, const ir_value *x, const layout *from, const layout *to,
                     path *out);
/* The value in layout `to`.  After a reduction, later users start from its result.  shard_bring
 * first sums owned rows. */
hp_status shard_bring(shard *s, val old, const layout *to, val *out);
hp_status shard_bring_owned(shard *s, val old, const layout *to, val *out);
/* Sets the attributes of a collective along `axis`: its axes and the number of devices. */
void shard_put_communicator(const shard *s, const uint8_t *axis, int n, attr_record *a);
/* Indices along a dim that the axes shard, as indices in the device's own shard. */
val shard_locate(shard *s, val x, const uint8_t *axis, int n, int64_t size);
/* Reduces a value over the devices along the axes. */
val shard_reduce(shard *s, val x, const uint8_t *axis, int n, partial_op op);

#endif
