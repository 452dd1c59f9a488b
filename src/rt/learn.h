/* What runs tell about this machine, for predictions of the next ones. */
#ifndef RT_LEARN_H
#define RT_LEARN_H

#include "rt/exec.h"
#include "rt/group.h"

/* Sets what predictions of g go by: the cluster, or, of one device of this machine, the record. */
void learn_open(group *g, const hp_device_options *o);
/* Takes in the recent runs of a program, when there were enough, and they were long enough. */
void learn_from(group *g, const exec *e);
/* Keeps what was learned for processes to come. */
void learn_close(group *g);

#endif
