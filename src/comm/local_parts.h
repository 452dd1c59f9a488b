/* The state of the ranks of one process, shared by the files local*.c.  The lock guards all of it.
 */
#ifndef COMM_LOCAL_PARTS_H
#define COMM_LOCAL_PARTS_H

#include "comm/comm.h"

#include <pthread.h>

enum { LOCAL_LOOK_NS = 200000000 }; /* between two looks at whether a wait can end */

struct local_set;

/* A rank in a communicator, with what it brings to the rendezvous at hand. */
typedef struct {
  communicator c;
  struct local_set *set;
  const void *data;
  comm_call call; /* a copy: a member that has failed is gone when the others compare */
} local_member;

/* A communicator.  Nobody comes to a rendezvous before all have left the one before, so two counts
 * over all members and rendezvous say who is there: after the s-th they are s times n. */
typedef struct local_set {
  struct local_set *next;
  int64_t n, *rank;
  uint64_t come, left;
  bool broken;             /* a member has failed since it began */
  pthread_cond_t complete; /* the last member has come or left */
  local_member *member;
} local_set;

typedef struct {
  const local_set *run;      /* the communicator of all ranks of its program */
  const local_member *waits; /* at the rendezvous to which it has come; NULL: it does not wait */
  bool ended, failed;        /* its program */
  uint64_t failures;         /* of all its programs */
} local_rank;

typedef struct {
  comm base;
  pthread_mutex_t lock;
  local_rank rank[COMM_LOCAL_MAX];
  local_set *sets;
  comm_transfer *posted; /* those that are not over, in their order */
  pthread_cond_t moved;  /* a transfer has found its other end, is done, or has lost it */
} local;

static inline local *local_of(comm *c) { return (local *)c; }
static inline local_member *local_member_of(communicator *c) { return (local_member *)c; }

hp_status local_refuse_failed(int64_t rank);
/* Waits for a signal, with the lock; false when none came for LOCAL_LOOK_NS. */
bool local_pause(local *l, pthread_cond_t *change);
hp_status local_post(comm *c, comm_transfer *t);
hp_status local_wait(comm *c, comm_transfer *t);
/* With the lock: forgets the transfers of a rank whose program has ended. */
void local_end_transfers(local *l, int64_t rank);

#endif
