/* Internal to sched/pipe_*: where the rows of each stage and micro-batch are, and what they wait
 * for: F for the stages that its stage reads, B for those that read its stage. */
#ifndef SCHED_PIPE_INDEX_H
#define SCHED_PIPE_INDEX_H

#include "sched/pipe_costs.h"

#define PIPE_NONE UINT32_MAX

typedef struct {
  const pipe_rows *p;
  pipe_graph graph;
  const char *source;      /* named in messages */
  bool split, updates;     /* there are rows of W, of U */
  uint32_t *f, *b, *w, *u; /* [stages * microbatches], u [stages]: the row; PIPE_NONE: none. Without
                              split, w is b */
} pipe_index;

/* Refuses, with HP_ERR_INPUT and the rows: stages, micro-batches or actions that do not exist, a
 * row on another device than its stage, a row that is missing or there twice, B before F or W
 * before B on their device, rows marked as overlapping that cannot; HP_ERR_ARG: edges of the costs
 * that are no graph of the stages. */
hp_status pipe_index_build(const pipe_rows *p, const char *source, const pipe_costs *c,
                           pipe_index *out);
void pipe_index_free(pipe_index *x);

static inline size_t pipe_cell(const pipe_rows *p, uint32_t stage, uint32_t microbatch) {
  return (size_t)stage * p->microbatches + microbatch;
}
/* Number of rows from row i on that begin together. */
static inline uint32_t pipe_together(const pipe_rows *p, uint32_t i) {
  return p->row[i].with_next ? 2 : 1;
}
/* Time of row i, and of one that overlaps with it. */
double pipe_together_s(const pipe_index *x, const pipe_costs *c, uint32_t i);
/* A row next to another one, and the edge of the graph between their stages. */
typedef struct {
  uint32_t row, edge;
} pipe_link;
/* The k-th row, from 0, whose result a row reads, and that reads its result; false: no more. */
bool pipe_input(const pipe_index *x, uint32_t row, uint32_t k, pipe_link *out);
bool pipe_reader(const pipe_index *x, uint32_t row, uint32_t k, pipe_link *out);

#endif
