#include "sched/pipe_walk.h"

#include <string.h>

typedef struct {
  const pipe_index *x;
  uint32_t *next;    /* [devices] row that a device comes to */
  uint32_t *queue;   /* [devices] devices that may go on */
  bool *queued;      /* [devices] */
  uint32_t first, n; /* of the queue, which is a ring */
} walk;

/* Has row i run?  Its device has come past it. */
static bool has_run(const walk *w, uint32_t i) {
  const pipe_rows *p = w->x->p;
  return i < w->next[p->placement[p->row[i].stage]];
}

/* A row that row i, or one that overlaps with it, waits for; PIPE_NONE: none. */
static uint32_t waits_for(const walk *w, uint32_t i) {
  pipe_link input;
  for (uint32_t row = i; row < i + pipe_together(w->x->p, i); row++)
    for (uint32_t k = 0; pipe_input(w->x, row, k, &input); k++)
      if (!has_run(w, input.row)) return input.row;
  return PIPE_NONE;
}

static void enqueue(walk *w, uint32_t device) {
  const uint32_t devices = w->x->p->devices;
  if (w->queued[device]) return;
  w->queued[device] = true;
  w->queue[(w->first + w->n++) % devices] = device;
}

/* Devices whose next rows may be the readers of a row. */
static void enqueue_readers(walk *w, uint32_t row, uint32_t device) {
  const pipe_rows *p = w->x->p;
  pipe_link reader;
  for (uint32_t k = 0; pipe_reader(w->x, row, k, &reader); k++) {
    const uint32_t to = p->placement[p->row[reader.row].stage];
    if (to != device && w->next[to] <= reader.row && reader.row <= w->next[to] + 1) enqueue(w, to);
  }
}

/* Runs rows of a device until one has to wait. */
static void run_device(walk *w, uint32_t device, uint32_t *order, uint32_t *done) {
  const pipe_rows *p = w->x->p;
  while (w->next[device] < p->row0[device + 1]) {
    const uint32_t i = w->next[device];
    if (waits_for(w, i) != PIPE_NONE) return;
    w->next[device] += pipe_together(p, i);
    for (uint32_t k = i; k < w->next[device]; k++) {
      order[(*done)++] = k;
      enqueue_readers(w, k, device);
    }
  }
}

/* The device that has the row which a device waits for, and that row. */
static uint32_t blocker(const walk *w, uint32_t device, uint32_t *row) {
  const pipe_rows *p = w->x->p;
  *row = waits_for(w, w->next[device]);
  return p->placement[p->row[*row].stage];
}

/* Every device that is not done waits for another one that is not: following them leads to a
 * cycle. */
static hp_status explain_cycle(const walk *w) {
  const pipe_rows *p = w->x->p;
  uint32_t device = 0, row = 0, length = 1;
  while (w->next[device] == p->row0[device + 1]) device++;
  for (uint32_t k = 0; k < p->devices; k++) device = blocker(w, device, &row);
  uint32_t first_needs, second_needs;
  const uint32_t second = blocker(w, device, &first_needs);
  char one[PIPE_ROW_NAME], two[PIPE_ROW_NAME], need_one[PIPE_ROW_NAME], need_two[PIPE_ROW_NAME];
  pipe_row_name(&p->row[w->next[device]], one);
  pipe_row_name(&p->row[first_needs], need_one);
  if (second == device)
    HP_FAIL(HP_ERR_INPUT, "%s: %s needs %s, which comes later on the same device %u; swap them",
            w->x->source, one, need_one, device);
  for (uint32_t at = second; at != device; length++) at = blocker(w, at, &row);
  blocker(w, second, &second_needs);
  HP_FAIL(HP_ERR_INPUT,
          "%s: %s on device %u and %s on device %u wait for each other%s: the first needs %s, the "
          "second needs %s; change the order of rows on one of the devices",
          w->x->source, one, device, pipe_row_name(&p->row[w->next[second]], two), second,
          length > 2 ? " through further devices" : "", need_one,
          pipe_row_name(&p->row[second_needs], need_two));
}

static hp_status walk_all(walk *w, uint32_t *order) {
  const pipe_rows *p = w->x->p;
  uint32_t done = 0;
  for (uint32_t d = 0; d < p->devices; d++) {
    w->next[d] = p->row0[d];
    enqueue(w, d);
  }
  while (w->n) {
    const uint32_t device = w->queue[w->first];
    w->first = (w->first + 1) % p->devices;
    w->n--;
    w->queued[device] = false;
    run_device(w, device, order, &done);
  }
  return done == pipe_rows_count(p) ? HP_OK : explain_cycle(w);
}

hp_status pipe_walk(const pipe_index *x, uint32_t *order) {
  const uint32_t devices = x->p->devices;
  walk w = {.x = x,
            .next = mem_calloc(devices, sizeof *w.next),
            .queue = mem_calloc(devices, sizeof *w.queue),
            .queued = mem_calloc(devices, sizeof *w.queued)};
  hp_status st = w.next && w.queue && w.queued ? walk_all(&w, order) : HP_ERR_OOM;
  mem_free(w.next);
  mem_free(w.queue);
  mem_free(w.queued);
  return st;
}
