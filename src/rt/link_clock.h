/* When the links to memory tiers of an emulated cluster are free: copies of devices that share a
 * link take turns on it, in each direction. */
#ifndef RT_LINK_CLOCK_H
#define RT_LINK_CLOCK_H

#include "rt/host_pool.h"
#include "topo/cluster.h"

typedef struct link_clock link_clock;

/* For the devices of the pool: those of this process, and of others of the machine that share it.
 */
hp_status link_clock_create(host_pool *pool, link_clock **out);
void link_clock_free(link_clock *k);

typedef struct {
  int from, to; /* tiers */
  double bytes, start_s;
} link_copy;
/* When a copy of the device at that position would be finished: it takes its link from start_s on,
 * or when those that came before it are through, for its bytes at the link's bandwidth; the latency
 * adds to that and takes no turn.  Devices beyond the pool have clocks of their own, so that those
 * of the pool get their share of the bandwidth.  k NULL: the share of one device. */
double link_clock_reserve(link_clock *k, const cluster *c, const mesh *m, int64_t position,
                          const link_copy *x);

#endif
