/* Rows that run different pieces on the stages of a pipeline: "0 A 3", "1 B 3" for micro-batch 3.
 *
 * A and B are compilations of one graph that differ in their options, such as recomputation.  A
 * mesh compiles each graph once, so that all stages of a mesh have the same piece. */
#ifndef API_API_STAGE_PIECES_H
#define API_API_STAGE_PIECES_H

#include "api/api_piece.h"

/* The step with a piece of the parts of several for each choice of its rows, and rows of all
 * stages. */
typedef struct {
  step s;
  hp_piece **all; /* [s.n] s.piece: those of the caller, then the combined */
  const char **action;
  int given; /* pieces of the caller */
} stage_pieces;

/* HP_ERR_ARG, with the line: a stage has no row or several, or the pieces do not fit.  Ended by
 * stage_pieces_end, also after a failure. */
hp_status stage_pieces_begin(const step *s, stage_pieces *out);
void stage_pieces_end(stage_pieces *p);

#endif
