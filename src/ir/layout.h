/* How a tensor lies on a mesh: for every dim the mesh axes that split it, the first outermost, and
 * for every axis the reduction that is still to be done over it.  Axes are indices into a mesh,
 * dims into the tensor.  An axis splits at most one dim, or is partial, or holds replicas. Parts of
 * a dim are of one length; the last ones hold less of the tensor, or nothing of it, where their
 * number does not divide its size, or where they are given a length, so that a part is made of
 * whole units (the rows of a head): the dim is padded at its end. What is not used is zero, so
 * equal layouts are equal bytes. */
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
  int32_t shard_size[LAYOUT_DIMS];        /* length of a shard; 0: size / shards, rounded up */
  uint8_t n[LAYOUT_DIMS];                 /* axes that split a dim */
  uint8_t axis[LAYOUT_DIMS][LAYOUT_AXES]; /* which, outermost first */
  uint8_t partial[LAYOUT_AXES];           /* partial_op by axis */
} layout;

bool layout_equal(const layout *a, const layout *b);
/* The dim that the axis splits; -1 when it splits none. */
int layout_dim_of(const layout *l, int axis);
/* Neither splits a dim nor is partial. */
bool layout_is_free(const layout *l, int axis);
/* Over any axis a reduction is still to be done. */
bool layout_is_partial(const layout *l);
/* Adds an axis as the innermost of a dim; takes the n innermost away. */
void layout_append(layout *l, int dim, int axis);
void layout_cut(layout *l, int dim, int n);

const char *partial_op_name(int op); /* "sum", ...; "" for PARTIAL_NONE */
/* PARTIAL_NONE when there is no such word. */
partial_op partial_op_find(const char *name, size_t n);

#endif
