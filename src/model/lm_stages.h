/* The stages of a model on a device that is a pipeline. */
#ifndef MODEL_LM_STAGES_H
#define MODEL_LM_STAGES_H

#include "model/placement.h"

/* Cuts the layers of each group between its stages of d, and declares the stages of params,
 * gradients and optimizer state there.  Call it before they are created; a later call replaces an
 * earlier one.  By p->cut; none only on the first stage, which has the embedding, and on the last,
 * which has the head.  Without it: so that the largest stage of a group has as little work as is
 * possible, which needs a layer for each.  A device that is no pipeline: nothing.  HP_ERR_LAYOUT if
 * layers and stages do not fit. */
hp_status lm_place(lm *m, hp_device *d, const placement *p);

#endif
