/* The optimizer of a training file: keys optim, use_muon and adam_*. */
#ifndef TRAIN_TRAIN_OPTIMIZER_H
#define TRAIN_TRAIN_OPTIMIZER_H

#include "train/optimizer.h"
#include "train/train_config.h"

/* The rule of these keys: refuses what is not built, tells which of them have no effect. */
hp_status train_optimizer_check(train_config *c);

optimizer_options train_optimizer_of(const train_config *c);
/* Does the optimizer use the key? Only keys adam_* may be of no use. */
bool train_optimizer_uses(const train_config *c, int key);

#endif
