/* The stages of a model on a device that is a pipeline. */
#ifndef MODEL_LM_STAGES_H
#define MODEL_LM_STAGES_H

#include "model/lm.h"

/* Cuts the layers between the stages of d, and declares the stages of params, gradients and
 * optimizer state there.  Call it before they are created; a later call replaces an earlier one.
 * cut[n]: layers of each stage; none only on the first, which has the embedding, and on the last,
 * which has the head.  NULL: so that the largest stage has as little work as is possible, which
 * needs a layer for each.  A device that is no pipeline: nothing.  HP_ERR_LAYOUT if layers and
 * stages do not fit. */
hp_status lm_place(lm *m, hp_device *d, const int64_t *cut, int n);

#endif
