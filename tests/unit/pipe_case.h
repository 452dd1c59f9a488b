/* Random pipeline schedules that can run, and schedules as lists of rows that tests change. */
#ifndef PIPE_CASE_H
#define PIPE_CASE_H

#include "sched/pipe_rows.h"

enum { PIPE_CASE_ROWS = 1024 };

/* Up to 9 stages on up to 9 devices in any placement, up to 9 micro-batches in any order; B alone,
 * B and W, or a mixture; some rows overlap if `overlaps`.  Rows have the lines of their printed
 * text. */
void random_pipe(uint64_t *state, bool overlaps, pipe_rows *out);
/* The same with 2 to 6 stages, devices and micro-batches, whose backwards come in the order of the
 * micro-batches on each stage: a pipeline runs it. */
void random_pipe_in_order(uint64_t *state, pipe_rows *out);
/* 0 .. below - 1 */
uint32_t pipe_random(uint64_t *state, uint32_t below);
/* `often` cases, or a tenth with HYPER_QUICK. */
int pipe_cases(int often);

/* The rows with their devices, in order. */
typedef struct {
  size_t n;
  uint32_t device[PIPE_CASE_ROWS];
  pipe_row row[PIPE_CASE_ROWS];
} pipe_list;
void pipe_list_get(const pipe_rows *p, pipe_list *out);
void pipe_list_insert(pipe_list *l, size_t at, uint32_t device, pipe_row row);
void pipe_list_remove(pipe_list *l, size_t at);
/* A schedule of the same stages and placement with these rows; pipe_rows_free. */
void pipe_list_apply(const pipe_list *l, const pipe_rows *like, pipe_rows *out);

/* Row that device d cannot run, by trying all devices over and over; UINT32_MAX: it runs all. */
typedef struct {
  uint32_t at[64];    /* [devices] */
  uint32_t needs[64]; /* the row that it waits for; UINT32_MAX: one that does not exist */
  bool halted;
} pipe_halt;
void pipe_run_slowly(const pipe_rows *p, pipe_halt *out);

#endif
