/* How the devices of a job meet: a table of communicators, of which a device has one.
 *
 * A rendezvous has a group of devices, the same at all of its members.  Each offers data, says
 * which region of it every member gets, and sees the regions of the others; it leaves when all have
 * what they need.  What is done with the regions is the caller's, so every communicator gives the
 * same bits.  All devices run the same program: a device is in one rendezvous at a time, and the
 * rendezvous of two devices come in the same order on both. */
#ifndef COMM_COMM_H
#define COMM_COMM_H

#include "base/status.h"

enum { COMM_MAX = 1024, COMM_LOCAL_MAX = 64 }; /* devices of a job; of one process */

/* `n` runs of `run` bytes, `stride` apart, from `start` on of what a member offers. */
typedef struct {
  int64_t start, stride, run, n;
} comm_region;

/* Such a region where it can be read: its own stride, for it may have been packed on its way. */
typedef struct {
  const char *at;
  int64_t stride;
} comm_view;

typedef struct {
  int64_t device[COMM_MAX]; /* positions on the mesh, in the order of the collective */
  int64_t n, me;            /* me: place of this device among them */
} comm_group;

typedef struct comm comm;
typedef struct {
  const char *name;
  void (*close)(comm *c);
  /* (optional) Meetings to come give, and take, at most so many bytes: nothing is to be allocated
   * in them. */
  hp_status (*reserve)(comm *c, int64_t bytes);
  /* (optional) Room for a rendezvous with these regions, which then asks for no memory; in a
   * rendezvous of which one member has no room, the others would wait for it. */
  hp_status (*prepare)(comm *c, const comm_group *g, const comm_region *give,
                       const comm_region *take);
  /* Before a run of all devices: forgets rendezvous and failures. */
  void (*reset)(comm *c);
  /* Shows `data` and waits for the others.  To member i goes region give[i] of `data`; seen[i] is
   * region take[i] of what member i shows, until `leave`.  HP_ERR_COMM when a device has failed. */
  hp_status (*rendezvous)(comm *c, const comm_group *g, const void *data, const comm_region *give,
                          const comm_region *take, comm_view *seen);
  /* Waits until all members have read. */
  hp_status (*leave)(comm *c, const comm_group *g);
  /* The device cannot go on: those who wait for it fail too. */
  void (*fail)(comm *c, int64_t device);
} comm_iface;

/* A communicator begins with this. */
struct comm {
  const comm_iface *iface;
  int64_t devices;    /* of the job */
  int64_t first, own; /* those of this process */
};

/* Devices of one process, a thread each: nothing is copied to meet. */
hp_status comm_local_open(int64_t devices, comm **out);

#endif
