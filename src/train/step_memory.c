#include "train/step_memory.h"

#include "base/status.h"
#include "base/thread.h"
#include "train/losses.h"

enum { AS_ASKED, WITH_REMAT, WAYS };

struct step_planner {
  lm *m;
  hp_device *d;
  step_pieces pieces[WAYS]; /* with the options as they are, and with remat */
  step_work work;
  bool tell;
  bool recomputes; /* a plan of a step, though nobody asked for it */
};

hp_status step_planner_create(lm *m, const step_options *o, const step_work *w, hp_device *d,
                              bool tell, step_planner **out) {
  step_planner *p = mem_calloc(1, sizeof *p);
  HP_TRY_MEM(p);
  *p = (step_planner){.m = m, .d = d, .work = *w, .tell = tell};
  for (int i = 0; i < WAYS; i++)
    p->pieces[i] = (step_pieces){.m = m, .d = d, .o = *o, .plan = true};
  p->pieces[WITH_REMAT].o.compile.remat = true;
  *out = p;
  return HP_OK;
}

void step_planner_free(step_planner *p) {
  for (int i = 0; p && i < WAYS; i++) step_pieces_free(&p->pieces[i]);
  mem_free(p);
}

/* --- plans of one program --------------------------------------------------------------------- */

/* A micro-batch after the first needs most: the sums of gradients are there. */
static hp_status link_pieces(step_planner *p, step_pieces *s, const planned_program *w,
                             step_link *out) {
  micro_shape *shape = mem_calloc((size_t)w->micros, sizeof *shape);
  HP_TRY_MEM(shape);
  for (int64_t i = 0; i < w->micros; i++) shape[i] = p->work.at[0].shape;
  shape[w->micros - 1] = w->shape;
  hp_status st = step_pieces_link(s, shape, w->micros, out);
  mem_free(shape);
  return st;
}

/* Of a step, with room for `reserve` bytes of other programs' params. */
static hp_status plan_pieces(step_planner *p, int way, const planned_program *w, uint64_t reserve,
                             hp_program_stats *out, const char *what, char **text) {
  step_pieces *s = &p->pieces[way];
  step_link l = {0};
  hp_compile_options o = s->o.compile;
  if (o.reserve_bytes != reserve) {
    o.reserve_bytes = reserve;
    step_pieces_set_options(s, &o);
  }
  hp_status st = link_pieces(p, s, w, &l);
  if (!st) st = hp_link_plan(l.piece, l.action, l.n, l.rows, out, what, text);
  if (!st) step_pieces_linked(s, w->micros, out);
  if (!st) out->compile_s += s->compile_s;
  step_link_free(&l);
  return st;
}

/* Activations are recomputed where the limit asks for it. */
static hp_status plan_step(step_planner *p, const planned_program *w, uint64_t reserve,
                           hp_program_stats *out, const char *what, char **text) {
  const step_options *o = &p->pieces[AS_ASKED].o;
  hp_status st = plan_pieces(p, AS_ASKED, w, reserve, out, what, text);
  if (st != HP_ERR_OOM || !o->remat_auto || o->compile.remat) return st;
  p->recomputes = true;
  err_clear();
  return plan_pieces(p, WITH_REMAT, w, reserve, out, what, text);
}

static hp_status plan_eval(const step_planner *p, const micro_shape *s, uint64_t reserve,
                           hp_program_stats *out) {
  model_build b;
  hp_compile_options o = {.reserve_bytes = reserve};
  lm_losses *of = losses[p->pieces[AS_ASKED].o.stage].each;
  hp_status st = lm_score_begin(p->m, s->B, s->T, of, &b);
  if (!st) st = b.failed ? HP_ERR_OOM : hp_graph_status(b.g);
  if (!st) st = hp_plan(b.g, p->d, &o, out);
  lm_graph_end(&b);
  return st;
}

/* --- plans of all of them --------------------------------------------------------------------- */

typedef struct {
  hp_program_stats stats;
  bool refused; /* the limit is too small for it; memory is what would do */
} one_plan;

static hp_status plan_program(step_planner *p, int64_t i, uint64_t reserve, hp_program_stats *out) {
  const planned_program *w = &p->work.at[i];
  if (!w->micros) return plan_eval(p, &w->shape, reserve, out);
  return plan_step(p, w, reserve, out, NULL, NULL);
}

static hp_status plan_one(step_planner *p, int64_t i, uint64_t reserve, one_plan *out) {
  hp_program_stats *s = &out->stats;
  *s = (hp_program_stats){0};
  hp_status st = plan_program(p, i, reserve, s);
  out->refused = st == HP_ERR_OOM;
  if (out->refused) err_clear();
  return out->refused ? HP_OK : st;
}

typedef struct {
  step_memory memory;
  int64_t worst;    /* the program that needs most of those that are refused; -1: none is */
  uint64_t reserve; /* for params of the others, beside it */
} all_plans;

/* Each with room for the tensors that only others need.  one: room for all of them. */
static hp_status plan_each(step_planner *p, one_plan *one, all_plans *out) {
  int64_t n = p->work.n;
  uint64_t states = 0, most = 0;
  *out = (all_plans){.worst = -1};
  p->recomputes = false;
  for (int64_t i = 0; i < n; i++) {
    HP_TRY(plan_one(p, i, 0, &one[i]));
    if (one[i].stats.memory.state_bytes > states) states = one[i].stats.memory.state_bytes;
  }
  for (int64_t i = 0; i < n; i++) {
    uint64_t reserve = states - one[i].stats.memory.state_bytes;
    if (reserve) HP_TRY(plan_one(p, i, reserve, &one[i]));
    uint64_t work = one[i].stats.memory.work_bytes;
    if (states + work > out->memory.planned_bytes) out->memory.planned_bytes = states + work;
    if (!one[i].refused || (work <= most && out->worst >= 0)) continue;
    most = work;
    out->worst = i;
    out->reserve = reserve;
  }
  out->memory.stats = one[0].stats;
  return HP_OK;
}

static hp_status plan_all(step_planner *p, all_plans *out) {
  one_plan *one = mem_calloc((size_t)p->work.n, sizeof *one);
  HP_TRY_MEM(one);
  hp_status st = plan_each(p, one, out);
  mem_free(one);
  return st;
}

static void tell(const step_planner *p) {
  const micro_shape *s = &p->work.at[0].shape;
  step_graph_tell(p->m, &p->pieces[AS_ASKED].o, &(step_place){STEP_ALONE, s->B, s->T});
  if (p->recomputes) step_tell_remat();
}

/* What an evaluation takes is set by a key of its own: the compiler's message cannot know it. */
static hp_status refuse_eval(const planned_program *w, const hp_program_stats *s,
                             uint64_t reserve) {
  const hp_memory *m = &s->memory;
  HP_FAIL(
      HP_ERR_OOM,
      "memory limit %llu bytes is too small for the evaluation, of %lld x %lld tokens: params "
      "and optimizer state take %llu, work memory %llu; set memory_limit to %llu bytes or more; "
      "a smaller per_device_eval_batch_size takes less",
      (unsigned long long)m->limit_bytes, (long long)w->shape.B, (long long)w->shape.T,
      (unsigned long long)(m->state_bytes + reserve), (unsigned long long)m->work_bytes,
      (unsigned long long)(m->state_bytes + reserve + m->work_bytes));
}

/* Plans once more the program that needs most: it names the least that does. */
static hp_status refuse(step_planner *p, const all_plans *all) {
  const planned_program *w = &p->work.at[all->worst];
  hp_program_stats s = {0};
  hp_status st = plan_program(p, all->worst, all->reserve, &s);
  if (w->micros || st != HP_ERR_OOM || !s.memory.limit_bytes) return st;
  err_clear();
  return refuse_eval(w, &s, all->reserve);
}

hp_status step_memory_plan(step_planner *p, step_memory *out) {
  all_plans all;
  HP_TRY(plan_all(p, &all));
  if (all.worst >= 0) return refuse(p, &all);
  if (p->tell) tell(p);
  *out = all.memory;
  return HP_OK;
}

hp_status step_memory_explain(step_planner *p, const char *what, char **text) {
  hp_program_stats s;
  uint64_t reserve = p->pieces[AS_ASKED].o.compile.reserve_bytes;
  return plan_step(p, &p->work.at[0], reserve, &s, what, text);
}

/* --- limits ----------------------------------------------------------------------------------- */

static hp_status is_refused(step_planner *p, uint64_t limit, bool *out) {
  all_plans all;
  hp_device_set_memory_limit(p->d, limit);
  HP_TRY(plan_all(p, &all));
  *out = all.worst >= 0;
  return HP_OK;
}

/* Time for plans: none is begun that, as long as the longest so far, would end after it. */
typedef struct {
  double end_s, longest_s, begun_s;
} plan_clock;

static bool clock_begin(plan_clock *c) {
  c->begun_s = time_now_s();
  return c->begun_s + c->longest_s <= c->end_s;
}

static void clock_end(plan_clock *c) {
  double s = time_now_s() - c->begun_s;
  if (s > c->longest_s) c->longest_s = s;
}

/* out->enough is not refused; an order that keeps to a limit may do with less: one byte less is
 * tried first, and most often that is all.  A plan for the least of limits can be one that takes
 * more than the plan without any: then that is tried first. */
static hp_status find_least(step_planner *p, plan_clock *c, step_limits *out) {
  uint64_t least = 1, probe = out->enough - 1; /* refused, and to be tried */
  if (probe > out->resident) probe = out->resident;
  while (out->enough - least > 1) {
    bool refused;
    if (!clock_begin(c)) return HP_OK;
    HP_TRY(is_refused(p, probe, &refused));
    clock_end(c);
    if (refused) least = probe;
    else out->enough = probe;
    probe = least + (out->enough - least) / 2;
  }
  out->least = out->enough;
  return HP_OK;
}

static hp_status find_limits(step_planner *p, double seconds, step_limits *out) {
  /* plans that have to keep to a limit take about so many times as long as those without one */
  enum { LIMITED = 8 };
  plan_clock c = {.end_s = time_now_s() + seconds};
  all_plans all;
  clock_begin(&c);
  hp_device_set_memory_limit(p->d, 0);
  HP_TRY(plan_all(p, &all));
  out->resident = all.memory.planned_bytes;
  clock_end(&c);
  c.longest_s *= LIMITED;
  if (!clock_begin(&c)) return HP_OK;
  c.longest_s = 0;
  hp_device_set_memory_limit(p->d, 1);
  HP_TRY(plan_all(p, &all));
  out->enough = all.memory.planned_bytes;
  clock_end(&c);
  return find_least(p, &c, out);
}

hp_status step_memory_limits(step_planner *p, uint64_t limit, double seconds, step_limits *out) {
  *out = (step_limits){.resident = 0};
  hp_status st = find_limits(p, seconds, out);
  hp_device_set_memory_limit(p->d, limit);
  return st;
}
