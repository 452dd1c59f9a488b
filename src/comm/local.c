/* Ranks of one process, a thread each.  What is published is read in place, so nothing is copied
 * for a rendezvous; one lock guards all of the state. */
#include "comm/local_state.h"

#include "base/mem.h"
#include "comm/host_collectives.h"

#include <string.h>

static void free_set(local_set *s) {
  pthread_cond_destroy(&s->complete);
  mem_free(s->rank);
  mem_free(s->member);
  mem_free(s);
}

static void local_close(comm *c) {
  local *l = local_of(c);
  while (l->sets) {
    local_set *s = l->sets;
    l->sets = s->next;
    free_set(s);
  }
  pthread_cond_destroy(&l->moved);
  pthread_mutex_destroy(&l->lock);
  mem_free(l);
}

/* --- communicators ---------------------------------------------------------------------------- */

static hp_status make_set(local *l, const int64_t *rank, int64_t n, local_set **out) {
  local_set *s = mem_calloc(1, sizeof *s);
  HP_TRY_MEM(s);
  pthread_cond_init(&s->complete, NULL);
  s->n = n;
  s->rank = mem_calloc((size_t)n, sizeof *s->rank);
  s->member = mem_calloc((size_t)n, sizeof *s->member);
  if (!s->rank || !s->member) {
    free_set(s);
    return HP_ERR_OOM;
  }
  memcpy(s->rank, rank, (size_t)n * sizeof *rank);
  for (int64_t i = 0; i < n; i++) {
    communicator c = {&l->base, comm_hash_ranks(rank, n), 0, n, i, s->rank};
    s->member[i] = (local_member){.c = c, .set = s};
  }
  s->next = l->sets;
  l->sets = s;
  *out = s;
  return HP_OK;
}

static hp_status local_join(comm *c, const int64_t *rank, int64_t n, int64_t me,
                            communicator **out) {
  local *l = local_of(c);
  hp_status st = HP_OK;
  HP_TRY(comm_check_ranks(c, rank, n));
  pthread_mutex_lock(&l->lock);
  local_set *s = l->sets;
  while (s && !comm_has_ranks(&s->member[0].c, rank, n, 0)) s = s->next;
  if (!s) st = make_set(l, rank, n, &s);
  if (!st) *out = &s->member[me].c;
  pthread_mutex_unlock(&l->lock);
  return st;
}

/* --- runs ------------------------------------------------------------------------------------- */

static bool has_rank(const local_set *s, int64_t rank) {
  for (int64_t i = 0; i < s->n; i++)
    if (s->rank[i] == rank) return true;
  return false;
}

static bool lies_within(const local_set *s, const local_set *all) {
  for (int64_t i = 0; i < s->n; i++)
    if (!has_rank(all, s->rank[i])) return false;
  return true;
}

/* After a failure members have come to different rendezvous, and all begin again. */
static void begin_again(local_set *s) {
  s->come = s->left = 0;
  s->broken = false;
  for (int64_t i = 0; i < s->n; i++) s->member[i].c.sequence = 0;
}

static void local_begin(communicator *c) {
  local *l = local_of(c->of);
  local_set *all = local_member_of(c)->set;
  pthread_mutex_lock(&l->lock);
  for (int64_t i = 0; i < c->n; i++) {
    local_rank *r = &l->rank[c->rank[i]];
    *r = (local_rank){.run = all, .failures = r->failures};
  }
  for (local_set *s = l->sets; s; s = s->next)
    if (s->broken && lies_within(s, all)) begin_again(s);
  pthread_mutex_unlock(&l->lock);
}

static void local_end(communicator *c, bool failed) {
  local *l = local_of(c->of);
  int64_t rank = c->rank[c->me];
  pthread_mutex_lock(&l->lock);
  l->rank[rank].ended = true;
  l->rank[rank].failed = failed;
  l->rank[rank].failures += failed;
  if (failed) {
    for (local_set *s = l->sets; s; s = s->next) {
      if (!has_rank(s, rank)) continue;
      s->broken = true;
      pthread_cond_broadcast(&s->complete);
    }
  }
  local_end_transfers(l, rank);
  pthread_mutex_unlock(&l->lock);
}

/* --- waiting ---------------------------------------------------------------------------------- */

static bool has_come(const local_member *waits, int64_t i) {
  return waits->set->member[i].c.sequence >= waits->c.sequence;
}

/* Marks the ranks that those marked wait for, and so on. */
static void follow_waits(const local *l, bool marked[COMM_LOCAL_MAX]) {
  for (bool more = true; more;) {
    more = false;
    for (int64_t r = 0; r < l->base.ranks; r++) {
      const local_member *w = marked[r] ? l->rank[r].waits : NULL;
      for (int64_t i = 0; w && i < w->c.n; i++) {
        if (has_come(w, i) || marked[w->c.rank[i]]) continue;
        marked[w->c.rank[i]] = more = true;
      }
    }
  }
}

static hp_status refuse_ended(const local_member *m, int64_t rank) {
  HP_FAIL(HP_ERR_ARG,
          "the programs of ranks %lld and %lld do not match: rank %lld is at %s, to which rank "
          "%lld does not come: its program has ended",
          (long long)m->c.rank[m->c.me], (long long)rank, (long long)m->c.rank[m->c.me],
          m->call.what, (long long)rank);
}

static hp_status refuse_other(const local_member *m, int64_t rank, const local_member *other) {
  HP_FAIL(HP_ERR_ARG,
          "the programs of ranks %lld and %lld do not match: each waits for the other, rank %lld "
          "at %s, and rank %lld at %s",
          (long long)m->c.rank[m->c.me], (long long)rank, (long long)m->c.rank[m->c.me],
          m->call.what, (long long)rank, other->call.what);
}

/* Can those that have not come still come?  Not when their program has ended, or when they wait,
 * maybe through others, for this rank. */
static hp_status check_stuck(const local *l, const local_member *m) {
  int64_t me = m->c.rank[m->c.me];
  for (int64_t i = 0; i < m->c.n; i++) {
    int64_t rank = m->c.rank[i];
    const local_rank *r = &l->rank[rank];
    if (has_come(m, i)) continue;
    if (r->ended && r->run == l->rank[me].run) return refuse_ended(m, rank);
    bool marked[COMM_LOCAL_MAX] = {0};
    marked[rank] = r->waits != NULL;
    follow_waits(l, marked);
    if (marked[me]) return refuse_other(m, rank, r->waits);
  }
  return HP_OK;
}

/* Waits, with the lock, until all members have come or left. */
static hp_status wait_for_all(local *l, local_member *m, const uint64_t *count, bool comes) {
  local_set *s = m->set;
  const uint64_t all = m->c.sequence * (uint64_t)s->n;
  hp_status st = HP_OK;
  /* A signal at every arrival would wake each member once per member, which took most of a small
   * step's time on 35 devices. */
  if (*count >= all) pthread_cond_broadcast(&s->complete);
  l->rank[m->c.rank[m->c.me]].waits = comes ? m : NULL;
  while (!st && *count < all) {
    for (int64_t i = 0; !st && i < s->n; i++)
      if (l->rank[s->rank[i]].failed) st = local_refuse_failed(s->rank[i]);
    if (!st && !local_pause(l, &s->complete) && comes && *count < all) st = check_stuck(l, m);
  }
  l->rank[m->c.rank[m->c.me]].waits = NULL;
  return st;
}

/* --- rendezvous ------------------------------------------------------------------------------- */

static hp_status check_calls(const local_set *s) {
  const comm_call *first = &s->member[0].call;
  for (int64_t i = 1; i < s->n; i++)
    if (s->member[i].call.signature != first->signature)
      return comm_refuse_calls(&s->member[i].c, 0, first, i, &s->member[i].call,
                               s->member[i].c.sequence);
  return HP_OK;
}

static hp_status local_rendezvous(communicator *c, const comm_call *call, const void *data,
                                  const comm_region *give, const comm_region *take,
                                  comm_view *seen) {
  local *l = local_of(c->of);
  local_member *m = local_member_of(c);
  const local_set *s = m->set;
  (void)give;
  pthread_mutex_lock(&l->lock);
  m->data = data;
  m->call = *call;
  c->sequence++;
  m->set->come++;
  hp_status st = wait_for_all(l, m, &s->come, true);
  if (!st) st = check_calls(s);
  for (int64_t i = 0; !st && i < s->n; i++)
    seen[i] =
        (comm_view){(const char *)s->member[i].data + take[i].start, take[i].stride, take[i].row};
  pthread_mutex_unlock(&l->lock);
  return st;
}

static hp_status local_leave(communicator *c) {
  local *l = local_of(c->of);
  local_member *m = local_member_of(c);
  pthread_mutex_lock(&l->lock);
  m->set->left++;
  hp_status st = wait_for_all(l, m, &m->set->left, false);
  pthread_mutex_unlock(&l->lock);
  return st;
}

static const comm_iface iface = {.name = "local",
                                 .close = local_close,
                                 .join = local_join,
                                 .begin = local_begin,
                                 .end = local_end,
                                 .rendezvous = local_rendezvous,
                                 .leave = local_leave,
                                 .collective = HOST_COLLECTIVES,
                                 .post = local_post,
                                 .wait = local_wait};

hp_status comm_local_open(int64_t ranks, comm **out) {
  if (ranks < 1 || ranks > COMM_LOCAL_MAX)
    HP_FAIL(HP_ERR_LAYOUT, "%lld devices in one process; at most %d are possible", (long long)ranks,
            COMM_LOCAL_MAX);
  local *l = mem_calloc(1, sizeof *l);
  HP_TRY_MEM(l);
  l->base = (comm){.iface = &iface, .ranks = ranks, .own = ranks};
  pthread_mutex_init(&l->lock, NULL);
  pthread_cond_init(&l->moved, NULL);
  *out = &l->base;
  return HP_OK;
}
