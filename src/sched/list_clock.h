/* Internal to sched/list: the nodes that each stream knows to be finished, and the memory that
 * it therefore knows to be free.  The same vector clocks as prog/vclock, maintained while the
 * order is made. */
#ifndef SCHED_LIST_CLOCK_H
#define SCHED_LIST_CLOCK_H

#include "sched/list_graph.h"

typedef struct {
  const list_graph *g;
  uint32_t streams;
  uint32_t count[LIST_STREAMS];               /* nodes issued on a stream */
  uint32_t *seq[LIST_STREAMS];                /* those nodes */
  uint32_t *place;                            /* [n] place of a node on its stream */
  uint32_t *clock;                            /* [n][streams] its knowledge, itself included */
  uint32_t known[LIST_STREAMS][LIST_STREAMS]; /* [s][t] nodes of t that s knows to be finished */
  uint64_t held[LIST_STREAMS][LIST_TIERS];    /* bytes that s does not know to be free */
  uint32_t *unknown; /* [n_values][streams] maker and readers not known to be finished */
} list_clock;

hp_status list_clock_create(const list_graph *g, list_clock *out);
void list_clock_free(list_clock *w);
/* Stream s learns that a node has finished, and everything that the node knew. */
void list_clock_hear(list_clock *w, uint32_t s, uint32_t node);
/* Issues a node on its stream: all streams hold its memory; its own stream knows it finished
 * (for later nodes of the stream). */
void list_clock_issue(list_clock *w, uint32_t node);

#endif
