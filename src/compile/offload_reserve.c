#include "compile/offload_reserve.h"

#include "base/mem.h"

/* By root buffer: steps from the first that touches it to the last. */
typedef struct {
  uint32_t *first, *last;
} span;

static void touch(const program *p, span *s, uint32_t buffer, uint32_t step) {
  uint32_t b = p->buffers.at[buffer].root;
  if (s->first[b] == PROG_NONE) s->first[b] = step;
  s->last[b] = step;
}

/* A copy belongs to the step that follows it, and to the last one behind that. */
static void find_spans(const program *p, size_t steps, span *s) {
  uint32_t step = 0, end = (uint32_t)steps - 1;
  for (size_t b = 0; b < p->buffers.len; b++) s->first[b] = s->last[b] = PROG_NONE;
  for (uint32_t i = 0; i < p->insts.len; i++) {
    const prog_inst *n = program_inst(p, i);
    uint32_t at = step < end ? step : end;
    for (int k = 0; k < n->n_in + n->n_out; k++) touch(p, s, program_args(p, n)[k], at);
    if (n->workspace != PROG_NONE) touch(p, s, n->workspace, at);
    step += n->kernel < steps; /* copies have the kernel after the last */
  }
  for (uint32_t b = 0; b < p->buffers.len; b++) {
    uint8_t flags = p->buffers.at[b].flags;
    if (s->first[b] == PROG_NONE) continue;
    if (flags & BUFFER_CARRIED_IN) s->first[b] = 0;
    if (flags & BUFFER_CARRIED_OUT) s->last[b] = end;
  }
}

static void add(const program *p, const span *s, uint64_t room, uint64_t *above) {
  for (uint32_t b = 0; b < p->buffers.len; b++) {
    const prog_buffer *f = &p->buffers.at[b];
    bool planned = f->place == PLACE_WORK && f->root == b && f->tier == TIER_DEVICE;
    uint64_t end = f->offset + f->bytes;
    if (!planned || s->first[b] == PROG_NONE || end <= room) continue;
    for (uint32_t i = s->first[b]; i <= s->last[b]; i++)
      if (end - room > above[i]) above[i] = end - room;
  }
}

hp_status offload_reserve_add(const program *p, uint64_t room, uint64_t most, size_t steps,
                              uint64_t *reserve, bool *more) {
  span s = {mem_calloc(p->buffers.len, sizeof *s.first),
            mem_calloc(p->buffers.len, sizeof *s.last)};
  uint64_t *above = mem_calloc(steps + 1, sizeof *above);
  bool made = s.first && s.last && above;
  *more = false;
  if (made && steps) {
    find_spans(p, steps, &s);
    add(p, &s, room, above);
    for (size_t i = 0; i < steps; i++) {
      uint64_t bytes = reserve[i] + (above[i] + 255) / 256 * 256;
      if (bytes > most) bytes = most;
      *more |= bytes > reserve[i];
      reserve[i] = bytes;
    }
  }
  mem_free(s.first);
  mem_free(s.last);
  mem_free(above);
  return made ? HP_OK : HP_ERR_OOM;
}
