/* The rows of a step, `stage action microbatch`, checked against the pieces that they name. */
#ifndef API_API_ROWS_H
#define API_API_ROWS_H

#include "base/vec.h"
#include "prog/link.h"

/* A piece as it runs for one micro-batch, in one row or several. */
typedef struct {
  uint32_t piece, microbatch;
  uint8_t actions; /* of the rows so far */
  int line;        /* of the last of them */
} piece_run;

typedef struct {
  link_row *link; /* [n], by row */
  size_t n;
  VEC(piece_run) run; /* in the order of their first rows */
} api_rows;

/* name[n]: the pieces' actions; lowered[n]: their programs.  An action is NAME, or NAME:FB for some
 * of the actions of the piece.  HP_ERR_ARG or HP_ERR_INPUT with the line: a piece that does not
 * exist, a stage other than 0, an action that comes twice, before one that it needs, or not at all.
 * api_rows_free(out), also after a failure. */
hp_status api_rows_read(const char *text, const char *const *name, const program *const *lowered,
                        int n, api_rows *out);
void api_rows_free(api_rows *r);

#endif
