#include "train/step_memory.h"

#include "base/log.h"
#include "base/status.h"
#include "base/str.h"
#include "base/thread.h"
#include "base/units.h"
#include "train/losses.h"
#include "train/memory_limit.h"
#include "train/step_choice.h"

struct step_planner {
  lm *m;
  hp_device *d;
  step_ways ways;
  step_work work;
  const char *dump_dir; /* for what is explained; NULL: none */
  bool tell;
  const char *what; /* that the next plan of the longest step is asked for; NULL: nothing */
};

static const step_options *options_of(const step_planner *p) {
  return &p->ways.way[STEP_AS_ASKED].o;
}

hp_status step_planner_create(lm *m, const step_options *o, const step_work *w, hp_device *d,
                              bool tell, step_planner **out) {
  step_planner *p = mem_calloc(1, sizeof *p);
  HP_TRY_MEM(p);
  *p = (step_planner){.m = m, .d = d, .work = *w, .dump_dir = o->compile.dump_dir, .tell = tell};
  step_ways_init(&p->ways, &(step_pieces){.m = m, .d = d, .o = *o, .plan = true});
  for (int i = 0; i < STEP_WAYS; i++) p->ways.way[i].o.compile.dump_dir = NULL;
  *out = p;
  return HP_OK;
}

void step_planner_free(step_planner *p) {
  if (p) step_ways_free(&p->ways);
  mem_free(p);
}

planned_subject step_planner_subject(const step_planner *p) {
  return (planned_subject){p->m, p->d, options_of(p), p->work};
}

void step_planner_drop_pieces(step_planner *p) {
  for (int i = 0; i < STEP_WAYS; i++) step_pieces_free(&p->ways.way[i]);
}

/* --- plans of one program --------------------------------------------------------------------- */

/* A micro-batch after the first needs most: the sums of gradients are there. */
static micro_shape *make_shapes(const step_planner *p, const planned_program *w) {
  micro_shape *shape = mem_calloc((size_t)w->micros, sizeof *shape);
  if (!shape) return NULL;
  for (int64_t i = 0; i < w->micros; i++) shape[i] = p->work.at[0].shape;
  shape[w->micros - 1] = w->shape;
  return shape;
}

/* The plan of a program, and of a step the way that is taken. */
typedef struct {
  step_plan plan;
  step_choice choice;
} one_plan;

/* With room for `reserve` bytes of other programs' params. */
static hp_status plan_step(step_planner *p, const planned_program *w, uint64_t reserve,
                           one_plan *out) {
  micro_shape *shape = make_shapes(p, w);
  HP_TRY_MEM(shape);
  step_ways_reserve(&p->ways, reserve);
  hp_status st = step_choose(&p->ways, shape, w->micros, &out->choice, &out->plan);
  for (int i = 0; !st && i < STEP_WAYS; i++)
    if (step_choice_has(&out->choice, i)) out->plan.stats.compile_s += p->ways.way[i].compile_s;
  mem_free(shape);
  return st;
}

/* The same by a choice that is known, as text if `what` is not NULL.  A limit that is too small is
 * a failure, which names the least that does. */
static hp_status plan_again(step_planner *p, const planned_program *w, const step_choice *c,
                            const char *what, char **text) {
  micro_shape *shape = make_shapes(p, w);
  step_link l;
  hp_program_stats s;
  HP_TRY_MEM(shape);
  step_spec spec = step_spec_of(shape, w->micros, c);
  hp_status st = step_ways_link(&p->ways, &spec, c, &l);
  if (!st) st = hp_link_plan(l.piece, l.action, l.n, l.rows, &s, what, text);
  step_link_free(&l);
  mem_free(shape);
  return st;
}

/* The plan of the longest step without any limit. */
static hp_status plan_unlimited(step_planner *p, const step_choice *c, step_plan *out,
                                const char *what, char **text) {
  const planned_program *w = &p->work.at[0];
  uint64_t limit = hp_device_memory_limit(p->d);
  micro_shape *shape = make_shapes(p, w);
  HP_TRY_MEM(shape);
  hp_device_set_memory_limit(p->d, 0);
  hp_status st = step_plan_make(&p->ways, shape, w->micros, c, out, what, text);
  hp_device_set_memory_limit(p->d, limit);
  mem_free(shape);
  return st;
}

hp_status step_memory_explain(step_planner *p, bool remat, const char *what, char **text) {
  const step_choice c = {.way = remat ? STEP_WITH_REMAT : STEP_AS_ASKED};
  step_plan plan;
  return plan_unlimited(p, &c, &plan, what, text);
}

static hp_status plan_eval(const step_planner *p, const micro_shape *s, uint64_t reserve,
                           hp_program_stats *out) {
  model_build b;
  hp_compile_options o = {.reserve_bytes = reserve};
  lm_losses *of = losses_of_evaluation(options_of(p));
  hp_status st = lm_score_begin(p->m, s->B, s->T, of, &b);
  if (!st) st = b.failed ? HP_ERR_OOM : hp_graph_status(b.g);
  if (!st) st = hp_plan(b.g, p->d, &o, out);
  lm_graph_end(&b);
  return st;
}

static hp_status plan_one(step_planner *p, int64_t i, uint64_t reserve, one_plan *out) {
  const planned_program *w = &p->work.at[i];
  *out = (one_plan){.choice = {.way = STEP_AS_ASKED}};
  p->ways.what = i ? NULL : p->what;
  if (w->micros) return plan_step(p, w, reserve, out);
  hp_status st = plan_eval(p, &w->shape, reserve, &out->plan.stats);
  out->plan.refused = st == HP_ERR_OOM && out->plan.stats.memory.planned_bytes;
  if (out->plan.refused) err_clear();
  return out->plan.refused ? HP_OK : st;
}

/* --- plans of all of them --------------------------------------------------------------------- */

typedef struct {
  step_memory memory;
  step_choice choice; /* of the longest step */
  int64_t worst;      /* the program that needs most of those that are refused; -1: none is */
  uint64_t reserve;   /* for params of the others, besides it */
} all_plans;

static uint64_t states_of(const one_plan *one) { return one->plan.stats.memory.state_bytes; }

/* Bytes of named tensors that stay on the device, whatever program runs.  Where one program keeps
 * them elsewhere, none is loaded in another way. */
static uint64_t count_states(const one_plan *one, int64_t n) {
  uint64_t most = 0;
  bool any = false;
  for (int64_t i = 0; i < n; i++) any |= step_plan_offloads(&one[i].plan);
  for (int64_t i = 0; i < n; i++)
    if ((!any || step_plan_offloads(&one[i].plan)) && states_of(&one[i]) > most)
      most = states_of(&one[i]);
  return most;
}

/* Each with room for the tensors that only others need.  one: room for all of them. */
static hp_status plan_each(step_planner *p, one_plan *one, all_plans *out) {
  int64_t n = p->work.n;
  uint64_t most = 0;
  *out = (all_plans){.worst = -1};
  for (int64_t i = 0; i < n; i++) HP_TRY(plan_one(p, i, 0, &one[i]));
  uint64_t states = count_states(one, n);
  for (int64_t i = 0; i < n; i++) {
    uint64_t own = states_of(&one[i]), reserve = states > own ? states - own : 0;
    if (reserve) HP_TRY(plan_one(p, i, reserve, &one[i]));
    const step_plan *plan = &one[i].plan;
    uint64_t all = (states > own ? states : own) + plan->stats.memory.work_bytes;
    if (all > out->memory.planned_bytes) {
      out->memory.planned_bytes = all;
      out->memory.largest = i;
      out->memory.reserve = reserve;
    }
    out->memory.moves |= step_plan_offloads(plan) || one[i].choice.way != STEP_AS_ASKED;
    if (!plan->refused || (all <= most && out->worst >= 0)) continue;
    most = all;
    out->worst = i;
    out->reserve = reserve;
  }
  out->memory.stats = one[0].plan.stats;
  out->choice = one[0].choice;
  return HP_OK;
}

static hp_status plan_all(step_planner *p, all_plans *out) {
  one_plan *one = mem_calloc((size_t)p->work.n, sizeof *one);
  HP_TRY_MEM(one);
  hp_status st = plan_each(p, one, out);
  mem_free(one);
  return st;
}

/* --- the decision, for people ----------------------------------------------------------------- */

/* " (parameters 1.5 GiB, optimizer 3.0 GiB)": named tensors that live on a tier. */
static void add_classes(const uint64_t state[HP_MEMORY_CLASSES], str *out) {
  const char *before = " (";
  for (int k = 0; k < HP_MEMORY_CLASSES; k++) {
    if (!state[k]) continue;
    str_printf(out, "%s%s ", before, hp_memory_class(k));
    units_add_bytes(out, (double)state[k]);
    before = ", ";
  }
  if (*before == ',') str_add(out, ")");
}

/* Of the stages that recompute. */
static void add_stages(const step_choice *c, str *out) {
  bool any = false;
  str_add(out, "activations are recomputed on stages ");
  for (int s = 0; s < STEP_CHOSEN_STAGES; s++) {
    if (step_choice_remats(c, s)) str_printf(out, "%s%d", any ? "," : "", s);
    any |= step_choice_remats(c, s);
  }
}

static void add_blocks(const step_choice *c, int stages, str *out) {
  str_add(out, "activations of the first ");
  if (c->blocks == 1) str_add(out, "layer");
  else str_printf(out, "%d layers", c->blocks);
  str_printf(out, "%s are recomputed", stages > 1 ? " of each stage" : "");
}

static hp_status tell_choice(const all_plans *all, const step_plan *whole, int stages) {
  const hp_program_stats *s = &all->memory.stats;
  str text = {0};
  if (all->choice.way == STEP_WITH_REMAT) str_add(&text, "activations are recomputed");
  if (all->choice.way == STEP_WITH_SOME) add_blocks(&all->choice, stages, &text);
  if (all->choice.way == STEP_BY_STAGE) add_stages(&all->choice, &text);
  if (all->choice.leaves)
    str_printf(&text, "%sparams are updated just before their next use", text.len ? ", " : "");
  if (s->host_updates)
    str_printf(&text, "%sthe host updates what is in its memory", text.len ? ", " : "");
  for (int t = 1; t < HP_TIERS; t++) {
    if (!s->memory.tier[t].moved_bytes) continue;
    if (text.len) str_add(&text, ", ");
    units_add_bytes(&text, (double)s->memory.tier[t].planned_bytes);
    str_printf(&text, " on %s", s->memory.tier[t].name);
    add_classes(s->memory.tier[t].state, &text);
  }
  str_add(&text, ": a step takes ");
  units_add_seconds(&text, s->predicted_s);
  str_add(&text, " (predicted), ");
  units_add_seconds(&text, whole->stats.predicted_s);
  str_add(&text, " without the limit");
  hp_status st = str_status(&text);
  if (!st) log_info("memory_limit: %s", text.at);
  str_free(&text);
  return st;
}

static void tell_host_update(const step_planner *p, const all_plans *all) {
  bool asked = options_of(p)->compile.host_update == HP_HOST_UPDATE_ALWAYS;
  if (asked && !all->memory.stats.host_updates)
    log_warn(
        "host_update: always has no effect here: updates of what a memory limit keeps in host "
        "memory run there, if they are loops over elements and no device gathers their results");
}

/* Tells what the limit makes of the longest step, next to the plan without it. */
static hp_status tell(step_planner *p, const all_plans *all) {
  const planned_program *w = &p->work.at[0];
  uint64_t limit = all->memory.stats.memory.limit_bytes;
  step_plan whole;
  if (p->tell)
    step_graph_tell(p->m, options_of(p),
                    &(step_place){.part = STEP_ALONE, .B = w->shape.B, .T = w->shape.T});
  if (w->micros) tell_host_update(p, all);
  if (!limit || !w->micros) return HP_OK;
  if (all->choice.way == STEP_AS_ASKED && !all->memory.stats.memory.tier[1].moved_bytes &&
      !all->memory.stats.memory.tier[2].moved_bytes)
    return HP_OK;
  step_choice asked = {.way = STEP_AS_ASKED};
  hp_status st = plan_unlimited(p, &asked, &whole, NULL, NULL);
  return st ? st : tell_choice(all, &whole, hp_device_stages(p->d));
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
  one_plan one;
  hp_program_stats s = {0};
  if (w->micros) {
    HP_TRY(plan_one(p, all->worst, all->reserve, &one));
    return plan_again(p, w, &one.choice, NULL, NULL);
  }
  hp_status st = plan_eval(p, &w->shape, all->reserve, &s);
  if (st != HP_ERR_OOM || !s.memory.limit_bytes) return st;
  err_clear();
  return refuse_eval(w, &s, all->reserve);
}

/* The text of each stage of the plan that is chosen, in the folder, and the plan as text. */
static hp_status dump_plan(step_planner *p, const step_choice *c, const char *what, char **text) {
  step_pieces *way = &p->ways.way[c->way == STEP_BY_STAGE ? STEP_AS_ASKED : c->way];
  hp_compile_options plain = way->o.compile, dumps = plain;
  dumps.dump_dir = p->dump_dir;
  step_pieces_set_options(way, &dumps);
  hp_status st = plan_again(p, &p->work.at[0], c, what, text);
  step_pieces_set_options(way, &plain);
  return st;
}

hp_status step_memory_plan(step_planner *p, step_memory *out, const char *what, char **text) {
  all_plans all;
  p->what = p->dump_dir ? NULL : what;
  hp_status st = plan_all(p, &all);
  p->what = NULL;
  HP_TRY(st);
  if (all.worst >= 0) return refuse(p, &all);
  HP_TRY(tell(p, &all));
  if (what && p->dump_dir) HP_TRY(dump_plan(p, &all.choice, what, text));
  if (what && !p->dump_dir) *text = step_ways_take_text(&p->ways);
  *out = all.memory;
  return HP_OK;
}

/* --- limits ----------------------------------------------------------------------------------- */

static hp_status is_refused(step_planner *p, uint64_t limit, bool *out) {
  all_plans all;
  hp_device_set_memory_limit(p->d, limit);
  HP_TRY(plan_all(p, &all));
  *out = all.worst >= 0;
  return HP_OK;
}

/* Processor time for plans, which a busy machine does not shorten: no plan is begun that, as long
 * as the longest so far, would end after it. */
typedef struct {
  double end_s, longest_s, begun_s;
} plan_clock;

static bool clock_begin(plan_clock *c) {
  c->begun_s = time_processor_s();
  return c->begun_s + c->longest_s <= c->end_s;
}

static void clock_end(plan_clock *c) {
  double s = time_processor_s() - c->begun_s;
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

static hp_status find_resident(step_planner *p, uint64_t *out) {
  all_plans all;
  hp_device_set_memory_limit(p->d, 0);
  HP_TRY(plan_all(p, &all));
  *out = all.memory.planned_bytes;
  return HP_OK;
}

static hp_status find_limits(step_planner *p, double seconds, step_limits *out) {
  /* a refusal, which plans under many caps, takes about so many times as long as a plan without a
   * limit; the limits that are tried behind it find most of its plans kept */
  enum { LIMITED = 40 };
  plan_clock c = {.end_s = time_processor_s() + seconds};
  all_plans all;
  clock_begin(&c);
  HP_TRY(find_resident(p, &out->resident));
  clock_end(&c);
  c.longest_s *= LIMITED;
  if (!clock_begin(&c)) return HP_OK;
  hp_device_set_memory_limit(p->d, 1);
  HP_TRY(plan_all(p, &all));
  out->enough = all.memory.planned_bytes;
  c.longest_s = 0;
  return find_least(p, &c, out);
}

hp_status step_memory_resident(step_planner *p, uint64_t *out) {
  step_update_when update = options_of(p)->update;
  if (update == UPDATE_AUTO) step_ways_set_update(&p->ways, UPDATE_AT_END);
  hp_status st = find_resident(p, out);
  step_ways_set_update(&p->ways, update);
  return st;
}

hp_status step_memory_share(step_planner *p, uint64_t *limit) {
  uint64_t resident;
  if (!memory_limit_is_share(*limit)) return HP_OK;
  HP_TRY(step_memory_resident(p, &resident));
  *limit = memory_limit_resolve(*limit, resident);
  hp_device_set_memory_limit(p->d, *limit);
  return HP_OK;
}

hp_status step_memory_limits(step_planner *p, uint64_t limit, double seconds, step_limits *out) {
  step_update_when update = options_of(p)->update;
  *out = (step_limits){.resident = 0};
  if (update == UPDATE_AUTO) step_ways_set_update(&p->ways, UPDATE_AT_END); /* as little memory */
  hp_status st = find_limits(p, seconds, out);
  step_ways_set_update(&p->ways, update);
  hp_device_set_memory_limit(p->d, limit);
  return st;
}
