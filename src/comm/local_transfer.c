/* Point-to-point transfers between ranks of one process: a list of those whose other end is still
 * to come; the receiver copies. */
#include "comm/local_parts.h"

#include <string.h>

static bool is_other_end(const comm_transfer *a, const comm_transfer *b) {
  return a->sends != b->sends && a->rank == b->peer && a->peer == b->rank && a->tag == b->tag;
}

static void unlink_transfer(local *l, const comm_transfer *t) {
  for (comm_transfer **at = &l->posted; *at; at = &(*at)->next)
    if (*at == t) {
      *at = t->next;
      return;
    }
}

/* Each knows what it is to check, so that neither looks at the other once that may be gone. */
static void pair_up(local *l, comm_transfer *a, comm_transfer *b) {
  unlink_transfer(l, b);
  a->other = b;
  b->other = a;
  a->theirs = (comm_header){.call = *b->call, .bytes = b->bytes};
  b->theirs = (comm_header){.call = *a->call, .bytes = a->bytes};
  pthread_cond_broadcast(&l->moved);
}

hp_status local_post(comm *c, comm_transfer *t) {
  local *l = local_of(c);
  HP_TRY(comm_check_transfer(c, t));
  t->next = t->other = NULL;
  t->done = false;
  pthread_mutex_lock(&l->lock);
  comm_transfer **at = &l->posted;
  while (*at && !is_other_end(*at, t)) at = &(*at)->next;
  if (*at) pair_up(l, t, *at);
  else *at = t;
  pthread_mutex_unlock(&l->lock);
  return HP_OK;
}

static hp_status refuse_ended(const comm_transfer *t) {
  HP_FAIL(HP_ERR_ARG,
          "the programs of ranks %lld and %lld do not match: rank %lld is at %s with tag %lld, to "
          "which rank %lld does not come: its program has ended",
          (long long)t->rank, (long long)t->peer, (long long)t->rank, t->call->what,
          (long long)t->tag, (long long)t->peer);
}

/* Can the transfer still go on?  The other end may be of another program, with another end. */
static hp_status check_peer(const local *l, const comm_transfer *t) {
  const local_rank *peer = &l->rank[t->peer];
  if (peer->failed) return local_refuse_failed(t->peer);
  bool ends_with_it = peer->run && peer->run == l->rank[t->rank].run;
  return !t->other && peer->ended && ends_with_it ? refuse_ended(t) : HP_OK;
}

/* With the lock, which it gives up to copy: the sender's data stay until it is told. */
static void receive(local *l, comm_transfer *t) {
  pthread_mutex_unlock(&l->lock);
  if (t->bytes) memcpy(t->data, t->other->data, (size_t)t->bytes);
  pthread_mutex_lock(&l->lock);
  t->done = t->other->done = true;
  pthread_cond_broadcast(&l->moved);
}

hp_status local_wait(comm *c, comm_transfer *t) {
  local *l = local_of(c);
  hp_status st = HP_OK;
  pthread_mutex_lock(&l->lock);
  while (!st && !t->done) {
    if (t->other) st = comm_check_theirs(t);
    if (!st && t->other && !t->sends) receive(l, t);
    if (!st && !t->done) st = check_peer(l, t);
    if (!st && !t->done) (void)local_pause(l, &l->moved);
  }
  if (!t->other) unlink_transfer(l, t);
  pthread_mutex_unlock(&l->lock);
  return st;
}
