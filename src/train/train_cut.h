/* Cuts the layers of a model between the stages of a pipeline by the predicted time of a step,
 * under the memory limit of each stage. */
#ifndef TRAIN_TRAIN_CUT_H
#define TRAIN_TRAIN_CUT_H

#include "model/placement.h"
#include "train/step_memory.h"

/* m is placed on the stages of d already (lm_place of p), as work says; none of its params is
 * created.  The longest step of w is planned without a limit, and the layers of each group are
 * placed anew, the same on all processes.  Groups of one stage each: nothing. */
hp_status train_cut_by_time(const step_options *o, const step_work *w, const placement *p, lm *m,
                            hp_device *d);

#endif
