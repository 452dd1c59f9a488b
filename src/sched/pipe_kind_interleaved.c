/* interleaved: a device has v stages, and works on groups of as many micro-batches as there are
 * devices, stage by stage (Narayanan et al., Efficient Large-Scale Language Model Training, 2021).
 * Larger groups hold more micro-batches, and give a transfer more time before its value is needed.
 *
 * If the micro-batches are no multiple of a group, rows of those that would complete the last
 * group are left out.  The order of the rest stays one that can run; an incomplete group by itself
 * would deadlock. */
#include "sched/pipe_kinds.h"

typedef struct {
  const pipe_request *q;
  uint32_t chunks, device, micros; /* micros: of a group */
} interleaving;

/* Adds the i-th forward or backward of complete groups, unless its micro-batch does not exist. */
static void add_turn(const interleaving *g, uint64_t i, int action, pipe_rows *out) {
  const uint32_t p = g->q->devices, n = g->micros;
  const uint64_t group = (uint64_t)n * g->chunks, k = i / group * n + i % group % n;
  uint32_t chunk = (uint32_t)(i % group / n);
  if (action == PIPE_B) chunk = g->chunks - 1 - chunk;
  if (k < g->q->microbatches)
    pipe_kind_add(out, g->device, chunk * p + g->device, action, (uint32_t)k);
}

hp_status pipe_interleaved(const pipe_request *q, pipe_rows *out) {
  const uint32_t p = q->devices;
  interleaving g = {q, q->stages / p, 0, q->group ? q->group : p};
  if (g.micros > q->microbatches) g.micros = q->microbatches > p ? q->microbatches : p;
  const uint64_t n = g.micros, groups = (q->microbatches + n - 1) / n, all = groups * n * g.chunks;
  HP_TRY(pipe_kind_create(q, out));
  for (; g.device < p; g.device++) {
    uint64_t warmup = 2 * (uint64_t)(p - 1 - g.device) + (g.chunks - 1) * n + 1;
    if (warmup > all) warmup = all;
    pipe_kind_device(out, g.device);
    for (uint64_t i = 0; i + 1 < all + warmup; i++) {
      if (i < all) add_turn(&g, i, PIPE_F, out);
      if (i + 1 >= warmup) add_turn(&g, i + 1 - warmup, PIPE_B, out);
    }
  }
  return HP_OK;
}
