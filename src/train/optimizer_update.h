/* The updates of optimizers as graphs. */
#ifndef TRAIN_OPTIMIZER_UPDATE_H
#define TRAIN_OPTIMIZER_UPDATE_H

#include "train/optimizer.h"

void optimizer_update_adamw(const optimizer_param *x);
void optimizer_update_sgd(const optimizer_param *x);

#endif
