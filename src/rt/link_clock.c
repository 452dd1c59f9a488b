#include "rt/link_clock.h"

#include "base/mem.h"

enum { READ, WRITE };
static const double NS = 1e9; /* a second */

struct link_clock {
  int devices;
  link_times *free_ns;
};

hp_status link_clock_create(host_pool *pool, link_clock **out) {
  link_clock *k = mem_calloc(1, sizeof *k);
  HP_TRY_MEM(k);
  *k = (link_clock){host_pool_devices(pool), host_pool_links(pool)};
  *out = k;
  return HP_OK;
}

void link_clock_free(link_clock *k) { mem_free(k); }

/* Of the devices that share the link, how many there are for each of the pool. */
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
  /* The ranks of a machine follow one another, so that its links have different places here. */
  int64_t link = mesh_rank(m, position) / shared_by % COMM_LOCAL_MAX;
  _Atomic uint64_t *free_ns = &(*k->free_ns)[tier][x->to > x->from ? WRITE : READ][link];
  uint64_t start = (uint64_t)(x->start_s * NS), was = *free_ns, begin;
  do {
    begin = start > was ? start : was;
  } while (
      !atomic_compare_exchange_weak(free_ns, &was, begin + (uint64_t)((all_s - latency_s) * NS)));
  return (begin > start ? (double)begin / NS : x->start_s) + all_s;
}
