/* What the parts of the pass that shards share: the state of a walk, and what one part asks of
 * another. */
#ifndef SHARD_SHARD_STATE_H
#define SHARD_SHARD_STATE_H

#include "ir/rewrite.h"
#include "shard/shard.h"
#include "shard/rule_node.h"

/* Who has a value's rows: of row r the device whose part of the experts, `each` of them, holds
 * expert ids[r]; in the place of others' rows is anything, or zeros. */
typedef struct {
  val ids;                      /* of the old graph */
  uint8_t n, axis[LAYOUT_AXES]; /* by which the experts are cut; n 0: every device has all rows */
  bool zeros;
  int64_t each;
} owners;

/* Bit a of dim[d]: dim d of a value comes from a dim of an input that axis a cuts. */
typedef struct {
  uint8_t dim[HP_MAX_RANK];
} dim_axes;

/* Ways found so far, by shape and both layouts: the blocks of a model ask the same again. */
typedef struct {
  map place;
  VEC(path) way;
} shard_ways;

typedef struct {
  rewrite r;
  const shard_plan *plan;
  const mesh *m;
  use_lists users;
  layout *made; /* of old values, where they are made */
  layout *now;  /* of their latest form, which later users start from */
  dim_axes *rows;
  owners *owned; /* of the latest form; its layout takes no notice of it */
  bool *wide;    /* the latest form is in f32: a partial sum of 16-bit numbers */
  shard_ways *ways;
} shard;

/* How one node is to be computed. */
typedef struct {
  layout need[RULE_TENSORS], out[RULE_TENSORS];
  double cost;
  bool found, keeps_rows;
} choice;

/* The cheapest way to compute the node; r is its rule. */
hp_status shard_choose(shard *s, const ir_node *n, rule *r, choice *best);
/* Is the node to be written in other ops, because its operands lie as its rule does not allow? */
bool shard_expands(const shard *s, const ir_node *n);
hp_status shard_cross_entropy(shard *s, const ir_node *n);

/* Rows of experts: what the node, computed so, must not read as its owners have it becomes a
 * partial sum, and the node is to be chosen for anew; notes of whom the results belong to; the note
 * of an operand, NULL: none has one. */
hp_status shard_settle(shard *s, val old);
hp_status shard_settle_operands(shard *s, const ir_node *n, const choice *c, bool *changed);
void shard_own_results(shard *s, const ir_node *n, choice *c);
const owners *shard_owners_of_operands(const shard *s, const ir_node *n);

/* Rows of an input that are cut; of a node's results; and behind a mark: where its layout brings
 * rows together on purpose, they are followed no further. */
void shard_rows_of_input(shard *s, val v);
void shard_rows_of_results(shard *s, const ir_node *n, const rule *r);
void shard_rows_of_annotation(shard *s, val from, val to);
uint8_t shard_row_axes(const dim_axes *rows); /* of all dims */
/* The layout l of result v of n, with its rows cut by the axes that cut those of the operands. */
void shard_rows_home(const shard *s, const ir_node *n, val v, const layout *l, layout *out);
/* Are the results' rows, computed so, cut by the axes that cut the operands' rows? */
bool shard_keeps_rows(const shard *s, const ir_node *n, const choice *c);

/* Attention whose queries are cut along the sequence, and not by what its rule allows. */
bool shard_cuts_sequence(const shard *s, const ir_node *n);
hp_status shard_attention(shard *s, const ir_node *n);
/* Where attention with dropout has some sequences and heads of more: the seed among its operands
 * says which, so that the numbers are those of the whole. */
void shard_place_dropout(shard *s, const ir_node *n, const choice *c, val *in);

/* The layout that is declared for the name of a node of g; false: none is.  Its parts have a length
 * of their own only where they do not divide a dim. */
bool shard_declared(const hp_graph *g, const shard_plan *plan, const ir_node *n, layout *out);
/* How a param lies with which the value is combined element by element; false: there is none. */
bool shard_wanted(const hp_graph *g, const use_lists *users, const shard_plan *plan, val v,
                  layout *out);

/* --- moves */
hp_status shard_path(const shard *s, const ir_value *x, const layout *from, const layout *to,
                     path *out);
/* The value in layout `to`.  Where a reduction was carried out, later users start from there.  The
 * first makes owned rows a sum before. */
hp_status shard_bring(shard *s, val old, const layout *to, val *out);
hp_status shard_bring_owned(shard *s, val old, const layout *to, val *out);
/* The attributes of a node that the devices along `axis` carry out together: its axes, and how many
 * these devices are. */
void shard_put_group(const shard *s, const uint8_t *axis, int n, attr_record *a);
/* Indices along a dim that the axes cut, as those of the device's own part. */
val shard_locate(shard *s, val x, const uint8_t *axis, int n, int64_t size);
/* Reduces what every device of the axes has. */
val shard_reduce(shard *s, val x, const uint8_t *axis, int n, partial_op op);

#endif
