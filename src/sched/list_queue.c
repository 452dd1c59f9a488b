#include "sched/list_queue.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

typedef struct {
  bool leads; /* to a transfer */
  double urgency;
  uint32_t node;
} ranked;

static int by_urgency(const void *a, const void *b) {
  const ranked *x = a, *y = b;
  if (x->leads != y->leads) return x->leads ? -1 : 1;
  if (x->urgency != y->urgency) return x->urgency > y->urgency ? -1 : 1;
  return (x->node > y->node) - (x->node < y->node);
}

/* The longest path first.  Computation before a transfer comes before all other; its priority is
 * the longest path from the transfer on, minus the computation before it.  So one chain reaches
 * its transfer, which runs while the next chain is computed, instead of all chains at once. */
static ranked rank_of(const list_graph *g, uint32_t i) {
  bool leads = !g->p->stream[i] && g->lead_s[i] > 0;
  return (ranked){leads, leads ? g->lead_s[i] - g->near_s[i] : g->tail_s[i], i};
}

void list_queue_free(list_queue *q) {
  mem_free(q->node);
  mem_free(q->least);
  mem_free(q->heap);
  *q = (list_queue){0};
}

hp_status list_queue_create(const list_graph *g, uint32_t stream, const double *ready_s,
                            uint32_t *rank, list_queue *out) {
  list_queue q = {.leaves = 1, .ready_s = ready_s, .need = g->need[0]};
  uint32_t n = 0;
  for (size_t i = 0; i < g->p->n; i++) n += g->p->stream[i] == stream;
  while (q.leaves < n) q.leaves *= 2;
  ranked *r = mem_calloc(n, sizeof *r);
  q.node = mem_calloc(n, sizeof *q.node);
  q.least = mem_calloc(2 * (size_t)q.leaves, sizeof *q.least);
  q.heap = mem_calloc(n, sizeof *q.heap);
  if (!r || !q.node || !q.least || !q.heap) {
    mem_free(r);
    list_queue_free(&q);
    return HP_ERR_OOM;
  }
  for (uint32_t i = 0; i < g->p->n; i++) {
    if (g->p->stream[i] != stream) continue;
    r[q.n++] = rank_of(g, i);
  }
  qsort(r, n, sizeof *r, by_urgency);
  for (uint32_t k = 0; k < n; k++) {
    q.node[k] = r[k].node;
    rank[r[k].node] = k;
  }
  for (size_t i = 0; i < 2 * (size_t)q.leaves; i++) q.least[i] = UINT64_MAX;
  mem_free(r);
  *out = q;
  return HP_OK;
}

static bool sooner(const list_queue *q, uint32_t a, uint32_t b) {
  double x = q->ready_s[q->node[a]], y = q->ready_s[q->node[b]];
  return x != y ? x < y : a < b;
}

void list_queue_wait(list_queue *q, uint32_t rank) {
  uint32_t i = q->waiting++;
  for (; i > 0 && sooner(q, rank, q->heap[(i - 1) / 2]); i = (i - 1) / 2)
    q->heap[i] = q->heap[(i - 1) / 2];
  q->heap[i] = rank;
}

static uint32_t pop(list_queue *q) {
  uint32_t top = q->heap[0], last = q->heap[--q->waiting], i = 0;
  for (;;) {
    uint32_t c = 2 * i + 1;
    if (c >= q->waiting) break;
    if (c + 1 < q->waiting && sooner(q, q->heap[c + 1], q->heap[c])) c++;
    if (!sooner(q, q->heap[c], last)) break;
    q->heap[i] = q->heap[c];
    i = c;
  }
  q->heap[i] = last;
  return top;
}

static void set(list_queue *q, uint32_t rank, uint64_t need) {
  uint32_t i = q->leaves + rank;
  q->least[i] = need;
  for (i /= 2; i; i /= 2) {
    uint64_t a = q->least[2 * i], b = q->least[2 * i + 1];
    q->least[i] = a < b ? a : b;
  }
}

void list_queue_take(list_queue *q, uint32_t rank) { set(q, rank, UINT64_MAX); }
void list_queue_put(list_queue *q, uint32_t rank) { set(q, rank, q->need[q->node[rank]]); }

void list_queue_wake(list_queue *q, double time_s) {
  while (q->waiting && q->ready_s[q->node[q->heap[0]]] <= time_s) list_queue_put(q, pop(q));
}

double list_queue_time(const list_queue *q, double free_s) {
  if (q->least[1] != UINT64_MAX) return free_s;
  if (!q->waiting) return INFINITY;
  double t = q->ready_s[q->node[q->heap[0]]];
  return t > free_s ? t : free_s;
}

uint32_t list_queue_first(const list_queue *q, uint64_t room) {
  if (q->least[1] > room || q->least[1] == UINT64_MAX) return UINT32_MAX;
  uint32_t i = 1;
  while (i < q->leaves) i = 2 * i + (q->least[2 * i] > room);
  return i - q->leaves;
}
