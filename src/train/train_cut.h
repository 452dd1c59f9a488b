/* Cuts the layers of a model between the stages of a pipeline by the predicted time of a step,
 * under the memory limit of each stage. */
#ifndef TRAIN_TRAIN_CUT_H
#define TRAIN_TRAIN_CUT_H

#include "train/step_memory.h"

/* m is placed on the stages of d already (lm_place), as work says; none of its params is created.
 * The longest step of w is planned without a limit, and its layers are placed anew, the same on
 * all processes.  A device that is no pipeline: nothing. */
hp_status train_cut_by_time(const step_options *o, const step_work *w, lm *m, hp_device *d);

#endif
