/* The key recompute and its synonyms: which activations are recomputed in the backward pass. */
#ifndef TRAIN_TRAIN_RECOMPUTE_H
#define TRAIN_TRAIN_RECOMPUTE_H

#include "model/lm.h"
#include "train/train_config.h"

/* Fills c->is.recompute*: auto, none, full, a number of layers, or patterns of modules. */
hp_status train_recompute_decide(train_config *c);
/* Compares it with the model: its number of layers, and the names of modules in them; finds those
 * of recompute_modules. */
hp_status train_recompute_check(train_config *c, const lm *m);
/* Into the options of a step. */
void train_recompute_set(const train_config *c, hp_compile_options *o);

#endif
