/* The rows of a step, `stage action microbatch`, checked against the pieces that they name. */
#ifndef API_API_ROWS_H
#define API_API_ROWS_H

#include "base/vec.h"
#include "prog/link.h"

/* One or several rows that together run a piece for one micro-batch. */
typedef struct {
  uint32_t piece, microbatch;
  int32_t stage;   /* of a pipeline, that it is run for; -1: all */
  uint8_t actions; /* of all its rows */
  int line;        /* of its last row */
} piece_run;

typedef struct {
  link_row *link; /* [n], by row */
  size_t n;
  VEC(piece_run) run; /* in the order of their first rows */
} api_rows;

/* name[n]: names of the pieces; lowered[n]: their programs (NULL: of a pipeline, with any stages;
 * rows run pieces as a whole, which the caller checks).  The action of a row is NAME, or
 * NAME:FB to run only some actions of the piece.  HP_ERR_ARG or HP_ERR_INPUT, with the line: the
 * piece does not exist, the stage is not 0, or an action is repeated, missing, or before one that
 * it needs. Call api_rows_free(out), also after a failure. */
hp_status api_rows_read(const char *text, const char *const *name, const program *const *lowered,
                        int n, api_rows *out);
void api_rows_free(api_rows *r);

#endif
