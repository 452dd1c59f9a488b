/* Collectives of a program: each is a call of the communicator of the ranks along its axes. */
#ifndef RT_COLLECTIVE_H
#define RT_COLLECTIVE_H

#include "rt/device.h"

/* Of a program on a device, made when it is loaded: the communicators of its collectives, room for
 * their rendezvous, and staging in the arena of tier host where a communicator for memory of the
 * host cannot use the device's addresses.  A run makes none of them. */
typedef struct collectives collectives;
hp_status collectives_load(device *d, const program *p, collectives **out);
void collectives_free(collectives *c);
/* Is it a collective?  Then collective_run runs instruction i on its operands at[0], ..., into
 * the last of at[].  *arrived_s (time_now_s) is set when all ranks have come. */
bool collective_runs(const prog_inst *n);
hp_status collective_run(const collectives *c, size_t i, void *const *at, double *arrived_s);
/* Bytes that the device received when collective i last ran. */
double collective_received(const collectives *c, size_t i);
/* The index of this device among the ranks of collective i; 0 if instruction i is no collective. */
int64_t collective_place(const collectives *c, size_t i);

#endif
