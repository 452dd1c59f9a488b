/* Pieces, and the step that is linked of them: what api_link.c and api_pipeline.c share. */
#ifndef API_API_PIECE_H
#define API_API_PIECE_H

#include "api/api_program.h"
#include "api/api_rows.h"
#include "pass/stage_cut.h"

struct hp_piece {
  hp_device *d;
  hp_graph *g;          /* a copy: the caller's may go */
  hp_compile_options o; /* its texts are in `texts` */
  arena texts;
  compilation c; /* of a pipeline none: */
  /* a piece for each mesh, NULL where the graph has nothing, what crosses between them, and which
   * stages read each other. */
  hp_piece **part;
  stage_crossings crossing;
  stage_edges edge;
};

/* The arguments of hp_link. */
typedef struct {
  hp_piece *const *piece;
  const char *const *action;
  int n;
  api_rows rows;
  hp_compile_options o; /* of the linked program */
} step;

/* A piece of d with g's copy and the options; freed by hp_piece_free, also after a failure. */
hp_status api_piece_create(const hp_graph *g, hp_device *d, const hp_compile_options *o,
                           hp_piece **out);

/* api_pipeline.c, of pieces of a device that is a pipeline */
hp_status api_pipeline_compile(hp_piece *p);
hp_status api_pipeline_link(const step *s, hp_program *h);
/* As hp_link_order. */
hp_status api_pipeline_order(const step *s, uint32_t *order);
/* As hp_link_plan; what NULL: no text. */
hp_status api_pipeline_plan(const step *s, hp_program_stats *out, const char *what, str *text);

#endif
