/* The host memory of the devices of one machine, of all processes there: who takes how much of it,
 * and when the emulated links to memory tiers are free.
 *
 * A process with all devices has it for itself.  Several processes share the file of memory of
 * their machine (world_facts.memory), which has a pool for each that a process has open: its first
 * pages are what processes count together, the rest is the arenas of tier host, a part for each
 * device.  Pages are taken when they are first written, by the
 * device that writes them. */
#ifndef RT_HOST_POOL_H
#define RT_HOST_POOL_H

#include "base/status.h"
#include "base/tier.h"
#include "comm/comm.h"

#include <stdatomic.h>

typedef struct host_pool host_pool;

/* When each link is free, in nanoseconds of time_now_s, by tier and direction. */
typedef _Atomic uint64_t link_times[TIER_COUNT][2][COMM_LOCAL_MAX];

/* For so many devices of this machine, and `limit` bytes of all of them; 0: none.  The file stays
 * as long as the process, in which HP_ERR_OOM refuses a 17th open pool; host_pool_close(NULL) is
 * allowed. */
hp_status host_pool_open(uint64_t limit, int devices, host_pool **out);
void host_pool_close(host_pool *p);
/* More bytes for a device: false if there are not as many left under the limit. */
bool host_pool_take(host_pool *p, uint64_t bytes);
void host_pool_give(host_pool *p, uint64_t bytes);
/* Bytes that are taken, the limit, and how many devices share it. */
uint64_t host_pool_used(const host_pool *p);
uint64_t host_pool_limit(const host_pool *p);
int host_pool_devices(const host_pool *p);
link_times *host_pool_links(host_pool *p);

/* Address space of `bytes` in the part of a device, 0 to devices - 1, zeroed; NULL: there is none.
 * Only if host_pool_is_shared: else arenas are memory of the process. */
bool host_pool_is_shared(const host_pool *p);
char *host_pool_map(const host_pool *p, int device, uint64_t bytes);
void host_pool_unmap(char *at, uint64_t bytes);
/* Zeros, and the pages return to the machine. */
void host_pool_discard(char *at, uint64_t bytes);

#endif
