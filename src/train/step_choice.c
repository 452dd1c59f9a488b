#include "train/step_choice.h"

#include "base/status.h"

void step_ways_init(step_ways *w, const step_pieces *pieces) {
  for (int i = 0; i < STEP_WAYS; i++) w->way[i] = *pieces;
  w->way[STEP_WITH_REMAT].o.compile.remat = true;
  w->way[STEP_WITH_REMAT].quiet = true;
}

void step_ways_free(step_ways *w) {
  for (int i = 0; i < STEP_WAYS; i++) step_pieces_free(&w->way[i]);
}

void step_ways_reserve(step_ways *w, uint64_t bytes) {
  for (int i = 0; i < STEP_WAYS; i++) {
    hp_compile_options o = w->way[i].o.compile;
    if (o.reserve_bytes == bytes) continue;
    o.reserve_bytes = bytes;
    step_pieces_set_options(&w->way[i], &o);
  }
}

bool step_plan_offloads(const step_plan *p) {
  for (int t = 1; t < HP_TIERS; t++)
    if (p->stats.memory.tier[t].moved_bytes) return true;
  return false;
}

hp_status step_plan_make(step_pieces *s, const micro_shape *shape, int64_t n, step_plan *out,
                         const char *what, char **text) {
  step_link l;
  *out = (step_plan){.refused = false};
  hp_status st = step_pieces_link(s, shape, n, &l);
  if (!st) st = hp_link_plan(l.piece, l.action, l.n, l.rows, &out->stats, what, text);
  if (!st) step_pieces_linked(s, n, &out->stats);
  step_link_free(&l);
  out->refused = st == HP_ERR_OOM && out->stats.memory.planned_bytes;
  if (out->refused) err_clear();
  return out->refused ? HP_OK : st;
}

static bool is_better(const step_plan *a, const step_plan *b) {
  if (a->refused != b->refused) return b->refused;
  if (a->refused) return a->stats.memory.planned_bytes < b->stats.memory.planned_bytes;
  return a->stats.predicted_s < b->stats.predicted_s;
}

hp_status step_choose(step_ways *w, const micro_shape *shape, int64_t n, step_way *way,
                      step_plan *out) {
  const step_options *o = &w->way[STEP_AS_ASKED].o;
  step_plan other;
  *way = STEP_AS_ASKED;
  HP_TRY(step_plan_make(&w->way[STEP_AS_ASKED], shape, n, out, NULL, NULL));
  if (!o->remat_auto || o->compile.remat) return HP_OK;
  if (!out->refused && !step_plan_offloads(out)) return HP_OK;
  HP_TRY(step_plan_make(&w->way[STEP_WITH_REMAT], shape, n, &other, NULL, NULL));
  if (!is_better(&other, out)) return HP_OK;
  *way = STEP_WITH_REMAT;
  *out = other;
  return HP_OK;
}
