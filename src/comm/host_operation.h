/* What the collectives over rendezvous have in common: the state of one that runs, and the
 * reduction of a run of elements. */
#ifndef COMM_HOST_OPERATION_H
#define COMM_HOST_OPERATION_H

#include "base/dtype.h"
#include "comm/comm.h"

/* A tensor seen along one dim: `outer` times `dim` runs of `inner` elements. */
typedef struct {
  int64_t outer, dim, inner;
} view;

/* A collective of this rank that is running. */
typedef struct {
  communicator *c;
  const comm_call *call;
  const comm_tensor *t;
  comm_region give[COMM_MAX], take[COMM_MAX];
  comm_view seen[COMM_MAX];  /* of the members */
  const char *run[COMM_MAX]; /* the run that is reduced, of each member; NULL: zeros */
} operation;

/* The beginning of every collective: what is large is filled as far as it is used. */
#define BEGIN(o)                                                                                   \
  operation o;                                                                                     \
  (void)stream; /* a thread of the caller's */                                                     \
  o.c = c;                                                                                         \
  o.call = call;                                                                                   \
  o.t = t

static inline view view_of(const hp_shape *s, int dim) {
  view v = {1, s->dim[dim], 1};
  for (int d = 0; d < dim; d++) v.outer *= s->dim[d];
  for (int d = dim + 1; d < s->rank; d++) v.inner *= s->dim[d];
  return v;
}

static inline int64_t size_of(const comm_tensor *t) { return (int64_t)dtype_size(t->type); }

/* Offers data; *arrived_s (may be NULL): when all have come. */
hp_status host_come(operation *o, const void *data, double *arrived_s);
hp_status host_leave(const operation *o);
/* n elements of o->run, reduced into `to` in the order of the members.  Only floats, by a sum, may
 * be zeros. */
hp_status host_reduce_run(const operation *o, int64_t n, char *to);

#endif
