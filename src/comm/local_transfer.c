/* Point-to-point transfers between ranks of one process: a list of those that are not over; the
 * receiver copies. */
#include "comm/local_state.h"

#include <string.h>

static bool is_other_end(const comm_transfer *a, const comm_transfer *b) {
  return a->sends != b->sends && a->rank == b->peer && a->peer == b->rank && a->tag == b->tag;
}

/* Each knows what it is to check, also when the other one is gone. */
static void pair_up(local *l, comm_transfer *a, comm_transfer *b) {
  a->other = b;
  b->other = a;
  a->matched = b->matched = true;
  a->theirs = (comm_header){.call = *b->call, .bytes = b->bytes};
  b->theirs = (comm_header){.call = *a->call, .bytes = a->bytes};
  pthread_cond_broadcast(&l->moved);
}

hp_status local_post(comm *c, comm_transfer *t) {
  local *l = local_of(c);
  HP_TRY(comm_check_transfer(c, t));
  t->next = t->other = NULL;
  t->matched = t->is_read = t->done = false;
  pthread_mutex_lock(&l->lock);
  t->failures = l->rank[t->peer].failures;
  comm_transfer **at = &l->posted, *other = NULL;
  for (; *at; at = &(*at)->next)
    if (!other && !(*at)->matched && is_other_end(*at, t)) other = *at;
  *at = t;
  if (other) pair_up(l, t, other);
  pthread_mutex_unlock(&l->lock);
  return HP_OK;
}

/* With the lock: nobody looks at it any more. */
static void forget_transfer(local *l, comm_transfer *t) {
  comm_transfer **at = &l->posted;
  while (t->is_read) pthread_cond_wait(&l->moved, &l->lock);
  while (*at != t) at = &(*at)->next;
  *at = t->next;
  if (t->other) t->other->other = NULL;
  pthread_cond_broadcast(&l->moved);
}

void local_end_transfers(local *l, int64_t rank) {
  comm_transfer *t = l->posted;
  while (t && t->rank != rank) t = t->next;
  if (t) {
    forget_transfer(l, t);
    local_end_transfers(l, rank); /* the list may have changed */
  }
  pthread_cond_broadcast(&l->moved);
}

static hp_status refuse_ended(const comm_transfer *t) {
  HP_FAIL(HP_ERR_ARG,
          "the programs of ranks %lld and %lld do not match: rank %lld is at %s with tag %lld, to "
          "which rank %lld does not come: its program has ended",
          (long long)t->rank, (long long)t->peer, (long long)t->rank, t->call->what,
          (long long)t->tag, (long long)t->peer);
}

/* Can the transfer still go on?  The other end may be of another program, with another end: then
 * only failures since this one was posted count. */
static hp_status check_peer(const local *l, const comm_transfer *t) {
  const local_rank *peer = &l->rank[t->peer];
  bool ends_with_it = peer->run && peer->run == l->rank[t->rank].run;
  if (peer->failures != t->failures || (ends_with_it && peer->failed))
    return local_refuse_failed(t->peer);
  return !t->other && peer->ended && ends_with_it ? refuse_ended(t) : HP_OK;
}

/* With the lock, which it gives up to copy: the sender stays until it is told. */
static void receive(local *l, comm_transfer *t) {
  comm_transfer *from = t->other;
  from->is_read = true;
  pthread_mutex_unlock(&l->lock);
  if (t->bytes) memcpy(t->data, from->data, (size_t)t->bytes);
  pthread_mutex_lock(&l->lock);
  from->is_read = false;
  t->done = from->done = true;
  pthread_cond_broadcast(&l->moved);
}

hp_status local_wait(comm *c, comm_transfer *t) {
  local *l = local_of(c);
  hp_status st = HP_OK;
  pthread_mutex_lock(&l->lock);
  while (!st && !t->done) {
    if (t->matched) st = comm_check_theirs(t);
    if (!st && t->other && !t->sends) receive(l, t);
    if (!st && !t->done) st = check_peer(l, t);
    if (!st && !t->done) (void)local_pause(l, &l->moved);
  }
  forget_transfer(l, t);
  pthread_mutex_unlock(&l->lock);
  return st;
}
