#include "train/step_memory.h"

#include "base/status.h"
#include "base/thread.h"

#include <string.h>

step_places step_places_of(int64_t B, int64_t T, int64_t micros, int64_t rows) {
  step_places p = {.n = 0};
  for (int64_t i = 0; i < micros; i++) {
    if (i > 1 && i + 1 < micros) continue; /* as the one before */
    p.times[p.n] = i == 1 && micros > 2 ? micros - 2 : 1;
    p.at[p.n++] = (step_micro){.B = B, .T = T, .first = i == 0, .last = i + 1 == micros};
  }
  if (rows) p.at[p.n++] = (step_micro){.B = rows, .T = T, .scores = true};
  return p;
}

/* Tensors that outlive runs, of the whole step: one of its places knows all of them. */
static void take_states(const hp_memory *all, hp_memory *m) {
  m->tier[0].planned_bytes += all->state_bytes - m->state_bytes;
  m->planned_bytes += all->state_bytes - m->state_bytes;
  m->state_bytes = all->state_bytes;
  memcpy(m->state, all->state, sizeof m->state);
  memcpy(m->model, all->model, sizeof m->model);
}

static hp_status plan_one(lm *m, const step_options *o, const step_micro *b, uint64_t reserve,
                          hp_device *d, bool tell, hp_program_stats *out, bool *refused) {
  step_options with = *o;
  with.quiet = !tell;
  with.compile.reserve_bytes = reserve;
  hp_status st = stepper_plan(m, &with, b, d, out, NULL, NULL);
  *refused = st == HP_ERR_OOM;
  if (*refused) err_clear();
  return *refused ? HP_OK : st;
}

/* The places planned one by one, each with room for the tensors that only others need.  *refused:
 * the limit is too small for one of them; the figures are of what would do then. */
static hp_status plan_places(lm *m, const step_options *o, const step_places *b, hp_device *d,
                             bool tell, step_memory *out, bool *refused) {
  hp_program_stats s[STEP_PLACES] = {0};
  step_memory all = {0};
  uint64_t states = 0;
  int knows = 0;
  bool no;
  *refused = false;
  for (int i = 0; i < b->n; i++) {
    HP_TRY(plan_one(m, o, &b->at[i], 0, d, tell && b->n == 1, &s[i], &no));
    if (s[i].memory.state_bytes >= states) states = s[knows = i].memory.state_bytes;
    *refused |= b->n == 1 && no;
  }
  for (int i = 0; i < b->n && b->n > 1; i++) {
    uint64_t others = states - s[i].memory.state_bytes;
    HP_TRY(plan_one(m, o, &b->at[i], others, d, tell && i == 0, &s[i], &no));
    *refused |= no;
  }
  for (int i = 0; i < b->n; i++) {
    uint64_t work = s[i].memory.work_bytes;
    if (states + work > all.planned_bytes) all.planned_bytes = states + work;
    if (b->at[i].scores) continue; /* what is told is the step's */
    if (work >= s[all.fullest].memory.work_bytes) all.fullest = i;
    all.step_s += s[i].predicted_s * (double)b->times[i];
    all.exposed_copy_s += s[i].exposed_copy_s * (double)b->times[i];
  }
  all.stats = s[all.fullest];
  take_states(&s[knows].memory, &all.stats.memory);
  *out = all;
  return HP_OK;
}

hp_status step_memory_plan(lm *m, const step_options *o, const step_places *b, hp_device *d,
                           step_memory *out) {
  bool refused;
  HP_TRY(plan_places(m, o, b, d, true, out, &refused));
  /* names the least that does, for all places */
  return refused ? stepper_check(m, o, b->at, b->n, d) : HP_OK;
}

/* --- limits ----------------------------------------------------------------------------------- */

static hp_status is_refused(lm *m, const step_options *o, const step_places *b, hp_device *d,
                            uint64_t limit, bool *out) {
  hp_device_set_memory_limit(d, limit);
  hp_status st = stepper_check(m, o, b->at, b->n, d);
  *out = st == HP_ERR_OOM;
  if (*out) err_clear();
  return *out ? HP_OK : st;
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
static hp_status find_least(lm *m, const step_options *o, const step_places *b, hp_device *d,
                            plan_clock *c, step_limits *out) {
  uint64_t least = 1, probe = out->enough - 1; /* refused, and to be tried */
  if (probe > out->resident) probe = out->resident;
  while (out->enough - least > 1) {
    bool refused;
    if (!clock_begin(c)) return HP_OK;
    HP_TRY(is_refused(m, o, b, d, probe, &refused));
    clock_end(c);
    if (refused) least = probe;
    else out->enough = probe;
    probe = least + (out->enough - least) / 2;
  }
  out->least = out->enough;
  return HP_OK;
}

static hp_status find_limits(lm *m, const step_options *o, const step_places *b, hp_device *d,
                             double seconds, step_limits *out) {
  /* plans that have to keep to a limit take about so many times as long as those without one */
  enum { LIMITED = 8 };
  plan_clock c = {.end_s = time_now_s() + seconds};
  step_memory all;
  bool refused;
  clock_begin(&c);
  hp_device_set_memory_limit(d, 0);
  HP_TRY(plan_places(m, o, b, d, false, &all, &refused));
  out->resident = all.planned_bytes;
  clock_end(&c);
  c.longest_s *= LIMITED;
  if (!clock_begin(&c)) return HP_OK;
  c.longest_s = 0;
  hp_device_set_memory_limit(d, 1);
  HP_TRY(plan_places(m, o, b, d, false, &all, &refused));
  out->enough = all.planned_bytes;
  clock_end(&c);
  return find_least(m, o, b, d, &c, out);
}

hp_status step_memory_limits(lm *m, const step_options *o, const step_places *b, hp_device *d,
                             uint64_t limit, double seconds, step_limits *out) {
  *out = (step_limits){.resident = 0};
  hp_status st = find_limits(m, o, b, d, seconds, out);
  hp_device_set_memory_limit(d, limit);
  return st;
}
