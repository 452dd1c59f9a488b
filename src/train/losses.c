/* The table of losses. */
#include "train/losses.h"

#include <math.h>

const train_loss losses[] = {
#define NOT_BUILT(name) {.stage = #name},
#define LOSS(name, of, make, loss, named, value, help)                                             \
  {.stage = #name, .data = of, .samples = make, .each = loss, .metric = named, .metric_of = value},
#define PREFERENCE(name, of, make, kind, scores, help)                                             \
  {.stage = #name, .data = of, .samples = make, .each = scores, .preference = kind},
#include "train/losses.def"
#undef LOSS
#undef PREFERENCE
#undef NOT_BUILT
};
