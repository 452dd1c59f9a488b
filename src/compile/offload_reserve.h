/* Room that is left free where the offsets of an offloaded program do not fit.
 *
 * Offsets need more bytes than are in use, and by how much is known only when they are chosen.  A
 * plan under a lower cap would have less memory during the whole run; so bytes are withheld only
 * from the steps during which a buffer lies above the room. */
#ifndef COMPILE_OFFLOAD_RESERVE_H
#define COMPILE_OFFLOAD_RESERVE_H

#include "prog/program.h"

/* reserve: by instruction of the program before it was offloaded; each one while which buffers of p
 * end above `room` gets the bytes that these are above it, in all at most `most`.
 * *more: one has more than before. */
hp_status offload_reserve_add(const program *p, uint64_t room, uint64_t most, size_t steps,
                              uint64_t *reserve, bool *more);

#endif
