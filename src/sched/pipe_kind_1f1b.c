/* Schedules with one stage a device: gpipe, 1f1b, and zero-bubble ones in the memory of 1f1b
 * (zb-h1) or about twice that (zb-2p; Qi et al., Zero Bubble Pipeline Parallelism, 2023). */
#include "sched/pipe_kinds.h"

#include <math.h>

hp_status pipe_gpipe(const pipe_request *q, pipe_rows *out) {
  HP_TRY(pipe_kind_create(q, out));
  for (uint32_t d = 0; d < q->devices; d++) {
    pipe_kind_device(out, d);
    for (uint32_t k = 0; k < q->microbatches; k++) pipe_kind_add(out, d, d, PIPE_F, k);
    for (uint32_t k = 0; k < q->microbatches; k++) pipe_kind_add(out, d, d, PIPE_B, k);
  }
  return HP_OK;
}

static uint32_t lesser(uint64_t a, uint32_t b) { return a < b ? (uint32_t)a : b; }

/* Warm-up forwards of each device: `ahead` more than those of the devices that read its stage.  The
 * warm-up never grows from a device to one that reads it: that one would wait for forwards which
 * come after its own backwards here. */
static void set_warmups(const pipe_request *q, uint32_t ahead, const pipe_graph *g,
                        uint32_t *warmup) {
  pipe_graph_depth(g, warmup);
  for (uint32_t d = 0; d < q->devices; d++) {
    const uint64_t bytes = pipe_bytes(q->costs, d);
    uint32_t n = lesser((uint64_t)ahead * warmup[d] + 1, q->microbatches);
    n = lesser(q->limits.in_flight, n);
    for (uint32_t i = g->in0[d]; i < g->in0[d + 1]; i++)
      n = lesser(warmup[g->edge[g->in[i]].from], n);
    if (bytes && q->limits.bytes) n = lesser(q->limits.bytes / bytes, n);
    warmup[d] = n ? n : 1; /* does not fit, as pipe_generate will say */
  }
}

/* F and B take turns after the warm-up. */
static void add_turns(const pipe_request *q, const uint32_t *warmups, pipe_rows *out) {
  for (uint32_t d = 0; d < q->devices; d++) {
    const uint32_t warmup = warmups[d];
    pipe_kind_device(out, d);
    for (uint32_t k = 0; k < q->microbatches + warmup; k++) {
      if (k < q->microbatches) pipe_kind_add(out, d, d, PIPE_F, k);
      if (k + 1 >= warmup && k + 1 - warmup < q->microbatches)
        pipe_kind_add(out, d, d, PIPE_B, k + 1 - warmup);
    }
  }
}

static hp_status take_turns(const pipe_request *q, uint32_t ahead, pipe_rows *out) {
  pipe_graph g;
  HP_TRY(pipe_kind_create(q, out));
  HP_TRY(pipe_graph_create(q->stages, q->costs->edge, q->costs->edges, &g));
  uint32_t *warmup = mem_calloc(q->devices, sizeof *warmup);
  if (warmup) {
    set_warmups(q, ahead, &g, warmup);
    add_turns(q, warmup, out);
  }
  pipe_graph_free(&g);
  mem_free(warmup);
  return warmup ? HP_OK : HP_ERR_OOM;
}

hp_status pipe_1f1b(const pipe_request *q, pipe_rows *out) { return take_turns(q, 1, out); }

/* The limit tells zb-h1 and zb-2p apart: with more, pipe_fill lets forwards overtake.  Both
 * warm-ups are tried, since with unequal costs either may be better. */
hp_status pipe_zero_bubble(const pipe_request *q, pipe_rows *out) {
  double best = INFINITY;
  pipe_fill_policy policy;
  for (uint32_t ahead = 1; ahead <= 2; ahead++) {
    pipe_rows turns = {0};
    hp_status st = take_turns(q, ahead, &turns);
    if (!st) st = pipe_fill_best(q, &turns, false, &best, &policy, out);
    if (!st) st = pipe_fill_best(q, &turns, true, &best, &policy, out);
    pipe_rows_free(&turns);
    HP_TRY(st);
  }
  return HP_OK;
}
