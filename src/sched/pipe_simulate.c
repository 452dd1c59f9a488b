#include "sched/pipe_simulate.h"

#include "sched/pipe_memory.h"
#include "sched/pipe_walk.h"

#include <stdlib.h>

typedef struct {
  const pipe_index *x;
  const pipe_costs *costs;
  const uint32_t *order; /* pipe_walk */
  double *start_s, *end_s;
  double *arrive_s; /* [rows] when what a row reads is on its device */
  double *free_s;   /* [devices] */
} simulation;

static double later(double a, double b) { return a > b ? a : b; }

/* What a row has made is there, for one of its readers. */
static void deliver(simulation *s, uint32_t reader, double at) {
  s->arrive_s[reader] = later(s->arrive_s[reader], at);
}

/* Row i, and one that overlaps with it, run when their device is free and what they read is there.
 */
static void run_rows(simulation *s, uint32_t i) {
  const pipe_rows *p = s->x->p;
  const uint32_t end = i + pipe_together(p, i), d = pipe_rows_device(p, i);
  const double time = pipe_together_s(s->x, s->costs, i);
  double start = s->free_s[d];
  for (uint32_t k = i; k < end; k++) start = later(start, s->arrive_s[k]);
  s->free_s[d] = start + time;
  for (uint32_t k = i; k < end; k++) {
    s->start_s[k] = start;
    s->end_s[k] = start + time;
    pipe_link reader;
    for (uint32_t n = 0; pipe_reader(s->x, k, n, &reader); n++)
      if (pipe_rows_device(p, reader.row) == d) deliver(s, reader.row, s->end_s[k]);
  }
}

static void clear_clocks(simulation *s) {
  const pipe_rows *p = s->x->p;
  for (uint32_t i = 0; i < pipe_rows_count(p); i++) s->arrive_s[i] = 0;
  for (uint32_t d = 0; d < p->devices; d++) s->free_s[d] = 0;
}

/* To readers on other devices. */
static void send_freely(simulation *s, uint32_t row) {
  const pipe_rows *p = s->x->p;
  pipe_link reader;
  for (uint32_t k = 0; pipe_reader(s->x, row, k, &reader); k++)
    if (pipe_rows_device(p, reader.row) != pipe_rows_device(p, row))
      deliver(s, reader.row, s->end_s[row] + pipe_transfer_s(s->costs, reader.edge));
}

static void run_with_free_queues(simulation *s) {
  const pipe_rows *p = s->x->p;
  clear_clocks(s);
  for (uint32_t at = 0; at < pipe_rows_count(p);) {
    const uint32_t i = s->order[at], n = pipe_together(p, i);
    run_rows(s, i);
    for (uint32_t k = i; k < i + n; k++) send_freely(s, k);
    at += n;
  }
}

/* Each device advances to the row of a transfer, whose inputs have been transferred before, since
 * the order is the global one. */
static hp_status run_with_one_stream(simulation *s, pipe_transfer *t, size_t n) {
  const pipe_rows *p = s->x->p;
  double *stream_s = mem_calloc(p->devices, sizeof *stream_s);
  uint32_t *next = mem_calloc(p->devices, sizeof *next);
  hp_status st = stream_s && next ? HP_OK : HP_ERR_OOM;
  if (st) goto done;
  clear_clocks(s);
  for (uint32_t d = 0; d < p->devices; d++) next[d] = p->row0[d];
  for (size_t k = 0; k < n; k++) {
    const uint32_t from = t[k].from, to = t[k].to;
    for (; next[from] <= t[k].row; next[from] += pipe_together(p, next[from]))
      run_rows(s, next[from]);
    t[k].start_s = later(s->end_s[t[k].row], later(stream_s[from], stream_s[to]));
    t[k].end_s = t[k].start_s + pipe_transfer_s(s->costs, t[k].edge);
    stream_s[from] = stream_s[to] = t[k].end_s;
    deliver(s, t[k].reader, t[k].end_s);
  }
  for (uint32_t d = 0; d < p->devices; d++)
    for (; next[d] < p->row0[d + 1]; next[d] += pipe_together(p, next[d])) run_rows(s, next[d]);
done:
  mem_free(stream_s);
  mem_free(next);
  return st;
}

/* Ties keep the order in which they were found: of their rows in pipe_walk, then of the readers. */
static int by_end(const void *a, const void *b) {
  const pipe_transfer *x = a, *y = b;
  if (x->end_s != y->end_s) return x->end_s < y->end_s ? -1 : 1;
  if (x->start_s != y->start_s) return x->start_s < y->start_s ? -1 : 1;
  return x->edge < y->edge ? -1 : x->edge > y->edge;
}

/* After run_with_free_queues. */
static hp_status list_transfers(const simulation *s, pipe_times *out) {
  const pipe_rows *p = s->x->p;
  const size_t rows = pipe_rows_count(p);
  size_t n = 0;
  pipe_transfer *t = mem_calloc(2 * (size_t)s->x->graph.edges * p->microbatches + 1, sizeof *t);
  HP_TRY_MEM(t);
  for (size_t at = 0; at < rows; at++) {
    const uint32_t i = s->order[at];
    pipe_link reader;
    for (uint32_t k = 0; pipe_reader(s->x, i, k, &reader); k++) {
      if (pipe_rows_device(p, reader.row) == pipe_rows_device(p, i)) continue;
      /* start_s is the place in the walk until all are sorted */
      t[n++] = (pipe_transfer){.row = i,
                               .reader = reader.row,
                               .edge = reader.edge,
                               .from = pipe_rows_device(p, i),
                               .to = pipe_rows_device(p, reader.row),
                               .start_s = (double)at,
                               .end_s = s->end_s[i] + pipe_transfer_s(s->costs, reader.edge)};
    }
  }
  qsort(t, n, sizeof *t, by_end);
  for (size_t k = 0; k < n; k++) t[k].start_s = s->end_s[t[k].row];
  out->transfer = t;
  out->transfers = n;
  return HP_OK;
}

/* --- where devices are idle, and why ---------------------------------------------------------- */

static double step_of(const simulation *s) {
  double step = 0;
  for (uint32_t d = 0; d < s->x->p->devices; d++) step = later(step, s->free_s[d]);
  return step;
}

static double busy_of(const simulation *s, uint32_t d) {
  const pipe_rows *p = s->x->p;
  double busy = 0;
  for (uint32_t i = p->row0[d]; i < p->row0[d + 1]; i += pipe_together(p, i))
    busy += s->end_s[i] - s->start_s[i];
  return busy;
}

static void set_devices(const simulation *s, pipe_times *out) {
  const pipe_rows *p = s->x->p;
  double busy = 0;
  out->step_s = step_of(s);
  out->span_s = 0;
  for (uint32_t d = 0; d < p->devices; d++) {
    pipe_device *at = &out->device[d];
    at->begin_s = s->start_s[p->row0[d]];
    at->end_s = s->free_s[d];
    at->busy_s = busy_of(s, d);
    at->idle_s = out->step_s - at->busy_s;
    out->span_s = later(out->span_s, at->end_s - at->begin_s);
    busy += at->busy_s / p->devices;
  }
  out->bubble = out->step_s > 0 ? 1 - busy / out->step_s : 0;
  out->steady_bubble = out->span_s > 0 ? 1 - busy / out->span_s : 0;
}

/* Of all stages and, if `each` is more than 1, micro-batches. */
static void set_mean(double *mean, const double *of, uint32_t stages, uint32_t each,
                     double without) {
  const size_t n = (size_t)stages * each;
  double sum = 0;
  for (size_t i = 0; i < n; i++) sum += pipe_seconds(of, i, without);
  for (uint32_t i = 0; i < stages; i++) mean[i] = sum / (double)n;
}

/* The schedule is simulated again without transfers, and then with equal stages and micro-batches
 * too. */
static hp_status set_causes(simulation *s, pipe_times *out) {
  const pipe_rows *p = s->x->p;
  const pipe_costs *real = s->costs;
  const uint32_t each = real->micros ? real->micros : 1;
  double *mean = mem_calloc(4 * (size_t)p->stages, sizeof *mean);
  HP_TRY_MEM(mean);
  pipe_costs costs = *real;
  costs.transfer_s = NULL;
  s->costs = &costs;
  run_with_free_queues(s);
  for (uint32_t d = 0; d < p->devices; d++) {
    const double idle = step_of(s) - busy_of(s, d);
    out->device[d].transfer_s = out->device[d].idle_s - idle;
    out->device[d].imbalance_s = idle;
  }
  costs.forward_s = mean;
  costs.backward_s = mean + p->stages;
  costs.weights_s = mean + 2 * p->stages;
  costs.update_s = mean + 3 * p->stages;
  costs.micros = 0;
  set_mean(mean, real->forward_s, p->stages, each, 1);
  set_mean(mean + p->stages, real->backward_s, p->stages, each, 1);
  set_mean(mean + 2 * p->stages, real->weights_s, p->stages, each, 1);
  set_mean(mean + 3 * p->stages, real->update_s, p->stages, 1, 0);
  run_with_free_queues(s);
  for (uint32_t d = 0; d < p->devices; d++) {
    out->device[d].warmup_s = step_of(s) - busy_of(s, d);
    out->device[d].imbalance_s -= out->device[d].warmup_s;
  }
  s->costs = real;
  mem_free(mean);
  return HP_OK;
}

/* --- all of it -------------------------------------------------------------------------------- */

static hp_status set_peaks(const pipe_index *x, const pipe_costs *c, pipe_times *out) {
  for (uint32_t d = 0; d < x->p->devices; d++) {
    pipe_peak peak;
    HP_TRY(pipe_memory(x, d, c, (pipe_limits){0}, &peak));
    out->device[d].peak_in_flight = peak.in_flight;
    out->device[d].peak_bytes = peak.bytes;
  }
  return HP_OK;
}

static hp_status simulate(simulation *s, uint32_t *order, pipe_queues queues, pipe_times *out) {
  const pipe_rows *p = s->x->p;
  const size_t rows = pipe_rows_count(p);
  s->arrive_s = mem_calloc(rows, sizeof *s->arrive_s);
  s->free_s = mem_calloc(p->devices, sizeof *s->free_s);
  s->start_s = mem_calloc(rows, sizeof *s->start_s);
  s->end_s = mem_calloc(rows, sizeof *s->end_s);
  out->start_s = mem_calloc(rows, sizeof *out->start_s);
  out->end_s = mem_calloc(rows, sizeof *out->end_s);
  out->device = mem_calloc(p->devices, sizeof *out->device);
  if (!s->arrive_s || !s->free_s || !s->start_s || !s->end_s || !out->start_s || !out->end_s ||
      !out->device)
    return HP_ERR_OOM;
  HP_TRY(set_peaks(s->x, s->costs, out));
  HP_TRY(pipe_walk(s->x, order));
  run_with_free_queues(s);
  HP_TRY(list_transfers(s, out));
  if (queues == PIPE_ONE_STREAM) HP_TRY(run_with_one_stream(s, out->transfer, out->transfers));
  set_devices(s, out);
  for (size_t i = 0; i < rows; i++) {
    out->start_s[i] = s->start_s[i];
    out->end_s[i] = s->end_s[i];
  }
  return set_causes(s, out);
}

hp_status pipe_simulate(const pipe_rows *p, const char *source, const pipe_costs *costs,
                        pipe_queues queues, pipe_times *out) {
  pipe_index x;
  pipe_times made = {0};
  HP_TRY(pipe_costs_check(costs, p->stages, p->microbatches));
  HP_TRY(pipe_index_build(p, source, costs, &x));
  uint32_t *order = mem_calloc(pipe_rows_count(p), sizeof *order);
  simulation s = {.x = &x, .costs = costs, .order = order};
  hp_status st = order ? simulate(&s, order, queues, &made) : HP_ERR_OOM;
  mem_free(order);
  mem_free(s.arrive_s);
  mem_free(s.free_s);
  mem_free(s.start_s);
  mem_free(s.end_s);
  pipe_index_free(&x);
  if (st) pipe_times_free(&made);
  else *out = made;
  return st;
}

void pipe_times_free(pipe_times *t) {
  if (!t) return;
  mem_free(t->start_s);
  mem_free(t->end_s);
  mem_free(t->transfer);
  mem_free(t->device);
  *t = (pipe_times){0};
}
