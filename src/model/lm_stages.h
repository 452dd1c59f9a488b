/* The stages of a model on a device that is a pipeline. */
#ifndef MODEL_LM_STAGES_H
#define MODEL_LM_STAGES_H

#include "model/lm.h"

/* Cuts the layers between the stages of d, so that the largest stage has as little work as is
 * possible, and declares the stages of params, gradients and optimizer state there.  Call it before
 * they are created.  A device that is no pipeline: nothing.  HP_ERR_LAYOUT if there are more stages
 * than layers. */
hp_status lm_place(lm *m, hp_device *d);

#endif
