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

void step_ways_set_update(step_ways *w, step_update_when when) {
  for (int i = 0; i < STEP_WAYS; i++) w->way[i].o.update = when;
}

step_spec step_spec_of(const micro_shape *shape, int64_t n, const step_choice *c) {
  return (step_spec){.shape = shape, .n = n, .applies = c->leaves, .leaves = c->leaves};
}

hp_status step_plan_make(step_ways *w, const micro_shape *shape, int64_t n, const step_choice *c,
                         step_plan *out, const char *what, char **text) {
  step_pieces *s = &w->way[c->way];
  step_spec spec = step_spec_of(shape, n, c);
  step_link l;
  *out = (step_plan){.refused = false};
  hp_status st = step_pieces_link(s, &spec, &l);
  if (!st) st = hp_link_plan(l.piece, l.action, l.n, l.rows, &out->stats, what, text);
  if (!st) step_pieces_linked(s, n, &out->stats);
  step_link_free(&l);
  out->refused = st == HP_ERR_OOM && out->stats.memory.planned_bytes;
  if (out->refused) err_clear();
  return out->refused ? HP_OK : st;
}

/* By enough to be worth it: predictions are no better. */
static bool is_better(const step_plan *a, const step_plan *b) {
  enum { PER_CENT = 1 };
  if (a->refused != b->refused) return b->refused;
  if (a->refused) return a->stats.memory.planned_bytes < b->stats.memory.planned_bytes;
  return a->stats.predicted_s * (100 + PER_CENT) < b->stats.predicted_s * 100;
}

/* Takes the other choice if its plan is better; *least_s: no plan of this way takes less. */
static hp_status try_other(step_ways *w, const micro_shape *shape, int64_t n,
                           const step_choice *other, step_choice *c, step_plan *best,
                           double *least_s) {
  step_plan plan;
  HP_TRY(step_plan_make(w, shape, n, other, &plan, NULL, NULL));
  *least_s = plan.stats.predicted_s - plan.stats.exposed_copy_s;
  if (!is_better(&plan, best)) return HP_OK;
  *c = *other;
  *best = plan;
  return HP_OK;
}

/* With what is recomputed: it is not copied, and updates that are left find lanes with time.  So
 * these come first; the other only if updates at the end are better so far, and if computation
 * alone does not take longer. */
static hp_status try_remat(step_ways *w, const micro_shape *shape, int64_t n, bool both,
                           step_choice *c, step_plan *best) {
  bool refused = best->refused; /* to leave the update needs no less memory */
  step_choice other = {STEP_WITH_REMAT, both ? !refused : c->leaves};
  double least_s;
  HP_TRY(try_other(w, shape, n, &other, c, best, &least_s));
  if (!both || best->refused || least_s >= best->stats.predicted_s) return HP_OK;
  if (c->leaves && !refused) return HP_OK;
  other.leaves = !other.leaves;
  return try_other(w, shape, n, &other, c, best, &least_s);
}

hp_status step_choose(step_ways *w, const micro_shape *shape, int64_t n, step_choice *c,
                      step_plan *out) {
  const step_options *o = &w->way[STEP_AS_ASKED].o;
  bool both = o->update == UPDATE_AUTO;
  double least_s;
  *c = (step_choice){STEP_AS_ASKED, o->update == UPDATE_NEXT_STEP};
  HP_TRY(step_plan_make(w, shape, n, c, out, NULL, NULL));
  if (!out->refused && !step_plan_offloads(out)) return HP_OK;
  if (both && !out->refused) /* it needs no less memory */
    HP_TRY(try_other(w, shape, n, &(step_choice){c->way, true}, c, out, &least_s));
  return o->remat_auto && !o->compile.remat ? try_remat(w, shape, n, both, c, out) : HP_OK;
}
