#include "sched/pipe_memory.h"

static hp_status hold(const pipe_index *x, uint32_t i, uint32_t device, const pipe_costs *c,
                      pipe_limits limits, pipe_peak *now) {
  const pipe_row *row = &x->p->row[i];
  char text[PIPE_ROW_NAME];
  now->in_flight++;
  if (limits.in_flight && now->in_flight > limits.in_flight)
    HP_FAIL(
        HP_ERR_INPUT,
        "%s: with %s %u micro-batches are in flight on device %u (F begun, W not ended), and the "
        "limit is %u; run W, or B that is not split, before it",
        x->source, pipe_row_name(row, text), now->in_flight, device, limits.in_flight);
  now->bytes += pipe_bytes(c, row->stage);
  if (limits.bytes && now->bytes > limits.bytes)
    HP_FAIL(
        HP_ERR_INPUT,
        "%s: with %s device %u holds %llu bytes of %u micro-batches in flight, and the limit is "
        "%llu; run W or B before it",
        x->source, pipe_row_name(row, text), device, (unsigned long long)now->bytes, now->in_flight,
        (unsigned long long)limits.bytes);
  return HP_OK;
}

static void release(const pipe_index *x, uint32_t i, const pipe_costs *c, pipe_peak *now) {
  const pipe_row *row = &x->p->row[i];
  const uint64_t all = pipe_bytes(c, row->stage), late = pipe_weights_bytes(c, row->stage);
  const bool last = row->actions & PIPE_W || (row->actions & PIPE_B && !x->split);
  if (row->actions & PIPE_B) now->bytes -= all - late;
  if (!last) return;
  now->bytes -= late;
  now->in_flight--;
}

hp_status pipe_memory(const pipe_index *x, uint32_t device, const pipe_costs *c, pipe_limits limits,
                      pipe_peak *out) {
  const pipe_rows *p = x->p;
  pipe_peak now = {0}, peak = {0};
  for (uint32_t i = p->row0[device]; i < p->row0[device + 1]; i += pipe_together(p, i)) {
    const uint32_t end = i + pipe_together(p, i);
    for (uint32_t k = i; k < end; k++)
      if (p->row[k].actions & PIPE_F) HP_TRY(hold(x, k, device, c, limits, &now));
    if (now.in_flight > peak.in_flight) peak.in_flight = now.in_flight;
    if (now.bytes > peak.bytes) peak.bytes = now.bytes;
    for (uint32_t k = i; k < end; k++) release(x, k, c, &now);
  }
  *out = peak;
  return HP_OK;
}
