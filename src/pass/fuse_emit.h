/* Writes a fusion group of the fuse pass as one loop kernel. */
#ifndef PASS_FUSE_EMIT_H
#define PASS_FUSE_EMIT_H

#include "codegen/loop.h"
#include "ops/ops.h"
#include "pass/pass.h"

enum { FUSE_MEMBERS = 64 };

typedef struct {
  uint32_t member[FUSE_MEMBERS]; /* nodes of the original graph */
  bool reduced[FUSE_MEMBERS];    /* its value has one element per row (column) of the space */
  int n;
  uint32_t pos; /* node of the original graph at whose position it runs */
  loop_kind kind;
  ir_value space; /* dims of the iteration space */
} fuse_group;

/* Is n a load of its operand with other strides?  It reads memory, not values of the group. */
bool fuse_is_view(const ir_node *n);
bool fuse_is_reduced(const fuse_group *k, uint32_t node);
bool fuse_is_reduction(const ir_node *n);
/* Does n reduce all dims but the last?  Reductions have either this form or reduce the last dim. */
bool fuse_sums_columns(const hp_graph *g, const ir_node *n);
/* Can a loop over `space` iterate over all dims of v but the last as one? */
bool fuse_leading_dims_merge(const ir_value *v, const ir_value *space);
/* Appends group k (number `id` in group_of) to r->to as a `fused` node and maps the values that it
 * stores. */
hp_status fuse_emit(rewrite *r, const use_lists *uses, fuse_group *k, const uint32_t *group_of,
                    uint32_t id);
/* Does n read no memory?  Constants, iotas, uniform random numbers and what is computed from them.
 */
bool fuse_is_generated(const ir_node *n);
/* Does the loop of `user` generate operand v itself, instead of loading it?  It does not for an
 * iota if it iterates in another order or merges the iota's dims, nor for random numbers if it
 * iterates over columns only. */
bool fuse_inlines(const hp_graph *g, const ir_node *user, val v);
/* Appends kernels that store the generated operands of node n, which is in no loop and therefore
 * reads them from memory. */
hp_status fuse_make_leaves(rewrite *r, const ir_node *n);

#endif
