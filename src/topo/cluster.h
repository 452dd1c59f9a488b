/* The cluster: what its devices compute, and the links between them, from a file or by name.
 *
 *   name: two-nodes
 *   nodes: 2                       # left out: as many as are asked for
 *   devices_per_node: 4
 *   device: {flops: 1e12, bandwidth_gb_s: 100, memory_gb: 16}
 *   links:                         # from the nearest; GB/s that a device receives
 *     - {name: node, devices: 4, bandwidth_gb_s: 50, latency_us: 2}
 *     - {name: net, bandwidth_gb_s: 5, latency_us: 10}
 *   tiers:                         # may be left out, as each of its keys: topo/tiers.h
 *     - {name: host, memory_gb: 256, read_gb_s: 40, write_gb_s: 40, latency_us: 10, shared_by: 4}
 *   kernels: {ops: [softmax]}      # may be left out, as each of its keys: topo/capabilities.h
 *   costs: {launch_us: 3}          # may be left out, as each of its keys: topo/cost_table.h
 *   emulate: false                 # true: collectives and copies between tiers take at least the
 *                                  # time that the links say
 *   emulate_compute: false         # true: computation at least the time that the device says
 *
 * A link connects blocks of `devices` consecutive ranks, the last one all ranks.  Communication
 * between ranks has the speed of the first link with a block that contains them all. */
#ifndef TOPO_CLUSTER_H
#define TOPO_CLUSTER_H

#include "topo/capabilities.h"
#include "topo/cost_table.h"
#include "topo/mesh.h"
#include "topo/tiers.h"

enum { CLUSTER_LINKS = 8, CLUSTER_NAME = 64 };

typedef struct {
  char name[CLUSTER_NAME];
  int64_t devices; /* per block; 0 = all */
  double gb_s, latency_us;
} cluster_link;

typedef struct {
  char name[CLUSTER_NAME];
  int64_t nodes, per_node; /* nodes 0: any number */
  double flops, gb_s,
      memory_gb;    /* of a device: f32 or bf16 operations per second; memory 0: unknown */
  capabilities can; /* of its kernels, for plans for other machines */
  cost_table costs;
  cluster_tier tier[TIER_COUNT]; /* as given; of the device none: cluster_get_tier */
  int links;
  cluster_link link[CLUSTER_LINKS];
  bool emulate, emulate_compute;
} cluster;

/* A file, or the name of a built-in cluster: this, dgx-h100, cloudmatrix384.  HP_ERR_INPUT with
 * file, line and key, and the nearest valid key for a misspelt one. */
hp_status cluster_load(const char *name, cluster *out);
/* The same from text; `source` is for messages. */
hp_status cluster_parse(const char *text, size_t n, const char *source, cluster *out);
/* The cluster as a file, which reads back as the same cluster. */
void cluster_print(const cluster *c, str *out);
/* HP_ERR_LAYOUT when the mesh has more devices than the cluster. */
hp_status cluster_check(const cluster *c, const mesh *m);

/* The slowest link of all communicators along the n axes. */
const cluster_link *cluster_link_of(const cluster *c, const mesh *m, const uint8_t *axis, int n);
/* Seconds in which one rank sends `bytes` to another. */
double cluster_transfer_s(const cluster *c, int64_t from, int64_t to, double bytes);
/* Seconds in which a device receives `bytes` from the other devices along these axes.  A round
 * (an all_reduce has two, other collectives one) takes ceil(log2(devices)) steps, each with the
 * link's latency. */
double cluster_comm_s(const cluster *c, const mesh *m, const uint8_t *axis, int n, double bytes,
                      int rounds);
/* The same of rows that each go to some of the devices only: a device also packs what it sends and
 * unpacks what it receives, in its own memory. */
double cluster_rows_s(const cluster *c, const mesh *m, const uint8_t *axis, int n, double bytes);
/* The tier with what is assumed of it where nothing is given; the device's own memory, too. */
cluster_tier cluster_get_tier(const cluster *c, int tier);
/* Seconds in which bytes are copied from tier to tier: the latency, and the bytes at the bandwidth
 * of the link of the farther one.  All devices of a program copy at about the same time, so that a
 * device has this bandwidth divided by those that share the link, of `devices` in the mesh; 0 or 1:
 * it has the link for itself. */
double cluster_copy_s(const cluster *c, int from, int to, double bytes, int64_t devices);
/* Seconds in which the host's processors update what is in its memory, reading and writing so many
 * bytes, while all devices that share the host update. */
double cluster_host_update_s(const cluster *c, double bytes, int64_t devices);
/* Seconds of work at the limits of a device: the longer of its operations at their peak and its
 * bytes at the bandwidth of their memory; of a copy between tiers those of cluster_copy_s. */
double cluster_limit_s(const cluster *c, const cost_work *w);
/* Seconds of work on a device: the launch, plus the limit divided by the share that such work
 * reaches. */
double cluster_work_s(const cluster *c, const cost_work *w);

#endif
