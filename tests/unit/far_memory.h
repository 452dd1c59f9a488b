/* A device whose memory the host cannot address: the CPU's, at addresses that no instruction reads,
 * so that whatever uses one without the backend or a communicator of the device crashes. */
#ifndef FAR_MEMORY_H
#define FAR_MEMORY_H

#include "hyperparallel.h"

/* Makes those of a mesh such devices, before they have tensors or programs.  own_communicator:
 * their collectives take addresses of the device, and refuse those of the host; else they are for
 * memory of the host. */
void far_memory_use(hp_device *d, bool own_communicator);
/* Collectives on addresses of the device so far. */
int far_memory_collectives(void);

#endif
