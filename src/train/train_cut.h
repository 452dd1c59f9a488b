/* Cuts the layers of a model between the stages of a pipeline by the predicted time of a step,
 * under the memory limit of each stage. */
#ifndef TRAIN_TRAIN_CUT_H
#define TRAIN_TRAIN_CUT_H

#include "model/placement.h"
#include "train/step_memory.h"

/* The planner's model is placed on the stages of its device already (lm_place of p); none of its
 * params is created.  The longest step is planned without a limit, and the layers of each group are
 * placed anew, the same on all processes; if they stay where they are, what was compiled is
 * kept for later plans.  Groups of one stage each, or no steps: nothing. */
hp_status train_cut_by_time(step_planner *planner, const placement *p);

#endif
