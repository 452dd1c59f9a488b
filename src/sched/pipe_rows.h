/* A pipeline schedule: for each device the rows `stage action microbatch` that it runs, in order.
 *
 * As text, one row a line, # begins a comment.  Actions are F (forward), B (backward to inputs), W
 * (backward to weights), BW (both in one row) and U (update).  If no row has W, B stands for both.
 * Two rows that overlap on a device, a forward and a backward, are one line: `0 F 5 + 7 BW 1`.
 * Header lines, each of them optional: `stages N`, `microbatches N`, `placement D D ...` (the
 * device of each stage; without it, stage s is on device s); `device D` begins the rows of a
 * device.  Rows above any such line belong to the device of their stage, so rows may be in any
 * global order. */
#ifndef SCHED_PIPE_ROWS_H
#define SCHED_PIPE_ROWS_H

#include "base/str.h"

enum { /* the same bits as ACTION_* of prog/actions.h */
       PIPE_F = 1,
       PIPE_B = 2,
       PIPE_W = 4,
       PIPE_U = 8
};
/* Stages, micro-batches and their product are limited, since checks have tables of them. */
enum {
  PIPE_STAGES = 1 << 12,
  PIPE_MICROBATCHES = 1 << 20,
  PIPE_CELLS = 1 << 19,
  PIPE_ROWS = 4 * PIPE_CELLS
};

typedef struct {
  uint16_t stage;
  uint8_t actions;
  bool with_next; /* overlaps with the row after it */
  uint32_t microbatch;
  int line; /* of the text, from 1; 0: the row was not read from text */
} pipe_row;

typedef struct {
  uint32_t stages, devices, microbatches;
  uint32_t *placement; /* [stages] device of a stage */
  uint32_t *row0;      /* [devices + 1] rows of device d: row[row0[d]] to row[row0[d + 1] - 1] */
  pipe_row *row;
} pipe_rows;

/* Stages and micro-batches that the rows are for; 0: any. */
typedef struct {
  uint32_t stages, microbatches;
} pipe_shape;

/* Space for `rows` rows with row0 zeroed and stage s on device s % devices.  pipe_rows_free. */
hp_status pipe_rows_create(uint32_t stages, uint32_t devices, uint32_t microbatches, size_t rows,
                           pipe_rows *out);
void pipe_rows_free(pipe_rows *p);
enum { PIPE_FILE_NAME = 256 };
/* What errors call a schedule: the file that its text names (below), copied to file[]; else
 * "pipeline". */
const char *pipe_rows_source(const char *text, char file[PIPE_FILE_NAME]);
/* HP_ERR_INPUT with `source` and the line; text that begins with a line `# file NAME` was read from
 * that file, and errors name it, with lines counted from the next one.  It is not checked that the
 * rows can run: pipe_check. */
hp_status pipe_rows_parse(const char *text, const char *source, pipe_shape want, pipe_rows *out);
/* With header, grouped by device: pipe_rows_parse gives the same rows. */
void pipe_rows_print(const pipe_rows *p, str *out);

/* Is a schedule's text rows, and not a name?  Rows have ends of lines. */
bool pipe_is_rows(const char *text);
/* "F", "B", "W", "BW", "U". */
const char *pipe_action_name(uint8_t actions);
enum { PIPE_ROW_NAME = 64 };
/* "stage 3 F 7 (line 12)", for messages; returns text. */
const char *pipe_row_name(const pipe_row *row, char text[PIPE_ROW_NAME]);

/* One F and one B or BW, in any order. */
static inline bool pipe_rows_can_overlap(const pipe_row *a, const pipe_row *b) {
  return (a->actions == PIPE_F && b->actions & PIPE_B) ||
         (b->actions == PIPE_F && a->actions & PIPE_B);
}
/* The device that runs a row. */
static inline uint32_t pipe_rows_device(const pipe_rows *p, uint32_t row) {
  return p->placement[p->row[row].stage];
}
static inline size_t pipe_rows_count(const pipe_rows *p) { return p->row0[p->devices]; }

#endif
