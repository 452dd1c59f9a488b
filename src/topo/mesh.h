/* A mesh: the devices of a job as a grid with named axes, as Layout(device_matrix, alias_name,
 * rank_list) declares it.  Device positions are row-major: the last axis varies fastest. */
#ifndef TOPO_MESH_H
#define TOPO_MESH_H

#include "base/str.h"

enum { MESH_AXES = 8, MESH_NAME = 64 };

typedef struct {
  int axes;
  int64_t size[MESH_AXES];
  char name[MESH_AXES][MESH_NAME];
  int64_t devices;  /* product of the sizes */
  int64_t *rank;    /* by device position; NULL: the position itself */
  bool consecutive; /* ranks follow each other, from that of position 0 on */
} mesh;

/* Checks and copies.  Sizes are positive; names are unique, not empty, not "None" and without
 * the characters of the text form; `interleaved_parallel` is last; rank (NULL: 0, 1, 2, ...) has
 * one entry per device, unique and not negative.  HP_ERR_LAYOUT otherwise. */
hp_status mesh_init(const int64_t *size, const char *const *name, int axes, const int64_t *rank,
                    int64_t ranks, mesh *out);
void mesh_free(mesh *m);

/* The axis of that name; -1: none. */
int mesh_axis(const mesh *m, const char *name, size_t n);
/* Rank at a device position, and back; -1 for a rank that is not on the mesh. */
int64_t mesh_rank(const mesh *m, int64_t position);
int64_t mesh_position(const mesh *m, int64_t rank);
/* Distance of neighbours along an axis, and the coordinate of a position on it. */
int64_t mesh_stride(const mesh *m, int axis);
int64_t mesh_coordinate(const mesh *m, int64_t position, int axis);
/* Positions that differ from `position` in the given axes only, the first axis outermost; their
 * number is the product of the axes' sizes.  This is the order of a collective's ranks over
 * these axes. */
void mesh_get_ranks(const mesh *m, int64_t position, const uint8_t *axis, int n, int64_t *out);
/* "dp, sp, mp": for messages. */
void mesh_names(const mesh *m, str *out);

#endif
