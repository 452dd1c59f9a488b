/* The loss of pre-training: each token is predicted from those before it. */
#include "train/losses.h"

hp_tensor pt_sum(hp_graph *g, hp_tensor logits, hp_tensor labels) {
  hp_tensor losses_of_tokens = hp_cross_entropy(g, logits, labels, LABEL_NONE);
  return hp_sum(g, losses_of_tokens, (int64_t[]){0, 1}, 2, false);
}
