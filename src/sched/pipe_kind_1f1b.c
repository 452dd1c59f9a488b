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

/* F and B take turns after warm-up forwards, `ahead` more of them on a device than on the next one.
 * The warm-up never grows from a device to the next: that one would wait for forwards which come
 * after its own backwards here. */
static hp_status take_turns(const pipe_request *q, uint32_t ahead, pipe_rows *out) {
  uint32_t warmup = q->microbatches;
  HP_TRY(pipe_kind_create(q, out));
  for (uint32_t d = 0; d < q->devices; d++) {
    const uint64_t bytes = pipe_bytes(q->costs, d);
    warmup = lesser((uint64_t)ahead * (q->devices - 1 - d) + 1, warmup);
    warmup = lesser(q->limits.in_flight, warmup);
    if (bytes && q->limits.bytes) warmup = lesser(q->limits.bytes / bytes, warmup);
    if (!warmup) warmup = 1; /* does not fit, as pipe_generate will say */
    pipe_kind_device(out, d);
    for (uint32_t k = 0; k < q->microbatches + warmup; k++) {
      if (k < q->microbatches) pipe_kind_add(out, d, d, PIPE_F, k);
      if (k + 1 >= warmup && k + 1 - warmup < q->microbatches)
        pipe_kind_add(out, d, d, PIPE_B, k + 1 - warmup);
    }
  }
  return HP_OK;
}

hp_status pipe_1f1b(const pipe_request *q, pipe_rows *out) { return take_turns(q, 1, out); }

/* The limit tells zb-h1 and zb-2p apart: with more, pipe_fill lets forwards overtake.  Both
 * warm-ups are tried, since with unequal costs either may be better. */
hp_status pipe_zero_bubble(const pipe_request *q, pipe_rows *out) {
  double best = INFINITY;
  pipe_fill_policy policy;
  for (uint32_t ahead = 1; ahead <= 2; ahead++) {
    pipe_rows turns;
    HP_TRY(take_turns(q, ahead, &turns));
    hp_status st = pipe_fill_best(q, &turns, false, &best, &policy, out);
    if (!st) st = pipe_fill_best(q, &turns, true, &best, &policy, out);
    pipe_rows_free(&turns);
    HP_TRY(st);
  }
  return HP_OK;
}
