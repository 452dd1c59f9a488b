/* groups: of the hyper_parallel block, which place modules of the model on groups of devices. */
#ifndef TRAIN_TRAIN_GROUPS_H
#define TRAIN_TRAIN_GROUPS_H

#include "train/train_config.h"

/* Reads them into c->is.place, in the order of the file: their layers are found when the model is
 * there.  Refuses keys that say the same another way, and stages and cuts of pipeline: that do not
 * fit. */
hp_status train_groups_decide(train_config *c);

#endif
