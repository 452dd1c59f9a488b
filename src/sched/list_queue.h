/* Internal to sched/list: the nodes of one stream whose predecessors have been issued.
 *
 * Nodes that cannot start yet are ordered by time; the others by rank, in a tree of least memory
 * needs, so that the first one that fits is found without visiting the rest. */
#ifndef SCHED_LIST_QUEUE_H
#define SCHED_LIST_QUEUE_H

#include "sched/list_graph.h"

typedef struct {
  uint32_t *node; /* [n] nodes of the stream by rank, the first to run first */
  uint32_t n, leaves;
  uint64_t *least; /* [2 * leaves] need of the nodes that may start; UINT64_MAX for others */
  uint32_t *heap;  /* [n] ranks waiting, the earliest on top */
  uint32_t waiting;
  const double *ready_s; /* [nodes] when its inputs exist */
  const uint64_t *need;  /* [nodes] of tier 0 */
} list_queue;

/* rank[nodes] is filled for the nodes of the stream. */
hp_status list_queue_create(const list_graph *g, uint32_t stream, const double *ready_s,
                            uint32_t *rank, list_queue *out);
void list_queue_free(list_queue *q);
/* ready_s of the node is known: it waits for that time. */
void list_queue_wait(list_queue *q, uint32_t rank);
/* Nodes that are ready at this time may start. */
void list_queue_wake(list_queue *q, double time_s);
/* When the first node could start on a stream that is free at free_s; INFINITY: none. */
double list_queue_time(const list_queue *q, double free_s);
/* The first in rank that may start and needs no more than `room` of tier 0; UINT32_MAX: none. */
uint32_t list_queue_first(const list_queue *q, uint64_t room);
/* Removes a rank from those that may start, and puts it back. */
void list_queue_take(list_queue *q, uint32_t rank);
void list_queue_put(list_queue *q, uint32_t rank);

#endif
