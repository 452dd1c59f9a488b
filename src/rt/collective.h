/* Collectives of a program: geometry and reduction are here, how ranks exchange data is the
 * communicator's. */
#ifndef RT_COLLECTIVE_H
#define RT_COLLECTIVE_H

#include "rt/device.h"

/* Of a program on a device, made when it is loaded: the communicators of its collectives, and room
 * for their rendezvous, so that none is made in a run. */
typedef struct collectives collectives;
hp_status collectives_load(const device *d, const program *p, collectives **out);
void collectives_free(collectives *c);
/* Runs instruction i on the device's shard at[0], into at[1].  Reductions go in the order of the
 * communicator, in f32 for 16-bit floats, so every device gets the same bits.  *met_s (time_now_s)
 * is set when all ranks have come to the rendezvous; not by an instruction that has none. */
hp_status collective_run(const collectives *c, size_t i, void *const *at, double *met_s);

#endif
