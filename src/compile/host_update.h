/* Updates that the host's processors can do, where the optimizer state lives.
 *
 * Optimizer state that is on the host need not go to the device and back for its update: the
 * gradient goes to the host, and the param comes back when it is used, 8 bytes a weight of AdamW
 * instead of 24.  Two kinds can be done there without waiting for the device in between: those at
 * the beginning of a run, of gradients that the run before has left, and those at its end. */
#ifndef COMPILE_HOST_UPDATE_H
#define COMPILE_HOST_UPDATE_H

#include "prog/program.h"

enum { HOST_NONE, HOST_BEFORE, HOST_AFTER };
/* May the named tensor be on the host for it? */
typedef bool (*host_update_may)(const void *context, const prog_buffer *state);
/* on_host[i]: may instruction i, a loop of the update, run on the host, and when: HOST_BEFORE
 * everything that touches its tensors on the device, or HOST_AFTER it.  Small loops over inputs
 * whose results only such updates need are BEFORE, too.  p is in the order of the graph;
 * workspace: bytes, by kernel. */
hp_status host_update_find(const program *p, const uint64_t *workspace, host_update_may may,
                           const void *context, uint8_t *on_host);

#endif
