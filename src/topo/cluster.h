/* The cluster: what its devices compute, and the links between them, from a file or by name.
 *
 *   name: two-nodes
 *   nodes: 2                       # left out: as many as are asked for
 *   devices_per_node: 4
 *   device: {flops: 1e12, bandwidth_gb_s: 100, memory_gb: 16}
 *   links:                         # from the nearest; GB/s that a device receives
 *     - {name: node, devices: 4, bandwidth_gb_s: 50, latency_us: 2}
 *     - {name: net, bandwidth_gb_s: 5, latency_us: 10}
 *   kernels: {ops: [softmax]}      # may be left out, as each of its keys: topo/capabilities.h
 *   costs: {launch_us: 3}          # may be left out, as each of its keys: topo/cost_table.h
 *   emulate: false                 # true: collectives take at least the time that the links say
 *   emulate_compute: false         # true: computation at least the time that the device says
 *
 * A link connects blocks of `devices` consecutive ranks, the last one all ranks.  Communication
 * between ranks has the speed of the first link with a block that contains them all. */
#ifndef TOPO_CLUSTER_H
#define TOPO_CLUSTER_H

#include "topo/capabilities.h"
#include "topo/cost_table.h"
#include "topo/mesh.h"

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
/* Seconds in which a device receives `bytes` from the other devices along these axes.  A round
 * (an all_reduce has two, other collectives one) takes ceil(log2(devices)) steps, each with the
 * link's latency. */
double cluster_comm_s(const cluster *c, const mesh *m, const uint8_t *axis, int n, double bytes,
                      int rounds);
/* Seconds of work at the limits of a device: the longer of its operations at their peak and its
 * bytes at the bandwidth of their memory. */
double cluster_limit_s(const cluster *c, const cost_work *w);
/* Seconds of work on a device: the launch, plus the limit divided by the share that such work
 * reaches. */
double cluster_work_s(const cluster *c, const cost_work *w);

#endif
