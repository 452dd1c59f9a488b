/* Devices of one process, a thread each, that run the same program and meet at its collectives.
 *
 * A meeting has a group of devices, the same at all of its members.  Each shows its data, reads
 * that of the others, and leaves when all have read.  Meetings happen in the order of the program,
 * so a counter a device is all that is needed to tell them apart. */
#ifndef COMM_LOCAL_H
#define COMM_LOCAL_H

#include "base/status.h"

enum { COMM_LOCAL_MAX = 64 };
typedef struct comm_local comm_local;

hp_status comm_local_create(int devices, comm_local **out);
void comm_local_free(comm_local *c);
/* Before a run of all devices: forgets meetings and failures. */
void comm_local_reset(comm_local *c);

/* Shows `data` of device `me` and waits for the others of the group; data of member i is in at[i],
 * until comm_local_leave.  HP_ERR_COMM when a device has failed. */
hp_status comm_local_meet(comm_local *c, int me, const int64_t *group, int64_t n, const void *data,
                          const void **at);
/* Waits until all members have read. */
hp_status comm_local_leave(comm_local *c, int me, const int64_t *group, int64_t n);
/* Device `me` cannot go on: those who wait for it fail too. */
void comm_local_fail(comm_local *c, int me);

#endif
