/* Where the instructions of the update are in the order of a step.
 *
 * The norm of a gradient is taken right after the gradient is complete, not after all of them:
 * until its update nothing reads the gradient again.  An update that comes before the forward,
 * because the step before has left it (train/step_pieces.h), runs just before the first instruction
 * that needs it.  So neither gradients nor optimizer state have to be on the device all at once.
 * Neither changes a bit. */
#ifndef COMPILE_PLACE_UPDATES_H
#define COMPILE_PLACE_UPDATES_H

#include "prog/program.h"

/* p is in the order of the graph, without waits and offsets.  Time is linear in instructions. */
hp_status place_updates(program *p);

#endif
