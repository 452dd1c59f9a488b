/* Megatron's keys of recomputation, as other spellings of `recompute`.
 *
 * Sizes and names have the meaning that they have there; what Megatron refuses is refused.  It
 * recomputes a uniform chunk of several layers at once, and here each layer for itself. */
#ifndef TRAIN_TRAIN_MEGATRON_RECOMPUTE_H
#define TRAIN_TRAIN_MEGATRON_RECOMPUTE_H

#include "model/module_names.h"
#include "train/train_config.h"

/* Checks the keys against each other.  What they ask for: RECOMPUTE_AUTO, nothing; RECOMPUTE_SOME,
 * the first `*layers` layers of each stage, or with 0 the modules of recompute_modules, which go
 * to c->is.recompute_modules. */
hp_status train_megatron_recompute(train_config *c, train_recompute *what, int *layers);
/* With the model, whose modules of layers are `list`: patterns of these for recompute_modules, into
 * c->is.recompute_places. */
hp_status train_megatron_find_modules(train_config *c, const model_config *m,
                                      const module_names *list);

#endif
