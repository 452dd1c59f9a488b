/* The pieces that steps are linked from: one for each shape of micro-batch and place in the step
 * (alone, first, next, update) that comes up, compiled once and kept. */
#ifndef TRAIN_STEP_PIECES_H
#define TRAIN_STEP_PIECES_H

#include "train/step_graph.h"

/* A micro-batch's sizes, [B,T]. */
typedef struct {
  int64_t B, T;
} micro_shape;

typedef struct {
  step_place place;
  hp_piece *p;
  uint64_t used; /* when it was last */
} step_piece;

typedef struct {
  lm *m;
  hp_device *d;
  step_options o;
  bool plan; /* nothing is made on the device, and nothing is told */
  VEC(step_piece) kept;
  uint64_t clock;
  double compile_s; /* of all pieces so far */
} step_pieces;

void step_pieces_free(step_pieces *s);
/* From now on with other options of the compiler; those that are kept are forgotten. */
void step_pieces_set_options(step_pieces *s, const hp_compile_options *o);

/* The arguments of hp_link for a step. */
typedef struct {
  hp_piece **piece;
  const char **action;
  char *rows;
  int n;
  char (*names)[16];
} step_link;
/* The step of n micro-batches, in their order.  The pieces are those of s, until it is asked for
 * another step.  step_link_free(out), also after a failure. */
hp_status step_pieces_link(step_pieces *s, const micro_shape *shape, int64_t n, step_link *out);
void step_link_free(step_link *l);

#endif
