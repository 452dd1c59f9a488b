/* Which stages of a pipeline read what others make: a graph of stages, numbered so that each comes
 * after those that it reads.  The usual one is a chain; two towers side by side have no edge. */
#ifndef SCHED_PIPE_GRAPH_H
#define SCHED_PIPE_GRAPH_H

#include "base/status.h"

/* Stage `to` reads what `from` makes, and returns its gradient: F of `to` comes after F of `from`,
 * B of `from` after B of `to`. */
typedef struct {
  uint16_t from, to; /* from < to */
} pipe_edge;

typedef struct {
  uint32_t stages, edges;
  pipe_edge *edge; /* in the order of `from`, then `to`; of a chain, edge s leaves stage s */
  uint32_t *out0;  /* [stages + 1] edges out0[s] to out0[s + 1] - 1 leave stage s */
  uint32_t *in0;   /* [stages + 1] edges in[in0[s]] to in[in0[s + 1] - 1] enter it */
  uint32_t *in;    /* [edges] */
} pipe_graph;

/* edge NULL: the chain 0 to 1, 1 to 2, ...  HP_ERR_ARG, with the edge, unless each goes to a later
 * stage and they are in order.  pipe_graph_free. */
hp_status pipe_graph_create(uint32_t stages, const pipe_edge *edge, uint32_t edges,
                            pipe_graph *out);
void pipe_graph_free(pipe_graph *g);
/* Sorts edges with from < to < stages, and leaves out those that are there twice or that a longer
 * path implies, so that stages which need each other in a row are a chain. */
hp_status pipe_graph_reduce(uint32_t stages, pipe_edge *edge, uint32_t *edges);
/* depth[stages]: edges of the longest path from each stage to one that no other reads. */
void pipe_graph_depth(const pipe_graph *g, uint32_t *depth);

#endif
