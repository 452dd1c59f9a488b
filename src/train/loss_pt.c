/* The loss of pre-training: each token is predicted from those before it. */
#include "train/losses.h"

hp_tensor pt_losses(hp_graph *g, hp_tensor logits, hp_tensor labels) {
  return hp_cross_entropy(g, logits, labels, LABEL_NONE);
}
