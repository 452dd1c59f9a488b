#include "rt/link_clock.h"

#include "base/mem.h"
#include "comm/comm.h"

#include <pthread.h>

enum { READ, WRITE, DIRECTIONS };

struct link_clock {
  pthread_mutex_t lock;
  int devices;
  double free_s[TIER_COUNT][DIRECTIONS][COMM_LOCAL_MAX]; /* by link */
};

hp_status link_clock_create(int devices, link_clock **out) {
  link_clock *k = mem_calloc(1, sizeof *k);
  HP_TRY_MEM(k);
  pthread_mutex_init(&k->lock, NULL);
  k->devices = devices;
  *out = k;
  return HP_OK;
}

void link_clock_free(link_clock *k) {
  if (!k) return;
  pthread_mutex_destroy(&k->lock);
  mem_free(k);
}

/* Of the devices that share the link, how many there are for each of this process. */
static int64_t count_outside(const link_clock *k, const mesh *m, int64_t shared_by) {
  int64_t all = m->devices < shared_by ? m->devices : shared_by;
  int64_t own = k && k->devices < all ? k->devices : k ? all : 1;
  return (all + own - 1) / own;
}

double link_clock_reserve(link_clock *k, const cluster *c, const mesh *m, int64_t position,
                          const link_copy *x) {
  int tier = x->from > x->to ? x->from : x->to;
  int64_t shared_by = cluster_get_tier(c, tier).shared_by;
  double all_s = cluster_copy_s(c, x->from, x->to, x->bytes, count_outside(k, m, shared_by));
  double latency_s = cluster_copy_s(c, x->from, x->to, 0, 1);
  if (!k || x->from == x->to) return x->start_s + all_s; /* no link, or no one else on it */
  /* The ranks of a process follow one another, so that its links have different places here. */
  int64_t link = mesh_rank(m, position) / shared_by % COMM_LOCAL_MAX;
  double *free_s = &k->free_s[tier][x->to > x->from ? WRITE : READ][link];
  pthread_mutex_lock(&k->lock);
  double begin_s = x->start_s > *free_s ? x->start_s : *free_s;
  *free_s = begin_s + (all_s - latency_s);
  pthread_mutex_unlock(&k->lock);
  return begin_s + all_s;
}
