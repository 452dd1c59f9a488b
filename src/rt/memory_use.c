#include "rt/memory_use.h"

#include "comm/world.h"
#include "prog/tier_check.h"

#include <stdlib.h>
#include <string.h>

_Static_assert((int)HP_MEMORY_CLASSES == (int)MEM_CLASS_COUNT,
               "the classes of the API are mem_class");
_Static_assert((int)HP_TIERS == (int)TIER_COUNT, "the tiers of the API are those of programs");

/* --- tensors that outlive runs ---------------------------------------------------------------- */

static bool is_state(const program *p, size_t b) {
  return p->buffers.at[b].place == PLACE_STATE && p->buffers.at[b].root == b;
}

bool memory_sends_away(const device *d, const program *p) {
  bool offloaded = false;
  for (size_t b = 0; b < p->buffers.len; b++) offloaded |= p->buffers.at[b].tier != TIER_DEVICE;
  return offloaded && job_device_offloads(d->job);
}

static uint64_t sent_away(const device *d, const program *p) {
  uint64_t sum = 0;
  bool sends = memory_sends_away(d, p);
  for (size_t i = 0; sends && i < d->states.len; i++) {
    const state_tensor *t = &d->states.at[i];
    if (t->tier == TIER_DEVICE && !t->programs) sum += memory_round(t->bytes);
  }
  return sum;
}

uint64_t memory_state(const device *d, const program *p, int tier) {
  uint64_t sum = d->job->state_bytes[tier];
  uint32_t index;
  uint64_t sent = sent_away(d, p);
  if (sent && tier == TIER_DEVICE) sum -= sent;
  if (sent && tier == TIER_HOST) sum += sent;
  for (size_t b = 0; b < p->buffers.len; b++) {
    const prog_buffer *f = &p->buffers.at[b];
    if (!is_state(p, b)) continue;
    bool found = device_find(d, program_str(p, f->name), &index);
    int has = found ? d->states.at[index].tier : TIER_COUNT; /* it moves to where it is needed */
    if (sent && found && has == TIER_DEVICE && !d->states.at[index].programs) has = TIER_HOST;
    if (f->tier == tier && has != tier) sum += tier_memory_pad(tier, f->bytes);
    if (f->tier != tier && has == tier) sum -= tier_memory_pad(tier, f->bytes);
  }
  return sum;
}

/* By class; tensors that only other programs use are "other" on the device. */
static void count_state(const device *d, const program *p, hp_memory *m) {
  uint64_t known = 0;
  m->state_bytes = memory_state(d, p, TIER_DEVICE);
  for (size_t b = 0; b < p->buffers.len; b++) {
    const prog_buffer *f = &p->buffers.at[b];
    if (!is_state(p, b)) continue;
    uint64_t bytes = tier_memory_pad(f->tier, f->bytes);
    int class = f->class < MEM_CLASS_COUNT ? f->class : MEM_OTHER;
    m->tier[f->tier].state[class] += bytes;
    if (f->tier != TIER_DEVICE) continue;
    m->state[class] += bytes;
    known += bytes;
  }
  if (m->state_bytes > known) m->state[MEM_OTHER] += m->state_bytes - known;
}

/* --- work memory ------------------------------------------------------------------------------ */

static void touch(const program *p, timeline_span *s, bool *seen, uint32_t buffer, uint32_t at) {
  uint32_t b = p->buffers.at[buffer].root;
  if (!seen[b] || at < s[b].first) s[b].first = at;
  if (!seen[b] || at > s[b].last) s[b].last = at;
  seen[b] = true;
}

enum {
  EXISTS_AT_START = BUFFER_INPUT | BUFFER_CARRIED_IN,
  EXISTS_AT_END = BUFFER_OUTPUT | BUFFER_CARRIED_OUT
};

/* First and last instruction that touches each buffer; inputs, and tensors that the run before has
 * left there, are live from the start, outputs and what the next run finds to the end. */
static void find_live_ranges(const program *p, timeline_span *s, bool *seen) {
  uint32_t end = p->insts.len ? (uint32_t)p->insts.len - 1 : 0;
  for (uint32_t i = 0; i < p->insts.len; i++) {
    const prog_inst *n = program_inst(p, i);
    for (int k = 0; k < n->n_in + n->n_out; k++) touch(p, s, seen, program_args(p, n)[k], i);
    if (n->workspace != PROG_NONE) touch(p, s, seen, n->workspace, i);
  }
  for (uint32_t b = 0; b < p->buffers.len; b++) {
    const prog_buffer *f = &p->buffers.at[b];
    if (f->flags & EXISTS_AT_START) touch(p, s, seen, b, 0);
    if (f->flags & EXISTS_AT_END) touch(p, s, seen, b, end);
    if (f->root != b || f->place != PLACE_WORK || !seen[b]) continue;
    s[b].bytes = memory_round(f->bytes);
    s[b].tier = f->tier;
    s[b].class = f->class;
  }
}

typedef struct {
  uint64_t offset;
  uint32_t first, last, buffer;
  uint8_t tier;
} placed;

static int by_place(const void *a, const void *b) {
  const placed *x = a, *y = b;
  if (x->tier != y->tier) return x->tier < y->tier ? -1 : 1;
  if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
  if (x->first != y->first) return x->first < y->first ? -1 : 1;
  if (x->last != y->last) return x->last < y->last ? -1 : 1;
  return x->buffer < y->buffer ? -1 : x->buffer > y->buffer;
}

/* Two ranges that share one instruction and one offset are an operand and the result that
 * overwrites it. */
static void end_overwritten(const placed *at, size_t n, timeline_span *s) {
  for (size_t i = 0; i + 1 < n; i++) {
    timeline_span *old = &s[at[i].buffer];
    const timeline_span *new = &s[at[i + 1].buffer];
    bool same = at[i].tier == at[i + 1].tier && at[i].offset == at[i + 1].offset;
    if (!same || old->last < new->first) continue;
    if (old->first < new->first) old->last = new->first - 1;
    else old->bytes = 0;
  }
}

hp_status memory_spans(const program *p, timeline_span **out) {
  size_t n = p->buffers.len, used = 0;
  timeline_span *s = mem_calloc(n, sizeof *s);
  bool *seen = mem_calloc(n, sizeof *seen);
  placed *at = mem_calloc(n, sizeof *at);
  hp_status st = s && seen && at ? HP_OK : HP_ERR_OOM;
  if (!st) find_live_ranges(p, s, seen);
  for (uint32_t b = 0; !st && b < n; b++)
    if (s[b].bytes)
      at[used++] = (placed){p->buffers.at[b].offset, s[b].first, s[b].last, b, s[b].tier};
  if (used) {
    qsort(at, used, sizeof *at, by_place);
    end_overwritten(at, used, s);
  }
  mem_free(seen);
  mem_free(at);
  if (st) mem_free(s);
  else *out = s;
  return st;
}

static hp_status count_work(const program *p, hp_memory *m) {
  timeline_span *s;
  timeline t;
  HP_TRY(memory_spans(p, &s));
  hp_status st = timeline_build(s, p->buffers.len, p->insts.len ? p->insts.len : 1, TIER_COUNT, &t);
  mem_free(s);
  HP_TRY(st);
  memcpy(m->live, t.peak_by_class[TIER_DEVICE], sizeof m->live);
  m->live_bytes = t.peak[TIER_DEVICE];
  m->live_at = (int)t.peak_at[TIER_DEVICE];
  timeline_free(&t);
  return HP_OK;
}

/* --- over time -------------------------------------------------------------------------------- */

/* The instruction with the most live bytes in range i of n. */
static size_t find_peak(const timeline *t, int i, int n) {
  size_t parts = (size_t)n, from = (size_t)i * t->positions / parts;
  size_t to = ((size_t)i + 1) * t->positions / parts, best = from;
  for (size_t k = from + 1; k < to; k++)
    if (t->live[k] > t->live[best]) best = k;
  return best;
}

static hp_status live_of(const program *p, bool all, mem_class class, uint64_t *live, int n) {
  timeline_span *s;
  timeline sum = {0}, one = {0};
  size_t count = p->buffers.len, positions = p->insts.len ? p->insts.len : 1;
  HP_TRY(memory_spans(p, &s));
  hp_status st = timeline_build(s, count, positions, TIER_COUNT, &sum);
  if (!st) {
    for (size_t b = 0; b < count; b++)
      if (!all && s[b].class != class) s[b].bytes = 0;
    st = timeline_build(s, count, positions, TIER_COUNT, &one);
  }
  for (int i = 0; !st && i < n; i++) live[i] = one.live[find_peak(&sum, i, n)];
  timeline_free(&sum);
  timeline_free(&one);
  mem_free(s);
  return st;
}

void memory_live(const program *p, uint64_t *live, int n) {
  if (n > 0) memset(live, 0, (size_t)n * sizeof *live);
  if (n > 0 && live_of(p, true, MEM_OTHER, live, n)) err_clear();
}

hp_status memory_live_of(const program *p, mem_class class, uint64_t *live, int n) {
  return live_of(p, false, class, live, n);
}

/* --- all of it -------------------------------------------------------------------------------- */

/* Messages between processes have buffers of the host, which all programs share. */
static uint64_t count_buffers(const device_mesh *dm) {
  const comm *c = dm->job->comm;
  return c && c->iface->buffer_bytes ? c->iface->buffer_bytes(c) : 0;
}

static void count_tiers(const device_mesh *dm, int i, const program *p, hp_memory *m) {
  for (int t = 0; t < TIER_COUNT; t++) {
    m->tier[t].name = tier_name(t);
    m->tier[t].planned_bytes = p->arena[t] + memory_state(dm->member[i], p, t);
  }
  m->tier[TIER_HOST].planned_bytes += count_buffers(dm);
  for (size_t k = 0; k < p->insts.len; k++) {
    const prog_inst *n = program_inst(p, k);
    if (!(op_flags((op_id)n->op) & OPF_MOVE)) continue;
    tier_copy c = tier_copy_of(p, n);
    m->tier[c.from->tier].moved_bytes += c.bytes;
    if (c.to->tier != c.from->tier) m->tier[c.to->tier].moved_bytes += c.bytes;
  }
}

/* The memory of a device of the cluster, in bytes; of the cluster `this` its share of this
 * machine.  0: unknown. */
static uint64_t count_device_bytes(const device_mesh *dm) {
  if (dm->cluster.memory_gb > 0) return (uint64_t)(dm->cluster.memory_gb * 1e9);
  if (strcmp(dm->cluster.name, "this")) return 0;
  return dm->member[0]->job->physical / (uint64_t)dm->job->sharers;
}

hp_status memory_use_of(const device_mesh *dm, int i, const program *p,
                        const uint64_t model[MEM_CLASS_COUNT], hp_memory *out) {
  hp_memory m = {.work_bytes = p->arena[TIER_DEVICE],
                 .work_bound = p->bound[TIER_DEVICE],
                 .limit_bytes = dm->member[i]->job->limit[TIER_DEVICE],
                 .device_bytes = count_device_bytes(dm),
                 .devices = dm->n};
  HP_TRY(count_work(p, &m));
  count_state(dm->member[i], p, &m);
  memcpy(m.model, model, sizeof m.model);
  m.planned_bytes = m.state_bytes + m.work_bytes;
  count_tiers(dm, i, p, &m);
  *out = m;
  return HP_OK;
}
