/* offload, flash, flash_limit and host_limit: from the file, its hyper_parallel block, and the
 * synonyms of a DeepSpeed file. */
#ifndef TRAIN_TRAIN_TIERS_H
#define TRAIN_TRAIN_TIERS_H

#include "train/train_config.h"

/* Writes c->is.tiers. */
hp_status train_tiers_decide(train_config *c);

#endif
