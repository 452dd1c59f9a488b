/* Costs learned from runs on this machine, for predictions. */
#ifndef RT_LEARN_H
#define RT_LEARN_H

#include "rt/exec.h"
#include "rt/device_mesh.h"

/* Sets the costs for predictions of dm: the cluster's or, for one device of this machine, the
 * record's. */
void learn_open(device_mesh *dm, const hp_device_options *o);
/* Adds the recent runs of a program, if there were enough and they were long enough. */
void learn_from(device_mesh *dm, const exec *e);
/* Saves the learned costs for later processes. */
void learn_close(device_mesh *dm);

#endif
