/* The updates of optimizers as graphs. */
#ifndef TRAIN_OPTIMIZER_UPDATE_H
#define TRAIN_OPTIMIZER_UPDATE_H

#include "train/optimizer.h"

void optimizer_update_adamw(const optimizer_param *x);
void optimizer_update_sgd(const optimizer_param *x);
void optimizer_update_lion(const optimizer_param *x);
void optimizer_update_adafactor(const optimizer_param *x);
void optimizer_update_muon(const optimizer_param *x);

/* Does Adafactor keep means of rows and columns of it?  Of matrices, and of stacks of them. */
bool optimizer_is_factored(const model_param *p);

#endif
