/* The mesh of a strategy: its axes, and those that serve experts. */
#include "model/strategy.h"

#include <stdio.h>

static const char *const base_names[BASES] = {"replicas", "dp", "cp", "cp_heads", "tp_y", "tp"};
static const char *const expert_names[EXPERT_PARTS] = {"", "_ep", "_etp"};

/* The ring and the heads of a hybrid: heads get the largest divisor up to the square root of the
 * degree. */
static int64_t choose_hybrid_heads(int64_t cp) {
  int64_t best = 1;
  for (int64_t n = 1; n * n <= cp; n++)
    if (cp % n == 0) best = n;
  return best;
}

/* Moves the common divisor of `want` and `size` from `size` to `part`. */
static void take_degree(int64_t *size, int64_t *want, int64_t *part) {
  for (int64_t p = 2; p <= *want; p++)
    while (*want % p == 0 && *size % p == 0) {
      *want /= p;
      *size /= p;
      *part *= p;
    }
}

/* Sizes by base and use: etp takes from the innermost axes, ep from the outermost. */
static void divide_degrees(const strategy *s, int64_t size[BASES][EXPERT_PARTS]) {
  static const axis_base inner_first[] = {BASE_TP,   BASE_TP_Y, BASE_ULYSSES,
                                          BASE_RING, BASE_DP,   BASE_REPLICAS};
  int64_t heads = s->mode == CP_ULYSSES  ? s->cp
                  : s->mode == CP_HYBRID ? choose_hybrid_heads(s->cp)
                                         : 1;
  int64_t ep = s->ep, etp = s->etp;
  int64_t dp = s->zero_dp ? s->zero_dp : s->dp;
  const int64_t whole[BASES] = {s->dp / dp, dp, s->cp / heads, heads, s->tp_y, s->tp};
  for (int b = 0; b < BASES; b++) {
    size[b][EXPERT_NONE] = whole[b];
    size[b][EXPERT_EP] = size[b][EXPERT_ETP] = 1;
  }
  for (int i = 0; i < BASES; i++) {
    int64_t *of = size[inner_first[i]];
    take_degree(&of[EXPERT_NONE], &etp, &of[EXPERT_ETP]);
  }
  for (int b = 0; b < BASES; b++) take_degree(&size[b][EXPERT_NONE], &ep, &size[b][EXPERT_EP]);
}

int strategy_axes(const strategy *s, strategy_axis out[STRATEGY_AXES]) {
  int64_t size[BASES][EXPERT_PARTS];
  int n = 0;
  divide_degrees(s, size);
  for (int b = 0; b < BASES; b++) {
    const char *base = b == BASE_ULYSSES && s->mode == CP_ULYSSES ? "cp" : base_names[b];
    bool alone = true;
    for (int e = 0; e < EXPERT_PARTS && n < STRATEGY_AXES; e++) {
      if (size[b][e] == 1) continue;
      strategy_axis *a = &out[n++];
      *a = (strategy_axis){.size = size[b][e], .base = (axis_base)b, .expert = (axis_expert)e};
      /* the first axis of a base has the name of the base */
      snprintf(a->name, sizeof a->name, "%s%s", base, alone ? "" : expert_names[e]);
      alone = false;
    }
  }
  return n;
}

void strategy_add_mesh(const strategy *s, str *out) {
  strategy_axis axis[STRATEGY_AXES] = {{.name = "dp", .size = 1}};
  int n = strategy_axes(s, axis);
  if (!n) n = 1;
  for (int i = 0; i < n; i++) str_printf(out, i ? ",%lld" : "(%lld", (long long)axis[i].size);
  for (int i = 0; i < n; i++) str_printf(out, i ? ",%s" : ")(%s", axis[i].name);
  str_add(out, ")");
}
