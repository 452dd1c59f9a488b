/* The short form of a parallel plan, "dp=2,zero=1,tp=2", and what it means for a family's tensors.
 */
#ifndef MODEL_STRATEGY_H
#define MODEL_STRATEGY_H

#include "model/lm.h"

typedef struct strategy {
  int64_t dp, tp; /* at least 1 */
  int zero; /* 0 to 3: what is cut over dp: nothing, the optimizer's state (1 and 2), params too */
} strategy;

/* `devices`: 0 = as many as the strategy takes; text NULL: all of them are dp.  HP_ERR_ARG names
 * the word that makes no sense, HP_ERR_UNSUPPORTED one that is not built. */
hp_status strategy_parse(const char *text, int64_t devices, strategy *out);
/* "(2,2)(dp,tp)" into text; NULL for one device. */
const char *strategy_mesh(const strategy *s, char text[64]);
/* Declares the layouts of the model's params, their optimizer state, inputs and caches on the
 * device; dims that the degrees do not divide stay whole. */
hp_status strategy_apply(const strategy *s, const lm *m, hp_device *d);

#endif
