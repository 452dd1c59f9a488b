/* The memory tiers beyond a device's own and their links: the key `tiers` of a cluster file.
 *
 *   tiers:                           # from near to far; each key but the name may be left out
 *   - {name: host, memory_gb: 512, read_gb_s: 40, write_gb_s: 40, latency_us: 10, shared_by: 8}
 *   - {name: flash, read_gb_s: 6, write_gb_s: 3, latency_us: 80}
 *
 * Reading is towards the device (fetch), writing away from it (offload); the figures of flash are
 * those of the way from or to the device, whatever is between.  `shared_by` consecutive ranks of a
 * node, or with the word `node` all of it, share the memory and, per direction, the bandwidth; left
 * out, a device has them alone.
 * `update_gb_s`, of the host alone, is the bandwidth of its memory at which its processors update
 * optimizer state that is there, for all that share it.  Left out, it is half that of the device's
 * memory, and plans use these processors only if they are asked to.
 * Memory that is left out is unknown.  A missing bandwidth is half that of the device's memory for
 * the host, as on a CPU a copy reads and writes the same memory, and 1 GB/s for flash. */
#ifndef TOPO_TIERS_H
#define TOPO_TIERS_H

#include "base/str.h"
#include "base/tier.h"
#include "base/tree.h"

typedef struct {
  double memory_gb, read_gb_s, write_gb_s, latency_us, update_gb_s; /* 0: not given */
  int64_t shared_by;                                                /* 0: not given */
} cluster_tier;

/* By TIER_*; n NULL: none is given.  No more devices share a tier than a node has.  HP_ERR_INPUT
 * with file, line and key. */
hp_status tiers_read(const tree_node *n, int64_t devices_per_node, cluster_tier out[TIER_COUNT]);
/* The key of the file, with what was given; nothing if no tier was. */
void tiers_print(const cluster_tier tier[TIER_COUNT], str *out);

#endif
