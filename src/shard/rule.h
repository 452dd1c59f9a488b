/* Factor rules: what the dims of an op's operands and results have to do with each other.
 *
 * A dim is a product of factors, outermost first; the same factor in two tensors means that they
 * are cut together.  "mk,kn->mn" has three: one that is only in operands is contracted, and leaves
 * a partial reduction when it is cut.  From that and the row's linearity follows, for layouts of
 * the operands, what they must be brought to and what the results have. */
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
  bool absent; /* an operand that is not given */
  int rank;
  uint8_t n[LAYOUT_DIMS]; /* factors of a dim; 0: size 1, repeated along other tensors' dim */
  uint8_t factor[LAYOUT_DIMS][RULE_DIM_FACTORS];
} rule_tensor;

typedef struct {
  int n_in, n_out, factors;
  rule_tensor in[RULE_TENSORS], out[RULE_TENSORS];
  struct {
    int64_t size;
    bool whole;        /* must not be cut */
    partial_op reduce; /* over a contracted factor; PARTIAL_NONE: it must not be cut */
    int index;         /* operand that holds indices along it + 1: they become those of the part */
    uint8_t n, axis[LAYOUT_AXES]; /* cut by these before any operand is looked at */
  } factor[RULE_FACTORS];
  op_linearity linearity;
  int start; /* operand that sums start from + 1: it is to be partial as the results are; 0: none */
} rule;

/* need[i]: the layout that operand i must be brought to (its own, where nothing need be done); out:
 * those of the results.  Operands are cut further for nothing, and partial reductions that cannot
 * pass are done first.  HP_ERR_LAYOUT when operands cut one factor differently, an axis cuts two, a
 * dim that must be whole is cut, or a cut cannot be said of the result. */
hp_status rule_derive(const mesh *m, const rule *r, const layout *in, layout *need, layout *out);

/* The first tensor with a dim that is the factor alone: operand i, or result i - n_in; -1: none. */
int rule_find(const rule *r, int factor, int *dim);
bool rule_has(const rule_tensor *t, int factor);
/* Size of a tensor's dim: of its factors together. */
int64_t rule_dim_size(const rule *r, const rule_tensor *t, int dim);

/* --- writing rules -------------------------------------------------------------------------- */

void rule_begin(rule *r, op_linearity linearity);
int rule_factor(rule *r, int64_t size);
rule_tensor *rule_in(rule *r, int rank);
rule_tensor *rule_out(rule *r, int rank);
void rule_dim(rule_tensor *t, int dim, int factor); /* appends a factor to a dim */

/* From the text of an op's row: "...j,j->...j;j=rep".  `in` are the shapes, rank -1: absent.  A
 * letter that only results have is of size 1; rule_out_sizes gives such factors the results' sizes.
 */
hp_status rule_from_text(const char *text, op_linearity linearity, const dims *in, int n_in,
                         rule *out);
void rule_out_sizes(rule *r, const dims *out);
/* The same elements in the same order in another shape. */
hp_status rule_reshape(const dims *from, const dims *to, rule *out);
/* Dim d of the result is dim source[d] of the operand, -1: none.  Dims that change their size, and
 * those that the result lacks, must be whole: transposes, slices, squeezes, broadcasts. */
void rule_map(const dims *from, const dims *to, const int *source, op_linearity linearity,
              rule *out);
/* One result of the same shape; a dim whose mark is set must be whole. */
void rule_along(const dims *from, const bool *whole, op_linearity linearity, rule *out);
/* Marked dims are reduced by op (PARTIAL_NONE: they must be whole), and stay as 1 with `keep`. */
void rule_reduce(const dims *from, const bool *cut, bool keep, partial_op op, int results,
                 rule *out);

#endif
