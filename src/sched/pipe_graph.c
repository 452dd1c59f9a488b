#include "sched/pipe_graph.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

void pipe_graph_free(pipe_graph *g) {
  mem_free(g->edge);
  mem_free(g->out0);
  mem_free(g->in0);
  mem_free(g->in);
  *g = (pipe_graph){0};
}

static int by_stages(const void *a, const void *b) {
  const pipe_edge *x = a, *y = b;
  return x->from != y->from ? x->from - y->from : x->to - y->to;
}

static hp_status check_edges(uint32_t stages, const pipe_edge *edge, uint32_t edges) {
  for (uint32_t i = 0; i < edges; i++) {
    if (edge[i].from >= edge[i].to || edge[i].to >= stages)
      HP_FAIL(HP_ERR_ARG,
              "stage %u reads what stage %u makes; expected stages below %u, each after those that "
              "it reads",
              edge[i].to, edge[i].from, stages);
    if (i && by_stages(&edge[i - 1], &edge[i]) >= 0)
      HP_FAIL(HP_ERR_ARG, "the edge from stage %u to %u is out of order, or there twice",
              edge[i].from, edge[i].to);
  }
  return HP_OK;
}

/* first[s + 1] counts the edges of stage s; becomes where they begin. */
static void add_up(uint32_t *first, uint32_t stages) {
  for (uint32_t s = 0; s < stages; s++) first[s + 1] += first[s];
}

static void connect(pipe_graph *g) {
  for (uint32_t i = 0; i < g->edges; i++) {
    g->out0[g->edge[i].from + 1]++;
    g->in0[g->edge[i].to + 1]++;
  }
  add_up(g->out0, g->stages);
  add_up(g->in0, g->stages);
  for (uint32_t i = 0; i < g->edges; i++) g->in[g->in0[g->edge[i].to]++] = i;
  memmove(g->in0 + 1, g->in0, g->stages * sizeof *g->in0);
  g->in0[0] = 0;
}

hp_status pipe_graph_create(uint32_t stages, const pipe_edge *edge, uint32_t edges,
                            pipe_graph *out) {
  const uint32_t n = edge ? edges : stages - 1;
  pipe_graph g = {.stages = stages,
                  .edges = n,
                  .edge = mem_calloc((size_t)n + 1, sizeof *g.edge),
                  .out0 = mem_calloc((size_t)stages + 1, sizeof *g.out0),
                  .in0 = mem_calloc((size_t)stages + 1, sizeof *g.in0),
                  .in = mem_calloc((size_t)n + 1, sizeof *g.in)};
  hp_status st = g.edge && g.out0 && g.in0 && g.in ? HP_OK : HP_ERR_OOM;
  if (!st && edge) st = check_edges(stages, edge, edges);
  if (st) {
    pipe_graph_free(&g);
    return st;
  }
  for (uint32_t i = 0; i < n; i++)
    g.edge[i] = edge ? edge[i] : (pipe_edge){(uint16_t)i, (uint16_t)(i + 1)};
  connect(&g);
  *out = g;
  return HP_OK;
}

/* --- paths ------------------------------------------------------------------------------------ */

/* Of the edges that leave a stage, in order: one is implied if the stages reached by those before
 * it are, too.  A longer path begins with an earlier edge, for stages are in order. */
hp_status pipe_graph_reduce(uint32_t stages, pipe_edge *edge, uint32_t *edges) {
  const size_t words = ((size_t)stages + 63) / 64;
  uint64_t *reach = mem_calloc(stages * words, sizeof *reach); /* [stages][words] a bit each */
  bool *kept = mem_calloc((size_t)*edges + 1, sizeof *kept);
  hp_status st = reach && kept ? HP_OK : HP_ERR_OOM;
  if (!st && *edges) qsort(edge, *edges, sizeof *edge, by_stages);
  for (uint32_t end = st ? 0 : *edges, first; end; end = first) {
    uint64_t *own = &reach[edge[end - 1].from * words];
    for (first = end; first && edge[first - 1].from == edge[end - 1].from;) first--;
    for (uint32_t i = first; i < end; i++) {
      const uint32_t to = edge[i].to;
      kept[i] = !(own[to / 64] >> to % 64 & 1);
      own[to / 64] |= (uint64_t)1 << to % 64;
      for (size_t w = 0; w < words; w++) own[w] |= reach[to * words + w];
    }
  }
  uint32_t n = 0;
  for (uint32_t i = 0; !st && i < *edges; i++)
    if (kept[i]) edge[n++] = edge[i];
  if (!st) *edges = n;
  mem_free(reach);
  mem_free(kept);
  return st;
}

void pipe_graph_depth(const pipe_graph *g, uint32_t *depth) {
  for (uint32_t s = g->stages; s-- > 0;) {
    depth[s] = 0;
    for (uint32_t i = g->out0[s]; i < g->out0[s + 1]; i++)
      if (depth[g->edge[i].to] >= depth[s]) depth[s] = depth[g->edge[i].to] + 1;
  }
}
