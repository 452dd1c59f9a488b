/* The compiled pieces from which steps are linked: one for each shape of micro-batch and part of
 * the step (alone, first, next, update), compiled when it is first needed; those used last are
 * kept. */
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
  uint64_t used; /* the clock at its last use */
} step_piece;

typedef struct {
  lm *m;
  hp_device *d;
  step_options o;
  bool plan;  /* for a plan only: creates nothing on the device and logs nothing */
  bool quiet; /* logs nothing */
  bool told;  /* what cannot be done, once for all pieces */
  bool again; /* names of micro-batches begin with R, not F: their forward is recomputed */
  VEC(step_piece) kept;
  uint64_t clock;
  uint32_t insts;   /* of a piece, about, as the last linked step had them; 0: not known */
  double compile_s; /* of all pieces so far */
} step_pieces;

void step_pieces_free(step_pieces *s);
/* Frees all pieces; later ones are compiled with these options. */
void step_pieces_set_options(step_pieces *s, const hp_compile_options *o);

/* What a program runs. */
typedef struct {
  const micro_shape *shape; /* [n] micro-batches */
  int64_t n;                /* 0: no step, only what is left */
  bool applies;             /* first the update that the step before has left */
  bool leaves;              /* leaves its own update to the next program */
} step_spec;

/* The arguments of hp_link for a step. */
enum { STEP_NAME = 56 };
typedef struct {
  hp_piece **piece;
  const char **action;
  char *rows;
  int n;
  char (*names)[STEP_NAME];
} step_link;
/* Has the program of n micro-batches those of the next step, too?  hp_device_runs_ahead. */
bool step_pieces_look_ahead(const step_pieces *s, int64_t n);
/* The arguments for a program.  s owns the pieces, which are valid until the next call with s. Call
 * step_link_free(out), also after a failure. */
hp_status step_pieces_link(step_pieces *s, const step_spec *spec, step_link *out);
void step_link_free(step_link *l);
/* What that link gave, by which pieces are kept: as many as have about 262,144 instructions. */
void step_pieces_linked(step_pieces *s, int64_t n, const hp_program_stats *linked);

#endif
