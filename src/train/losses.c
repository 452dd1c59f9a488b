/* The table of losses. */
#include "train/losses.h"

#include <math.h>

const train_loss losses[] = {
#define NOT_BUILT(name) {.stage = #name},
#define LOSS(stage, data, samples, each, metric, metric_of, help)                                  \
  {#stage, data, samples, each, metric, metric_of},
#include "train/losses.def"
#undef LOSS
#undef NOT_BUILT
};
