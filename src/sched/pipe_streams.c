#include "sched/pipe_streams.h"

#include "sched/pipe_index.h"

#include <string.h>

typedef struct {
  const pipe_rows *p;
  const pipe_times *t;
  const pipe_streams *s;
  const char *source;
  uint32_t *row, *stream; /* [devices] next row, next place in at[] */
  uint32_t *input; /* [rows] the first transfer that brings what a row reads; PIPE_NONE: none */
  uint32_t *more;  /* [transfers] the next one for the same row */
  bool *arrived;   /* [transfers] */
  uint32_t *ends;  /* [transfers] 1 for each send, 4 for each receive */
  uint32_t *queue; /* [devices] a stack of devices that may go on */
  bool *queued;
  uint32_t n;
} rendezvous;

hp_status pipe_streams_create(const pipe_rows *p, const pipe_times *t, pipe_streams *out) {
  pipe_streams s = {.at0 = mem_calloc((size_t)p->devices + 1, sizeof *s.at0),
                    .at = mem_calloc(2 * t->transfers, sizeof *s.at)};
  if (!s.at0 || !s.at) {
    pipe_streams_free(&s);
    return HP_ERR_OOM;
  }
  for (size_t k = 0; k < t->transfers; k++) {
    s.at0[t->transfer[k].from + 1]++;
    s.at0[t->transfer[k].to + 1]++;
  }
  for (uint32_t d = 0; d < p->devices; d++) s.at0[d + 1] += s.at0[d];
  for (size_t k = 0; k < t->transfers; k++) {
    s.at[s.at0[t->transfer[k].from]++] = (uint32_t)k;
    s.at[s.at0[t->transfer[k].to]++] = (uint32_t)k;
  }
  memmove(s.at0 + 1, s.at0, p->devices * sizeof *s.at0);
  s.at0[0] = 0;
  *out = s;
  return HP_OK;
}

void pipe_streams_free(pipe_streams *s) {
  if (!s) return;
  mem_free(s->at0);
  mem_free(s->at);
  *s = (pipe_streams){0};
}

static void enqueue(rendezvous *r, uint32_t device) {
  if (r->queued[device]) return;
  r->queued[device] = true;
  r->queue[r->n++] = device;
}

/* The transfer that comes next on a device; PIPE_NONE: no more. */
static uint32_t head(const rendezvous *r, uint32_t device) {
  return r->stream[device] < r->s->at0[device + 1] ? r->s->at[r->stream[device]] : PIPE_NONE;
}

/* The transfer that the next row of a device, or one that overlaps with it, waits for. */
static uint32_t missing_input(const rendezvous *r, uint32_t device) {
  const uint32_t i = r->row[device];
  for (uint32_t row = i; row < i + pipe_together(r->p, i); row++)
    for (uint32_t k = r->input[row]; k != PIPE_NONE; k = r->more[k])
      if (!r->arrived[k]) return k;
  return PIPE_NONE;
}

static void run_device(rendezvous *r, uint32_t device) {
  for (;;) {
    while (r->row[device] < r->p->row0[device + 1] && missing_input(r, device) == PIPE_NONE)
      r->row[device] += pipe_together(r->p, r->row[device]);
    const uint32_t k = head(r, device);
    if (k == PIPE_NONE) return;
    const pipe_transfer *t = &r->t->transfer[k];
    const uint32_t peer = t->from == device ? t->to : t->from;
    if (head(r, peer) != k || r->row[t->from] <= t->row) return;
    r->stream[device]++;
    r->stream[peer]++;
    r->arrived[k] = true;
    enqueue(r, peer);
  }
}

/* The transfer that a transfer which is next on one of its devices, or on none, waits for. */
static uint32_t blocker(const rendezvous *r, uint32_t k) {
  const pipe_transfer *t = &r->t->transfer[k];
  if (head(r, t->from) != k) return head(r, t->from);
  if (head(r, t->to) != k) return head(r, t->to);
  return missing_input(r, t->from);
}

static hp_status explain_halt(const rendezvous *r) {
  uint32_t k = PIPE_NONE, other;
  char one[PIPE_ROW_NAME], two[PIPE_ROW_NAME];
  for (uint32_t d = 0; k == PIPE_NONE; d++) k = head(r, d);
  for (size_t i = 0; i < r->t->transfers; i++) k = blocker(r, k);
  other = blocker(r, k);
  const pipe_transfer *a = &r->t->transfer[k], *b = &r->t->transfer[other];
  HP_FAIL(HP_ERR_INPUT,
          "%s: what %s sends from device %u to %u and what %s sends from device %u to %u wait for "
          "each other; send and receive in one global order",
          r->source, pipe_row_name(&r->p->row[a->row], one), a->from, a->to,
          pipe_row_name(&r->p->row[b->row], two), b->from, b->to);
}

/* Each transfer once on both of its devices, and on no other. */
static hp_status check_lists(const rendezvous *r) {
  char text[PIPE_ROW_NAME];
  for (uint32_t d = 0; d < r->p->devices; d++)
    for (uint32_t i = r->s->at0[d]; i < r->s->at0[d + 1]; i++) {
      const uint32_t k = r->s->at[i];
      const pipe_transfer *t = k < r->t->transfers ? &r->t->transfer[k] : NULL;
      if (!t || (t->from != d && t->to != d))
        HP_FAIL(HP_ERR_INPUT, "%s: device %u has transfer %u, which is not one of its own",
                r->source, d, k);
      r->ends[k] += t->from == d ? 1 : 4;
    }
  for (size_t k = 0; k < r->t->transfers; k++)
    if (r->ends[k] != 5)
      HP_FAIL(HP_ERR_INPUT, "%s: what %s sends from device %u to %u is %s", r->source,
              pipe_row_name(&r->p->row[r->t->transfer[k].row], text), r->t->transfer[k].from,
              r->t->transfer[k].to,
              (r->ends[k] & 3) != 1 ? "not sent exactly once" : "not received exactly once");
  return HP_OK;
}

static hp_status run_all(rendezvous *r) {
  HP_TRY(check_lists(r));
  for (uint32_t i = 0; i < pipe_rows_count(r->p); i++) r->input[i] = PIPE_NONE;
  for (size_t k = r->t->transfers; k-- > 0;) {
    uint32_t *first = &r->input[r->t->transfer[k].reader];
    r->more[k] = *first;
    *first = (uint32_t)k;
  }
  for (uint32_t d = 0; d < r->p->devices; d++) {
    r->row[d] = r->p->row0[d];
    r->stream[d] = r->s->at0[d];
    enqueue(r, d);
  }
  while (r->n) {
    const uint32_t device = r->queue[--r->n];
    r->queued[device] = false;
    run_device(r, device);
  }
  for (uint32_t d = 0; d < r->p->devices; d++)
    if (head(r, d) != PIPE_NONE) return explain_halt(r);
  return HP_OK;
}

hp_status pipe_streams_check(const pipe_rows *p, const char *source, const pipe_times *t,
                             const pipe_streams *s) {
  rendezvous r = {.p = p,
                  .t = t,
                  .s = s,
                  .source = source,
                  .row = mem_calloc(p->devices, sizeof *r.row),
                  .stream = mem_calloc(p->devices, sizeof *r.stream),
                  .input = mem_calloc(pipe_rows_count(p), sizeof *r.input),
                  .more = mem_calloc(t->transfers, sizeof *r.more),
                  .arrived = mem_calloc(t->transfers, sizeof *r.arrived),
                  .ends = mem_calloc(t->transfers, sizeof *r.ends),
                  .queue = mem_calloc(p->devices, sizeof *r.queue),
                  .queued = mem_calloc(p->devices, sizeof *r.queued)};
  const bool memory =
      r.row && r.stream && r.input && r.more && r.arrived && r.ends && r.queue && r.queued;
  hp_status st = memory ? run_all(&r) : HP_ERR_OOM;
  mem_free(r.row);
  mem_free(r.stream);
  mem_free(r.input);
  mem_free(r.more);
  mem_free(r.arrived);
  mem_free(r.ends);
  mem_free(r.queue);
  mem_free(r.queued);
  return st;
}
