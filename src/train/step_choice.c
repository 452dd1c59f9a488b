#include "train/step_choice.h"

#include "base/json.h"
#include "base/status.h"
#include "base/str.h"

#include <stdio.h>
#include <string.h>

void step_ways_init(step_ways *w, const step_pieces *pieces) {
  *w = (step_ways){.what = NULL};
  for (int i = 0; i < STEP_WAYS; i++) w->way[i] = *pieces;
  for (int i = STEP_WITH_REMAT; i < STEP_WAYS; i++) {
    w->way[i].o.compile.remat = true;
    w->way[i].quiet = w->way[i].again = true;
  }
}

void step_ways_free(step_ways *w) {
  for (int i = 0; i < STEP_WAYS; i++) step_pieces_free(&w->way[i]);
  hp_free(w->text);
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

char *step_ways_take_text(step_ways *w) {
  char *text = w->text;
  w->text = NULL;
  return text;
}

void step_ways_set_update(step_ways *w, step_update_when when) {
  for (int i = 0; i < STEP_WAYS; i++) w->way[i].o.update = when;
}

step_spec step_spec_of(const micro_shape *shape, int64_t n, const step_choice *c) {
  return (step_spec){.shape = shape, .n = n, .applies = c->leaves, .leaves = c->leaves};
}

/* --- the pieces of a step ----------------------------------------------------------------------
 */

/* The lines of both, a line of each stage by its choice; other pieces are those of `a`. */
static hp_status merge_rows(const step_link *a, const step_link *b, const step_choice *c,
                            int stages, str *rows) {
  const char *x = a->rows, *y = b->rows;
  while (*x && *y) {
    size_t n = strcspn(x, "\n"), k = strcspn(y, "\n");
    bool both = n != k || memcmp(x, y, n);
    if (!both) str_printf(rows, "%.*s\n", (int)n, x);
    for (int s = 0; both && s < stages; s++)
      str_printf(rows, "%d%.*s\n", s, (int)(step_choice_remats(c, s) ? k : n) - 1,
                 (step_choice_remats(c, s) ? y : x) + 1);
    x += n + (x[n] != 0);
    y += k + (y[k] != 0);
  }
  return str_status(rows);
}

/* Pieces of `a`, then those of `b` with other names. */
static hp_status merge(const step_link *a, const step_link *b, const step_choice *c, int stages,
                       step_link *out) {
  size_t most = (size_t)(a->n + b->n);
  str rows = {0};
  *out = (step_link){.piece = mem_calloc(most, sizeof *out->piece),
                     .action = mem_calloc(most, sizeof *out->action),
                     .names = mem_calloc(most, sizeof *out->names)};
  HP_TRY_MEM(out->piece && out->action && out->names);
  for (size_t i = 0; i < most; i++) {
    const step_link *from = i < (size_t)a->n ? a : b;
    size_t k = i - (from == a ? 0 : (size_t)a->n);
    if (from == b && from->names[k][0] != 'R') continue;
    memcpy(out->names[out->n], from->names[k], STEP_NAME);
    out->action[out->n] = out->names[out->n];
    out->piece[out->n++] = from->piece[k];
  }
  hp_status st = merge_rows(a, b, c, stages, &rows);
  if (st) str_free(&rows);
  out->rows = rows.at;
  return st;
}

/* Of STEP_WITH_SOME. */
static void set_blocks(step_pieces *p, int blocks) {
  hp_compile_options o = p->o.compile;
  if (o.remat_blocks == blocks) return;
  o.remat_blocks = blocks;
  step_pieces_set_options(p, &o);
}

hp_status step_ways_link(step_ways *w, const step_spec *spec, const step_choice *c,
                         step_link *out) {
  step_link a = {0}, b = {0};
  if (c->way == STEP_WITH_SOME) set_blocks(&w->way[STEP_WITH_SOME], c->blocks);
  if (c->way != STEP_BY_STAGE) return step_pieces_link(&w->way[c->way], spec, out);
  *out = (step_link){0};
  hp_status st = step_pieces_link(&w->way[STEP_AS_ASKED], spec, &a);
  if (!st) st = step_pieces_link(&w->way[STEP_WITH_REMAT], spec, &b);
  if (!st) st = merge(&a, &b, c, hp_device_stages(w->way[STEP_AS_ASKED].d), out);
  step_link_free(&a);
  step_link_free(&b);
  return st;
}

void step_ways_linked(step_ways *w, const step_choice *c, int64_t n,
                      const hp_program_stats *linked) {
  for (int i = 0; i < STEP_WAYS; i++)
    if (step_choice_has(c, i)) step_pieces_linked(&w->way[i], n, linked);
}

/* --- plans -------------------------------------------------------------------------------------
 */

hp_status step_plan_make(step_ways *w, const micro_shape *shape, int64_t n, const step_choice *c,
                         step_plan *out, const char *what, char **text) {
  step_spec spec = step_spec_of(shape, n, c);
  step_link l;
  *out = (step_plan){.refused = false};
  hp_status st = step_ways_link(w, &spec, c, &l);
  if (!st) st = hp_link_plan(l.piece, l.action, l.n, l.rows, &out->stats, what, text);
  if (!st) step_ways_linked(w, c, n, &out->stats);
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

/* The text of the plan that is the best so far. */
static void set_text(step_ways *w, char *text) {
  hp_free(w->text);
  w->text = text;
}

/* No plan of the same pieces takes less: to compute, and in all with the copies that it needs.  0:
 * not known. */
typedef struct {
  double compute_s, bound_s;
} least_times;

static least_times least_of(const step_plan *p) {
  if (p->refused) return (least_times){0};
  return (least_times){p->stats.predicted_s - p->stats.exposed_copy_s, p->stats.bound_s};
}

/* Takes the other choice if its plan is better; *least: of plans of this way. */
static hp_status try_other(step_ways *w, const micro_shape *shape, int64_t n,
                           const step_choice *other, step_choice *c, step_plan *best,
                           least_times *least) {
  step_plan plan;
  char *text = NULL;
  HP_TRY(step_plan_make(w, shape, n, other, &plan, w->what, &text));
  *least = least_of(&plan);
  if (!is_better(&plan, best)) {
    hp_free(text);
    return HP_OK;
  }
  *c = *other;
  *best = plan;
  set_text(w, text);
  return HP_OK;
}

/* With what is recomputed: it is not copied, and updates that are left find lanes with time.  So
 * these come first; the other only if updates at the end are better so far, and if computation
 * alone does not take longer. */
static hp_status try_remat(step_ways *w, const micro_shape *shape, int64_t n, bool both,
                           step_choice *c, step_plan *best, least_times *least) {
  bool refused = best->refused; /* to leave the update needs no less memory */
  step_choice other = {.way = STEP_WITH_REMAT, .leaves = both ? !refused : c->leaves};
  HP_TRY(try_other(w, shape, n, &other, c, best, least));
  if (!both || best->refused || least->compute_s >= best->stats.predicted_s) return HP_OK;
  if (c->leaves && !refused) return HP_OK;
  other.leaves = !other.leaves;
  return try_other(w, shape, n, &other, c, best, least);
}

static double smaller(double a, double b) { return a < b ? a : b; }

/* By so much that other plans are tried for it. */
static bool may_be_better(double least_s, const step_plan *best) {
  enum { PER_CENT = 2 };
  return least_s * (100 + PER_CENT) < best->stats.predicted_s * 100;
}

/* Recomputation in a quarter, a half and three quarters of the layers of each stage.  To compute
 * takes between what it takes with none of them and with all; once that alone is no better than
 * what was found, neither are more layers.  Copies that both need are needed here too.  Where all
 * layers do not fit, fewer do not. */
static hp_status try_some(step_ways *w, const micro_shape *shape, int64_t n, least_times none,
                          least_times all, step_choice *c, step_plan *best) {
  enum { PARTS = 4 };
  int64_t stages = hp_device_stages(w->way[STEP_AS_ASKED].d),
          layers = (w->way[STEP_AS_ASKED].m->c.layers + stages - 1) / stages;
  least_times own;
  step_choice other = {.way = STEP_WITH_SOME, .leaves = c->leaves};
  if (best->refused || !may_be_better(smaller(none.bound_s, all.bound_s), best)) return HP_OK;
  for (int k = 1; k < PARTS; k++) {
    int blocks = (int)(layers * k / PARTS);
    if (blocks == other.blocks) continue;
    other.blocks = blocks;
    double more_s = (all.compute_s - none.compute_s) * blocks / (double)layers;
    if (!may_be_better(none.compute_s + more_s, best)) return HP_OK;
    HP_TRY(try_other(w, shape, n, &other, c, best, &own));
  }
  return HP_OK;
}

/* --- stages of a pipeline ----------------------------------------------------------------------
 */

static void set_stages(const tree_node *device, step_choice *c) {
  const tree_node *stages = tree_get(device, "stages");
  for (uint32_t i = 0; i < stages->len; i++) {
    int64_t s = stages->child[i]->integer;
    c->remat[s / 8] |= (uint8_t)(1u << (s % 8));
  }
}

/* Stages of devices that need more than the limit unless their activations are recomputed. */
static hp_status find_stages(step_ways *w, const micro_shape *shape, int64_t n, uint64_t limit,
                             step_choice *c) {
  const char *what = "pipeline.json";
  step_plan plan;
  char *text = NULL;
  tree t = {0};
  const tree_node *devices;
  step_choice asked = {.way = STEP_AS_ASKED, .leaves = c->leaves};
  hp_status st = step_plan_make(w, shape, n, &asked, &plan, what, &text);
  if (!st) st = json_parse(text, strlen(text), what, &t);
  if (!st) st = tree_need_list(t.root, "devices", &devices);
  for (uint32_t i = 0; !st && i < devices->len; i++) {
    int64_t bytes = 0;
    st = tree_need_int(devices->child[i], "planned_bytes", &bytes);
    if (!st && (uint64_t)bytes > limit) set_stages(devices->child[i], c);
  }
  tree_free(&t);
  hp_free(text);
  return st;
}

/* Recomputation on the stages alone that need it. */
static hp_status try_stages(step_ways *w, const micro_shape *shape, int64_t n, step_choice *c,
                            step_plan *best) {
  hp_device *d = w->way[STEP_AS_ASKED].d;
  uint64_t limit = hp_device_memory_limit(d),
           reserve = w->way[STEP_AS_ASKED].o.compile.reserve_bytes;
  int stages = hp_device_stages(d), chosen = 0;
  step_choice other = {.way = STEP_BY_STAGE, .leaves = c->leaves};
  least_times least;
  if (stages == 1 || stages > STEP_CHOSEN_STAGES || !limit) return HP_OK;
  hp_device_set_memory_limit(d, 0);
  hp_status st = find_stages(w, shape, n, limit > reserve ? limit - reserve : 1, &other);
  hp_device_set_memory_limit(d, limit);
  for (int s = 0; s < stages; s++) chosen += step_choice_remats(&other, s);
  if (st || !chosen || chosen == stages) return st;
  return try_other(w, shape, n, &other, c, best, &least);
}

hp_status step_choose(step_ways *w, const micro_shape *shape, int64_t n, step_choice *c,
                      step_plan *out) {
  const step_options *o = &w->way[STEP_AS_ASKED].o;
  bool stages = hp_device_stages(w->way[STEP_AS_ASKED].d) > 1; /* these end with the update */
  bool both = o->update == UPDATE_AUTO && !stages;
  least_times none, all, least;
  char *text = NULL;
  *c = (step_choice){.way = STEP_AS_ASKED, .leaves = o->update == UPDATE_NEXT_STEP};
  HP_TRY(step_plan_make(w, shape, n, c, out, w->what, &text));
  set_text(w, text);
  none = least_of(out);
  if (!out->refused && !step_plan_offloads(out)) return HP_OK;
  if (both && !out->refused) /* it needs no less memory */
    HP_TRY(try_other(w, shape, n, &(step_choice){.way = c->way, .leaves = true}, c, out, &least));
  if (!o->remat_auto || o->compile.remat) return HP_OK;
  HP_TRY(try_stages(w, shape, n, c, out));
  if (c->way == STEP_BY_STAGE && !out->refused && !step_plan_offloads(out)) return HP_OK;
  HP_TRY(try_remat(w, shape, n, both, c, out, &all));
  return try_some(w, shape, n, none, all, c, out);
}
