#include "train/stage_balance.h"

#include "base/mem.h"

#include <math.h>

typedef struct {
  double seconds, state, stored;
} sums;

/* Of the layers from..to - 1, and of the end of the model that the stage has. */
static sums add_up(const balance_task *t, const layer_cost *of, int s, int64_t from, int64_t to) {
  sums x = {0};
  int64_t first = s ? from + 1 : 0, end = s + 1 == t->stages ? t->layers + 2 : to + 1;
  for (int64_t l = first; l < end; l++) {
    x.seconds += of[l].seconds;
    x.state += (double)of[l].state_bytes;
    x.stored += (double)of[l].stored_bytes;
  }
  return x;
}

static stage_price price_of(const balance_task *t, int s, const sums *x) {
  double bytes = x->state + x->stored * t->in_flight[s];
  double above = t->limit ? fmax(0, bytes - (double)t->limit) : 0;
  return (stage_price){above, x->seconds};
}

stage_price stage_balance_price(const balance_task *t, int s, int64_t from, int64_t to) {
  sums plain = add_up(t, t->plain, s, from, to);
  stage_price p = price_of(t, s, &plain);
  if (p.above_bytes <= 0 || !t->recomputed) return p;
  sums again = add_up(t, t->recomputed, s, from, to);
  return price_of(t, s, &again);
}

static bool is_worse(stage_price a, stage_price b) {
  if (a.above_bytes != b.above_bytes) return a.above_bytes > b.above_bytes;
  return a.seconds > b.seconds;
}

/* The worst stage of the first s + 1 with the first `to` layers, at best, and where the last of
 * these begins. */
typedef struct {
  stage_price worst;
  int64_t from;
} best_cut;

/* The ends of the model, where they are among the costs, are a stage by themselves. */
static bool may_be_empty(const balance_task *t, int s) {
  return (s == 0 && t->plain[0].seconds > 0) ||
         (s + 1 == t->stages && t->plain[t->layers + 1].seconds > 0);
}

static best_cut find_best(const balance_task *t, const best_cut *before, int s, int64_t to) {
  best_cut best = {{INFINITY, INFINITY}, -1};
  for (int64_t from = to - !may_be_empty(t, s); from >= 0; from--) {
    if (s == 0 && from) continue;
    if (s && before[from].from < 0) continue;
    stage_price own = stage_balance_price(t, s, from, to);
    if (s && is_worse(before[from].worst, own)) own = before[from].worst;
    if (best.from >= 0 && !is_worse(best.worst, own)) continue;
    best = (best_cut){own, from};
  }
  return best;
}

hp_status stage_balance(const balance_task *t, int64_t *cut) {
  size_t row = (size_t)t->layers + 1;
  best_cut *best = mem_calloc((size_t)t->stages * row, sizeof *best);
  HP_TRY_MEM(best);
  for (int s = 0; s < t->stages; s++)
    for (int64_t to = 0; to <= t->layers; to++)
      best[(size_t)s * row + (size_t)to] =
          find_best(t, s ? &best[(size_t)(s - 1) * row] : NULL, s, to);
  int64_t to = t->layers;
  for (int s = t->stages; s-- > 0;) {
    int64_t from = best[(size_t)s * row + (size_t)to].from;
    cut[s] = to - from;
    to = from;
  }
  mem_free(best);
  return HP_OK;
}
