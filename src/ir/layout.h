/* A layout: how a tensor is distributed on a mesh.
 *
 * It has for every dim the mesh axes that shard it, outermost first, and for every axis the
 * reduction that is still to be done over it.  Axes are indices into the mesh, dims into the
 * tensor. Each axis shards at most one dim, or is partial, or replicates.  All shards of a dim have
 * the same size: size / shards, rounded up, or shard_size, which keeps units together (the rows of
 * a head). If shards times shard size exceeds the size of the dim, the dim is padded at its end,
 * and its last shards are partly or fully padding.  Unused fields are zero, so equal layouts are
 * equal bytes. */
#ifndef IR_LAYOUT_H
#define IR_LAYOUT_H

#include "base/status.h"

enum { LAYOUT_AXES = 8, LAYOUT_DIMS = 8 };

typedef enum {
  PARTIAL_NONE,
  PARTIAL_SUM,
  PARTIAL_AVG,
  PARTIAL_MAX,
  PARTIAL_MIN,
  PARTIAL_PROD,
  PARTIAL_ALL, /* logical and */
  PARTIAL_COUNT
} partial_op;

typedef struct {
  int32_t rank;                           /* dims of the tensor */
  int32_t shard_size[LAYOUT_DIMS];        /* by dim; 0: size / shards, rounded up */
  uint8_t n[LAYOUT_DIMS];                 /* number of axes that shard the dim */
  uint8_t axis[LAYOUT_DIMS][LAYOUT_AXES]; /* these axes, outermost first */
  uint8_t partial[LAYOUT_AXES];           /* partial_op by axis */
} layout;

bool layout_equal(const layout *a, const layout *b);
/* The dim that the axis shards; -1: none. */
int layout_dim_of(const layout *l, int axis);
/* Does the axis replicate: neither shards a dim nor is partial? */
bool layout_is_free(const layout *l, int axis);
/* Is a reduction over some axis still to be done? */
bool layout_is_partial(const layout *l);
/* layout_append adds an axis as the innermost of a dim; layout_cut removes the n innermost axes. */
void layout_append(layout *l, int dim, int axis);
void layout_cut(layout *l, int dim, int n);

const char *partial_op_name(int op); /* "sum", ...; "" for PARTIAL_NONE */
/* PARTIAL_NONE when there is no such word. */
partial_op partial_op_find(const char *name, size_t n);

#endif
