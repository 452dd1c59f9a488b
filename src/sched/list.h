/* List scheduler: an order of the nodes and their times on streams, under a hard memory cap.
 *
 * Streams run at the same time, each one node at a time.  Of the nodes that may start, the one with
 * the longest path to the end goes first; transfers start as soon as their input exists.  Memory is
 * counted as by the offset planner: a value is live from the start of its producer until its last
 * reader is known (by stream order, data and the added edges) to have finished.  So no clique of
 * conflicting buffers ever exceeds the cap.  Each tier of memory has a cap of its own.
 *
 * A node runs before its turn only if the rest, in a base order that is known to fit, still
 * fits, so the search never reaches a state in which nothing fits.  The base order is the index
 * order or, if that does not fit, one that frees as early as it can.  Ties go to the lower
 * index. */
#ifndef SCHED_LIST_H
#define SCHED_LIST_H

#include "base/status.h"

enum { LIST_STREAMS = 8, LIST_TIERS = 3 };
#define LIST_INPUT UINT32_MAX /* def of a value that exists before the first node */

typedef struct {
  size_t n;                   /* nodes, < 2^30; every node comes after those it depends on */
  uint32_t streams;           /* 1..LIST_STREAMS */
  const double *duration_s;   /* [n] finite, >= 0 */
  const uint8_t *stream;      /* [n] < streams */
  const uint64_t *workspace;  /* [n] bytes of tier 0 held while the node runs; NULL = none */
  const uint32_t *dep0, *dep; /* [n + 1] node i runs after nodes dep[dep0[i]] .. ; data dependencies
                                 need not be repeated here; both NULL = none */
  size_t n_values;            /* < 2^30 */
  const uint64_t *bytes;      /* [n_values] */
  const uint32_t *def;        /* [n_values] producing node, or LIST_INPUT */
  const uint32_t *use0, *use; /* [n_values + 1] reading nodes */
  const uint8_t *keep;        /* [n_values] 1: live to the end; NULL = none */
  const uint8_t *tier;        /* [n_values] < LIST_TIERS; NULL = all in tier 0 */
  uint64_t cap[LIST_TIERS];   /* bytes of values and workspace at any time; 0 = no cap */
  bool keep_order;            /* run in index order; only times and edges are found */
} list_problem;

typedef struct {
  uint32_t before, after; /* nodes */
} list_edge;

typedef struct {
  bool fits;               /* false: no order was found under the caps, and nothing else is set */
  uint32_t *order;         /* [n] nodes in the order in which they are issued */
  double *start_s, *end_s; /* [n] by node */
  double makespan_s;
  uint64_t peak[LIST_TIERS]; /* bytes, counted as described above; <= cap */
  list_edge *edge;           /* waits that only ensure that memory is free */
  size_t n_edges;
} list_schedule;

/* needed (may be NULL): bytes of the best known order, also if none fits; out NULL: they alone are
 * asked for.  HP_ERR_ARG on malformed input.  O((n + edges) log n), linear for a given order. */
hp_status list_schedule_make(const list_problem *p, list_schedule *out,
                             uint64_t needed[LIST_TIERS]);
void list_schedule_free(list_schedule *s);

#endif
