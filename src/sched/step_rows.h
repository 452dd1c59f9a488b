/* A step as rows of text, `stage action microbatch`, one per line, # begins a comment: the form
 * of pipeline schedules.  Actions are names of pieces: F, B, W, U, or others.  Stage * is all of
 * them. */
#ifndef SCHED_STEP_ROWS_H
#define SCHED_STEP_ROWS_H

#include "base/status.h"
#include "base/vec.h"

enum { STEP_ACTION = 16, STEP_STAGES = 1 << 16, STEP_MICROBATCHES = 1 << 24 };

typedef struct {
  uint16_t stage; /* 0 where it is "*": */
  bool all;       /* of all stages */
  char action[STEP_ACTION];
  uint32_t microbatch;
  int line; /* from 1 */
} step_row;
typedef VEC(step_row) step_rows;

/* HP_ERR_INPUT with `source` and the line.  vec_free(out), also after a failure. */
hp_status step_rows_parse(const char *text, const char *source, step_rows *out);

#endif
