/* Factor rules: how the dims of an op's operands and results are related.
 *
 * A dim is a product of factors, outermost first.  If two tensors have the same factor, they are
 * sharded together.  "mk,kn->mn" has three factors; one that only operands have is contracted,
 * and leaves a partial reduction if it is sharded.  From the factors and the row's linearity
 * follow, for given layouts of the operands, the layouts that the op needs and those of its
 * results. */
#ifndef SHARD_RULE_H
#define SHARD_RULE_H

#include "ir/layout.h"
#include "ir/op.h"
#include "topo/mesh.h"

enum { RULE_TENSORS = 64, RULE_FACTORS = 64, RULE_DIM_FACTORS = 8 };

typedef struct {
  int rank;
  int64_t dim[LAYOUT_DIMS];
} dims;

typedef struct {
  bool absent; /* an optional operand that is not given */
  int rank;
  uint8_t n[LAYOUT_DIMS]; /* factors of a dim; 0: size 1, repeated along the dim of other tensors */
  uint8_t factor[LAYOUT_DIMS][RULE_DIM_FACTORS];
} rule_tensor;

typedef struct {
  int n_in, n_out, factors;
  rule_tensor in[RULE_TENSORS], out[RULE_TENSORS];
  struct {
    int64_t size;
    bool replicated;   /* must be replicated */
    partial_op reduce; /* over a contracted factor; PARTIAL_NONE: it must not be sharded */
    int index;         /* 1 + operand with indices along it, which become indices in the shard */
    uint8_t n, axis[LAYOUT_AXES]; /* sharded by these before the operands are considered */
  } factor[RULE_FACTORS];
  op_linearity linearity;
  int start; /* 1 + operand that sums start from; it must be partial like the results; 0: none */
} rule;

/* need[i]: the layout that operand i must have (its own, if nothing must be done); out: the
 * layouts of the results.  Sharding an operand further needs no communication; partial
 * reductions that may not stay are done first.  HP_ERR_LAYOUT if operands shard one factor
 * differently, if an axis shards two factors, if a dim that must be replicated is sharded, or if
 * the result's layout cannot be expressed. */
hp_status rule_derive(const mesh *m, const rule *r, const layout *in, layout *need, layout *out);

/* The first tensor with a dim that consists of this factor only: operand i, or result i - n_in;
 * -1: none. */
int rule_find(const rule *r, int factor, int *dim);
bool rule_has(const rule_tensor *t, int factor);
/* Size of a tensor's dim: the product of its factors. */
int64_t rule_dim_size(const rule *r, const rule_tensor *t, int dim);

/* --- writing rules -------------------------------------------------------------------------- */

void rule_begin(rule *r, op_linearity linearity);
int rule_factor(rule *r, int64_t size);
rule_tensor *rule_in(rule *r, int rank);
rule_tensor *rule_out(rule *r, int rank);
void rule_dim(rule_tensor *t, int dim, int factor); /* appends a factor to a dim */

/* From the text of an op's row: "...j,j->...j;j=rep".  `in` are the shapes, rank -1: absent.  A
 * letter that only results have gets size 1; rule_out_sizes sets such factors to the results'
 * sizes. */
hp_status rule_from_text(const char *text, op_linearity linearity, const dims *in, int n_in,
                         rule *out);
void rule_out_sizes(rule *r, const dims *out);
/* Reshape: the same elements in the same order. */
hp_status rule_reshape(const dims *from, const dims *to, rule *out);
/* Dim d of the result is dim source[d] of the operand, -1: none.  Dims that change size, and
 * those that the result lacks, must be replicated: transposes, slices, squeezes, broadcasts. */
void rule_map(const dims *from, const dims *to, const int *source, op_linearity linearity,
              rule *out);
/* One result of the same shape; dims with replicated[d] must be replicated. */
void rule_along(const dims *from, const bool *replicated, op_linearity linearity, rule *out);
/* Dims with cut[d] are reduced by op (PARTIAL_NONE: they must be replicated), and stay as size 1
 * with `keep`. */
void rule_reduce(const dims *from, const bool *cut, bool keep, partial_op op, int results,
                 rule *out);

#endif
