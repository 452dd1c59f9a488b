/* The state of the ranks of one process, shared by the files local*.c and guarded by one lock. */
#ifndef COMM_LOCAL_STATE_H
#define COMM_LOCAL_STATE_H

#include "comm/comm.h"

#include <pthread.h>

enum { LOCAL_LOOK_NS = 200000000 }; /* between two checks of whether a wait can end */

struct local_set;

/* A member of a communicator, with what it offers at the current rendezvous. */
typedef struct {
  communicator c;
  struct local_set *set;
  const void *data;
  comm_call call; /* a copy, which the others can still compare after this member has failed */
} local_member;

/* A communicator.  No member arrives at a rendezvous before all have left the previous one.  So two
 * counters suffice: the s-th rendezvous is complete when `come` is s * n, and over when `left` is.
 */
typedef struct local_set {
  struct local_set *next;
  int64_t n, *rank;
  uint64_t come, left;     /* arrivals and departures of all members so far */
  bool broken;             /* a member has failed in this run */
  pthread_cond_t complete; /* the last member has arrived or left */
  local_member *member;
} local_set;

typedef struct {
  const local_set *run;      /* the communicator of all ranks of its program */
  const local_member *waits; /* at which rendezvous it waits; NULL: it does not wait */
  bool ended, failed;        /* its program has ended; has failed */
  uint64_t failures;         /* programs of this rank that have failed, so far */
} local_rank;

typedef struct {
  comm base;
  pthread_mutex_t lock;
  local_rank rank[COMM_LOCAL_MAX];
  local_set *sets;
  comm_transfer *posted; /* unfinished transfers, in the order of their posts */
  pthread_cond_t moved;  /* a transfer has found or lost its other end, or is complete */
} local;

static inline local *local_of(comm *c) { return (local *)c; }
static inline local_member *local_member_of(communicator *c) { return (local_member *)c; }

hp_status local_refuse_failed(int64_t rank);
/* Waits, holding the lock, for a signal; false if none came for LOCAL_LOOK_NS. */
bool local_pause(local *l, pthread_cond_t *change);
hp_status local_post(comm *c, comm_transfer *t);
hp_status local_wait(comm *c, comm_transfer *t);
/* Drops the transfers of a rank whose program has ended; the caller holds the lock. */
void local_end_transfers(local *l, int64_t rank);

#endif
