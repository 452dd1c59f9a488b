/* The cut of layers between stages, against all cuts there are. */
#include "test.h"

#include "pipe_case.h"
#include "train/stage_balance.h"

enum { LAYERS = 7, STAGES = 5 };

typedef struct {
  balance_task t;
  layer_cost plain[LAYERS + 2], again[LAYERS + 2];
  uint32_t in_flight[STAGES];
} random_task;

static void draw_costs(random_task *r, uint64_t *rng, layer_cost *of, bool again) {
  for (int64_t l = 0; l < r->t.layers + 2; l++)
    of[l] = (layer_cost){.seconds = (double)(1 + pipe_random(rng, 20)),
                         .state_bytes = 1 + pipe_random(rng, 30),
                         .stored_bytes = again ? 1 : 1 + pipe_random(rng, 20)};
}

static void draw(random_task *r, uint64_t *rng) {
  r->t.stages = 2 + (int)pipe_random(rng, STAGES - 1u);
  r->t.layers = r->t.stages + (int64_t)pipe_random(rng, (uint32_t)(LAYERS - r->t.stages + 1));
  r->t.limit = pipe_random(rng, 2) ? 40 + pipe_random(rng, 300) : 0;
  draw_costs(r, rng, r->plain, false);
  draw_costs(r, rng, r->again, true);
  for (int64_t l = 0; l < r->t.layers + 2; l++) {
    r->again[l].state_bytes = r->plain[l].state_bytes;
    r->again[l].seconds = r->plain[l].seconds * 1.5;
  }
  for (int s = 0; s < r->t.stages; s++) r->in_flight[s] = (uint32_t)(r->t.stages - s);
  r->t.plain = r->plain;
  r->t.recomputed = pipe_random(rng, 2) ? r->again : NULL;
  r->t.in_flight = r->in_flight;
}

static stage_price worse(stage_price a, stage_price b) {
  if (a.above_bytes != b.above_bytes) return a.above_bytes > b.above_bytes ? a : b;
  return a.seconds > b.seconds ? a : b;
}

/* The worst stage of the best cut of the layers from `from` on, over the stages from s on. */
static stage_price search(const balance_task *t, int s, int64_t from) {
  if (s + 1 == t->stages) return stage_balance_price(t, s, from, t->layers);
  stage_price best = {1e300, 1e300};
  for (int64_t to = from + (s > 0); to <= t->layers; to++) {
    stage_price one = worse(stage_balance_price(t, s, from, to), search(t, s + 1, to));
    stage_price w = worse(best, one);
    if (w.above_bytes == best.above_bytes && w.seconds == best.seconds) best = one;
  }
  return best;
}

TEST(no_cut_of_layers_has_a_faster_slowest_stage) {
  uint64_t rng = 7;
  for (int i = 0; i < 300; i++) {
    random_task r;
    int64_t cut[STAGES], from = 0;
    stage_price worst = {0, 0};
    draw(&r, &rng);
    CHECK_OK(stage_balance(&r.t, cut));
    for (int s = 0; s < r.t.stages; s++) {
      CHECK(cut[s] > 0 || s == 0 || s + 1 == r.t.stages);
      worst = worse(worst, stage_balance_price(&r.t, s, from, from + cut[s]));
      from += cut[s];
    }
    CHECK_EQ(from, r.t.layers);
    stage_price best = search(&r.t, 0, 0);
    CHECK(worst.above_bytes == best.above_bytes && worst.seconds == best.seconds);
  }
}

TEST(a_stage_that_fits_only_with_recomputation_counts_with_its_time) {
  const layer_cost plain[] = {{1, 0, 0}, {10, 10, 40}, {10, 10, 40}, {1, 0, 0}};
  const layer_cost again[] = {{1, 0, 0}, {15, 10, 5}, {15, 10, 5}, {1, 0, 0}};
  const uint32_t in_flight[] = {2, 1};
  balance_task t = {2, 2, plain, again, in_flight, 60};
  CHECK(stage_balance_price(&t, 0, 0, 1).seconds == 16);
  CHECK(stage_balance_price(&t, 1, 1, 2).seconds == 11);
  t.recomputed = NULL;
  CHECK(stage_balance_price(&t, 0, 0, 1).above_bytes == 30);
  t.limit = 0;
  CHECK(stage_balance_price(&t, 0, 0, 1).seconds == 11);
}
