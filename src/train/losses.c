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

lm_losses *losses_of_evaluation(const step_options *o) {
  return o->accuracy ? lm_token_accuracies : losses[o->stage].each;
}

int64_t losses_each(const step_options *o) {
  return o->accuracy || losses[o->stage].each == preference_scores ? 2 : 1;
}
