/* Collectives of a program: geometry and reduction are here, how the devices meet is the
 * communicator's. */
#ifndef RT_COLLECTIVE_H
#define RT_COLLECTIVE_H

#include "rt/device.h"

/* Room for the rendezvous of a program, so that none is made in a run. */
hp_status collective_reserve(const device *d, const program *p);
/* Runs the instruction on the device's part at[0], into at[1].  Reductions go in the order of the
 * group, in f32 for 16-bit floats, so every device gets the same bits.  *met_s (time_now_s) is set
 * when the devices have all come; not by an instruction for which they do not meet. */
hp_status collective_run(const device *d, const program *p, const prog_inst *n, void *const *at,
                         double *met_s);

#endif
