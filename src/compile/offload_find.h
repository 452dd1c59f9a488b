/* The fastest program under the memory limits whose values leave the device while they are not in
 * use: plans under lower and lower caps until the offsets fit, with what the host has no room for
 * on flash, with updates on the device or on the host, and with collectives between computations or
 * during them. */
#ifndef COMPILE_OFFLOAD_FIND_H
#define COMPILE_OFFLOAD_FIND_H

#include "compile/stage_state.h"

/* Are there tensors that must be on another tier, whatever the limit? */
bool offload_must(const stage_state *s);
/* May a tensor leave where the limit asks for it? */
bool offload_may(const stage_state *s);
/* Replaces *out by that program.  Where updates run is as asked, or where it is faster; what does
 * not fit with updates on the device may fit with updates on the host.  HP_ERR_OOM with s->fits
 * false: refused, with the limit that is enough in the message and as the arena of *out. */
hp_status offload_find(stage_state *s, program **out);
/* *out fits without offloading, one instruction after the other: replaces it if one with offloading
 * is faster, since its collectives overlap with computation. */
hp_status offload_find_faster(stage_state *s, program **out);

#endif
