#include "compile/offload_policy.h"

#include "hyperparallel.h"

#include <string.h>

enum { NONE = HP_OFFLOAD_NONE, AUTO = HP_OFFLOAD_AUTO, HOST = HP_OFFLOAD_HOST, LEVELS = 4 };

typedef struct {
  uint8_t params, gradients, optimizer, activations;
} class_modes;

/* zero_offload: ZeRO-Offload keeps optimizer state and gradients on the host, all else on the
 * device.  layer_ahead: FSDP's CPU offload and activation swapping bring whole classes back one
 * layer ahead of their use; those that no step needs soon leave first.  full_recompute: what is not
 * recomputed leaves only where recomputing is not enough. */
static const struct {
  int levels;
  class_modes at[LEVELS];
} policies[] = {[HP_PLAN_BEST] = {0},
                [HP_PLAN_ZERO_OFFLOAD] = {1, {{AUTO, HOST, HOST, AUTO}}},
                [HP_PLAN_LAYER_AHEAD] = {4,
                                         {{NONE, NONE, HOST, NONE},
                                          {NONE, HOST, HOST, NONE},
                                          {NONE, HOST, HOST, HOST},
                                          {HOST, HOST, HOST, HOST}}},
                [HP_PLAN_FULL_RECOMPUTE] = {4,
                                            {{NONE, NONE, NONE, NONE},
                                             {NONE, NONE, HOST, NONE},
                                             {NONE, HOST, HOST, NONE},
                                             {HOST, HOST, HOST, AUTO}}}};

int offload_policy_levels(int policy) { return policies[policy].levels; }

void offload_policy_modes(int policy, int level, const uint8_t *own, uint8_t *mode) {
  memcpy(mode, own, HP_MEMORY_CLASSES);
  if (!policies[policy].levels) return;
  const class_modes *m = &policies[policy].at[level];
  mode[HP_MEMORY_PARAMS] = m->params;
  mode[HP_MEMORY_GRADIENTS] = m->gradients;
  mode[HP_MEMORY_OPTIMIZER] = m->optimizer;
  mode[HP_MEMORY_ACTIVATIONS] = m->activations;
}

/* The layer of an instruction: its block, or the first number in its place in the model. */
static uint32_t find_layer(const program *p, const prog_inst *n) {
  if (n->block) return n->block;
  for (const char *at = program_str(p, n->loc); (at = strchr(at, '.')); at++) {
    uint32_t number = 0;
    const char *digit = at + 1;
    while (*digit >= '0' && *digit <= '9' && number < 1000000)
      number = number * 10 + (uint32_t)(*digit++ - '0');
    if (digit > at + 1 && (*digit == '.' || !*digit)) return number + 1;
  }
  return 0;
}

static bool same_layer(const program *p, uint32_t a, uint32_t b) {
  const prog_inst *x = program_inst(p, a), *y = program_inst(p, b);
  return x->phase == y->phase && x->micro == y->micro && find_layer(p, x) == find_layer(p, y);
}

static uint32_t first_of_layer(const program *p, uint32_t i) {
  while (i && same_layer(p, i - 1, i)) i--;
  return i;
}

uint32_t offload_policy_fetch_from(int policy, const program *p, uint32_t i) {
  if (policy != HP_PLAN_LAYER_AHEAD) return i;
  uint32_t first = first_of_layer(p, i);
  return first ? first_of_layer(p, first - 1) : 0;
}
