#include "train/step.h"

#include "base/log.h"
#include "base/philox.h"
#include "base/str.h"
#include "train/step_choice.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
  KEPT = 8,        /* programs, and of more than one: */
  INSTS = 1 << 18, /* instructions of all of them; each takes about 0.5 KB */
  MICRO_IOS = 14,  /* most inputs and outputs of a micro-batch, */
  UPDATE_IOS = 12, /* and of the updates */
  IO_NAME = 40
};
/* The first inputs and outputs of a micro-batch: those of the caller. */
enum { IDS, LABELS, POSITIONS, MORE };

/* The numbers of a micro-batch that programs read and write. */
typedef struct {
  float weight, loss;
  int32_t width;
  int64_t seed;
  const int32_t *positions; /* [B,T] */
  int32_t *lengths;         /* [B] */
} micro_numbers;

/* And those of an update. */
typedef struct {
  float number[OPTIMIZER_NUMBERS], norm, clip;
  float ahead_clip, factor; /* what is expected of clipping, and what it was */
} update_numbers;

/* The program of a step of n micro-batches of these shapes. */
typedef struct {
  int64_t n;          /* 0: applies what is left, and no more */
  micro_shape *shape; /* [n] */
  step_choice choice;
  bool applies;      /* the update that the step before has left */
  int64_t following; /* micro-batches of the next step that it takes: n or 0 */
  hp_program *p;
  int insts;
  uint64_t used;          /* when it was last */
  micro_numbers *micro;   /* [n + following] */
  int32_t *counts;        /* what positions and lengths point to */
  hp_io *io;              /* those of a micro-batch one after the other, then those of the update */
  int ios, each;          /* their number, and that of a micro-batch */
  char (*names)[IO_NAME]; /* of io */
} step_program;

struct stepper {
  lm *m;
  step_ways ways;
  step_program kept[KEPT];
  int n_kept;
  const step_program *prepared; /* has the choice for programs of its shapes; NULL: none does */
  uint64_t clock;
  const hp_program *ran;
  uint64_t work_bytes;
  double link_s;
  bool has_left;         /* the last one has left its update, */
  update_numbers left;   /* which is this */
  update_numbers update; /* of the step at hand */
  float *grad_sq;        /* [params] sums of squares of the last step */
  int64_t ahead_t;       /* the last run has run forwards of this update's step; 0: of none */
  bool clipped;          /* by the last update */
  bool told;             /* that forwards run ahead */
};

hp_status stepper_create(lm *m, const step_options *o, stepper **out) {
  stepper *s = mem_calloc(1, sizeof *s);
  HP_TRY_MEM(s);
  *s = (stepper){.m = m, .grad_sq = mem_calloc(m->trained, sizeof *s->grad_sq)};
  step_ways_init(&s->ways, &(step_pieces){.m = m, .d = m->d, .o = *o});
  if (!s->grad_sq) {
    stepper_free(s);
    return HP_ERR_OOM;
  }
  *out = s;
  return HP_OK;
}

static void free_program(step_program *p) {
  hp_program_free(p->p);
  mem_free(p->shape);
  mem_free(p->micro);
  mem_free(p->counts);
  mem_free(p->io);
  mem_free(p->names);
}

void stepper_free(stepper *s) {
  if (!s) return;
  for (int i = 0; i < s->n_kept; i++) free_program(&s->kept[i]);
  step_ways_free(&s->ways);
  mem_free(s->grad_sq);
  mem_free(s);
}

const hp_program *stepper_program(const stepper *s) { return s->ran; }
uint64_t stepper_work_bytes(const stepper *s) { return s->work_bytes; }
double stepper_compile_seconds(const stepper *s) {
  double sum = s->link_s;
  for (int i = 0; i < STEP_WAYS; i++) sum += s->ways.way[i].compile_s;
  return sum;
}

static const step_options *options_of(const stepper *s) { return &s->ways.way[STEP_AS_ASKED].o; }

/* --- programs --------------------------------------------------------------------------------- */

static hp_status link_program(step_ways *w, step_program *p) {
  step_spec spec = {p->shape, p->n, p->applies, p->n && p->choice.leaves};
  step_link l;
  hp_status st = step_ways_link(w, &spec, &p->choice, &l);
  if (!st) st = hp_link(l.piece, l.action, l.n, l.rows, &p->p);
  step_link_free(&l);
  return st;
}

static bool same_shapes(const step_program *a, const step_program *b) {
  return a->n == b->n && !memcmp(a->shape, b->shape, (size_t)a->n * sizeof *a->shape);
}

/* The way that all processes take: predictions may differ between them. */
static hp_status choose_way(stepper *s, step_program *p) {
  const step_options *o = options_of(s);
  step_plan plan;
  if (s->prepared && same_shapes(s->prepared, p)) {
    p->choice = s->prepared->choice;
    return HP_OK;
  }
  p->choice = (step_choice){.way = STEP_AS_ASKED, .leaves = o->update == UPDATE_NEXT_STEP};
  for (int i = 0; i < s->n_kept; i++)
    if (same_shapes(&s->kept[i], p)) {
      p->choice = s->kept[i].choice;
      return HP_OK;
    }
  bool one = (!o->remat_auto || o->compile.remat) && o->update != UPDATE_AUTO;
  if (!p->n || !o->limited || one) return HP_OK;
  HP_TRY(step_choose(&s->ways, p->shape, p->n, &p->choice, &plan));
  s->link_s += plan.stats.compile_s;
  return hp_world_broadcast(&p->choice, sizeof p->choice);
}

static hp_status link_under_limit(stepper *s, step_program *p) {
  HP_TRY(choose_way(s, p));
  step_ways_set_update(&s->ways, p->choice.leaves ? UPDATE_NEXT_STEP : UPDATE_AT_END);
  return link_program(&s->ways, p);
}

/* Positions and lengths: micro-batches of one length share the positions of the largest. */
static hp_status make_counts(step_program *p) {
  size_t total = 0, at = 0;
  for (int64_t i = 0; i < p->n; i++) total += (size_t)(p->shape[i].B * (p->shape[i].T + 2));
  p->counts = mem_calloc(total, sizeof *p->counts);
  HP_TRY_MEM(p->counts);
  for (int64_t i = 0; i < p->n; i++) {
    int64_t B = p->shape[i].B, T = p->shape[i].T;
    p->micro[i].lengths = p->counts + at;
    at += (size_t)B;
    int32_t *positions = p->counts + at;
    p->micro[i].positions = positions;
    if (i && p->shape[i - 1].T == T && p->shape[i - 1].B >= B) {
      p->micro[i].positions = p->micro[i - 1].positions;
      continue;
    }
    for (int64_t k = 0; k < B * T; k++) positions[k] = (int32_t)(k % T);
    at += (size_t)(B * T);
  }
  for (int64_t i = 0; i < p->following; i++) {
    p->micro[p->n + i].positions = p->micro[i].positions;
    p->micro[p->n + i].lengths = p->counts + at;
    at += (size_t)p->shape[i].B;
  }
  return HP_OK;
}

/* The i-th micro-batch, those of the next step behind those of this one. */
static micro_shape shape_of(const step_program *p, int64_t i) { return p->shape[i % p->n]; }

/* NAME@MICRO of the program, NAME where it has one micro-batch. */
static void add_io(step_program *p, const char *name, int64_t micro, const void *data,
                   size_t bytes) {
  snprintf(p->names[p->ios], IO_NAME, p->n > 1 ? "%.16s@%lld" : "%.16s", name, (long long)micro);
  p->io[p->ios] = (hp_io){p->names[p->ios], (void *)(uintptr_t)data, bytes};
  p->ios++;
}

/* The caller's data that some runs have: names, places, sizes, in one order. */
static void add_more_ios(const stepper *s, step_program *p, int64_t i) {
  const preference *of = &options_of(s)->preference;
  const micro_shape shape = shape_of(p, i);
  size_t rows = (size_t)shape.B, samples = rows / 2 * sizeof(float);
  if (s->m->spans) add_io(p, "span", i, NULL, rows * (size_t)shape.T * 2 * sizeof(int32_t));
  if (!of->kind) return;
  add_io(p, "logps", i, NULL, rows * sizeof(float));
  if (of->kind == PREFER_REWARD) return;
  add_io(p, "logits", i, NULL, of->kind == PREFER_JUDGED ? samples : rows * sizeof(float));
  if (preference_has_reference(of)) add_io(p, "ref", i, NULL, rows * sizeof(float));
  if (preference_weighs_length(of)) add_io(p, "beyond", i, NULL, rows * sizeof(int32_t));
  if (of->kind != PREFER_JUDGED) return;
  add_io(p, "sign", i, NULL, samples);
  add_io(p, "gain", i, NULL, samples);
  add_io(p, "own", i, NULL, samples);
}

static void set_more_ios(const stepper *s, hp_io *io, const step_micro *b) {
  const preference *of = &options_of(s)->preference;
  if (s->m->spans) (io++)->data = (void *)(uintptr_t)b->span;
  if (!of->kind) return;
  (io++)->data = b->logps;
  if (of->kind == PREFER_REWARD) return;
  (io++)->data = b->logits;
  if (preference_has_reference(of)) (io++)->data = (void *)(uintptr_t)b->ref;
  if (preference_weighs_length(of)) (io++)->data = (void *)(uintptr_t)b->beyond;
  if (of->kind != PREFER_JUDGED) return;
  (io++)->data = (void *)(uintptr_t)b->sign;
  (io++)->data = (void *)(uintptr_t)b->gain;
  io->data = (void *)(uintptr_t)b->own;
}

static void add_micro_ios(const stepper *s, step_program *p, int64_t i) {
  const micro_numbers *x = &p->micro[i];
  const micro_shape shape = shape_of(p, i);
  size_t rows = (size_t)shape.B, bytes = rows * (size_t)shape.T * sizeof(int32_t);
  add_io(p, "ids", i, NULL, bytes);
  add_io(p, "labels", i, NULL, bytes);
  add_io(p, "positions", i, x->positions, bytes);
  add_more_ios(s, p, i);
  add_io(p, "weight", i, &x->weight, sizeof x->weight);
  add_io(p, "loss", i, &x->loss, sizeof x->loss);
  if (step_draws(s->m, options_of(s))) add_io(p, "dropout_seed", i, &x->seed, sizeof x->seed);
  if (step_balances(s->m, options_of(s)) || options_of(s)->preference.kind == PREFER_REWARD)
    add_io(p, "lengths", i, x->lengths, rows * sizeof *x->lengths);
  if (options_of(s)->preference.kind && options_of(s)->preference.kind != PREFER_REWARD)
    add_io(p, "width", i, &x->width, sizeof x->width);
}

static void add_update_inputs(const stepper *s, step_program *p, int64_t micro,
                              const update_numbers *u) {
  const optimizer *by = &optimizers[options_of(s)->optimizer.kind];
  for (int k = 0; k < OPTIMIZER_NUMBERS && by->number[k]; k++)
    add_io(p, by->number[k], micro, &u->number[k], sizeof u->number[k]);
}

static void list_ios(const stepper *s, step_program *p) {
  const update_numbers *u = &s->update;
  int64_t last = p->n - 1;
  for (int64_t i = 0; i < p->n + p->following; i++) add_micro_ios(s, p, i);
  if (p->n) {
    p->each = p->ios / (int)(p->n + p->following);
    add_io(p, "grad_norm", last, &u->norm, sizeof u->norm);
    add_io(p, "grad_sq", last, s->grad_sq, s->m->trained * sizeof *s->grad_sq);
    if (p->choice.leaves) add_io(p, "next_clip", last, &u->clip, sizeof u->clip);
    else add_update_inputs(s, p, last, u);
    if (p->following) add_io(p, "ahead_clip", last, &u->ahead_clip, sizeof u->ahead_clip);
    if (p->following) add_io(p, "clip_factor", last, &u->factor, sizeof u->factor);
  }
  if (!p->applies) return;
  add_io(p, "clip", 0, &s->left.clip, sizeof s->left.clip);
  add_update_inputs(s, p, 0, &s->left);
}

static void tell_ahead(stepper *s, int micros) {
  if (!micros || s->told) return;
  log_info("post-validation: forwards of %d micro-batch%s of the next step run before the update, "
           "as long as it clips nothing (hyper explain CONFIG pipeline)",
           micros, micros > 1 ? "es" : "");
  s->told = true;
}

static hp_status make_program(stepper *s, const step_micro *b, int64_t n, bool applies,
                              step_program *out) {
  const int64_t following = step_pieces_look_ahead(&s->ways.way[STEP_AS_ASKED], n) ? n : 0;
  size_t micros = (size_t)(n + following), ios = micros * MICRO_IOS + UPDATE_IOS;
  hp_program_stats stats;
  *out = (step_program){.n = n,
                        .applies = applies,
                        .following = following,
                        .shape = mem_calloc(micros, sizeof *out->shape),
                        .micro = mem_calloc(micros, sizeof *out->micro),
                        .io = mem_calloc(ios, sizeof *out->io),
                        .names = mem_calloc(ios, sizeof *out->names)};
  if (!out->shape || !out->micro || !out->io || !out->names) return HP_ERR_OOM;
  for (int64_t i = 0; i < n; i++) out->shape[i] = (micro_shape){b[i].B, b[i].T};
  HP_TRY(make_counts(out));
  HP_TRY(link_under_limit(s, out));
  list_ios(s, out);
  HP_TRY(hp_program_stats_get(out->p, &stats));
  out->insts = stats.instructions;
  if (n) step_ways_linked(&s->ways, &out->choice, n, &stats);
  s->link_s += stats.compile_s;
  tell_ahead(s, stats.ahead);
  if (stats.memory.work_bytes > s->work_bytes) s->work_bytes = stats.memory.work_bytes;
  return HP_OK;
}

static bool fits(const step_program *p, const step_micro *b, int64_t n, bool applies) {
  if (p->n != n || p->applies != applies) return false;
  for (int64_t i = 0; i < n; i++)
    if (p->shape[i].B != b[i].B || p->shape[i].T != b[i].T) return false;
  return true;
}

/* Where a program of so many instructions is kept: those that were not used for longest go. */
static step_program *make_room(stepper *s, int insts) {
  for (;;) {
    int64_t all = insts;
    int oldest = 0;
    for (int i = 0; i < s->n_kept; i++) {
      all += s->kept[i].insts;
      if (s->kept[i].used < s->kept[oldest].used) oldest = i;
    }
    if (!s->n_kept || (s->n_kept < KEPT && all <= INSTS)) return &s->kept[s->n_kept++];
    if (s->kept[oldest].p == s->ran) s->ran = NULL;
    free_program(&s->kept[oldest]);
    s->kept[oldest] = s->kept[--s->n_kept];
  }
}

static hp_status find_program(stepper *s, const step_micro *b, int64_t n, bool applies,
                              step_program **out) {
  for (int i = 0; i < s->n_kept; i++)
    if (fits(&s->kept[i], b, n, applies)) {
      *out = &s->kept[i];
      s->kept[i].used = ++s->clock;
      return HP_OK;
    }
  step_program p;
  hp_status st = make_program(s, b, n, applies, &p);
  if (st) {
    free_program(&p);
    return st;
  }
  p.used = ++s->clock;
  *out = make_room(s, p.insts);
  **out = p;
  return HP_OK;
}

static hp_status find_programs(stepper *s, const step_micro *b, int64_t n, bool leaves) {
  step_program *p;
  if (leaves) HP_TRY(find_program(s, b, n, true, &p));
  if (leaves) HP_TRY(find_program(s, NULL, 0, true, &p));
  return find_program(s, b, n, false, &p);
}

/* The step that is planned under a memory limit is one between others.  It is loaded first, so that
 * tensors are on the tiers that its plan needs; the first step and the last update have room for
 * more of them on the device, and take them from where they are. */
hp_status stepper_prepare(stepper *s, const step_micro *b, int64_t n) {
  step_program between = {.n = n, .shape = mem_calloc((size_t)n, sizeof *between.shape)};
  HP_TRY_MEM(between.shape);
  for (int64_t i = 0; i < n; i++) between.shape[i] = (micro_shape){b[i].B, b[i].T};
  hp_status st = choose_way(s, &between);
  s->prepared = &between;
  if (!st) st = find_programs(s, b, n, between.choice.leaves);
  s->prepared = NULL;
  free_program(&between);
  return st;
}

/* --- running ---------------------------------------------------------------------------------- */

/* Of the random numbers of a micro-batch: the same whenever it is run, another for every one. */
static int64_t random_seed(const stepper *s, int64_t number, const step_update *u) {
  philox_block x = philox_get(options_of(s)->seed, (uint64_t)u->t, (uint64_t)number);
  return (int64_t)((uint64_t)x.at[0] << 32 | x.at[1]);
}

static hp_status check_finite(const stepper *s, const step_program *p, float norm) {
  for (int64_t i = 0; i < p->n; i++)
    if (!isfinite(p->micro[i].loss))
      HP_FAIL(HP_ERR_NUMERIC, "the loss is %g", (double)p->micro[i].loss);
  if (isfinite(norm)) return HP_OK;
  for (size_t i = 0; i < s->m->trained; i++)
    if (!isfinite(s->grad_sq[i]))
      HP_FAIL(HP_ERR_NUMERIC, "the gradient of \"%s\" is not finite (sum of squares %g)",
              s->m->params.at[i].name, (double)s->grad_sq[i]);
  HP_FAIL(HP_ERR_NUMERIC, "the norm of all gradients is %g", (double)norm);
}

static void set_micro(const stepper *s, step_program *p, int64_t i, const step_micro *b,
                      const step_update *u) {
  micro_numbers *x = &p->micro[i];
  hp_io *io = &p->io[i * p->each];
  x->weight = (float)b->weight;
  x->seed = random_seed(s, i % p->n, u);
  for (int64_t k = 0; k < b->B; k++) x->lengths[k] = b->lengths ? b->lengths[k] : (int32_t)b->T;
  io[IDS].data = (void *)(uintptr_t)b->ids;
  io[LABELS].data = (void *)(uintptr_t)b->labels;
  io[POSITIONS].data = (void *)(uintptr_t)(b->positions ? b->positions : x->positions);
  set_more_ios(s, io + MORE, b);
  x->width = b->width;
}

static void set_update(stepper *s, const step_update *u) {
  const optimizer_options *o = &options_of(s)->optimizer;
  s->update = (update_numbers){.ahead_clip = 1, .factor = 1};
  optimizers[o->kind].set(o, u->lr, (double)u->t, s->update.number);
}

bool stepper_looks_ahead(const stepper *s) {
  return options_of(s)->ahead && hp_device_runs_ahead(s->m->d);
}

/* Will the next step have the program of this one?  After one that was clipped the next update will
 * most likely be clipped, too, and what ran before it be in vain. */
static bool goes_ahead(const stepper *s, const step_program *p, const step_following *next) {
  return p->following && next && !s->clipped && fits(p, next->micro, next->n, false);
}

/* Micro-batches of the next step, or of this one in their place, which then do not run. */
static void set_following(const stepper *s, step_program *p, const step_micro *b,
                          const step_update *u, const step_following *next) {
  for (int64_t i = 0; i < p->following; i++)
    set_micro(s, p, p->n + i, next ? &next->micro[i] : &b[i], next ? &next->update : u);
}

static hp_status run_program(stepper *s, step_program *p, const step_update *u,
                             const step_following *next) {
  const bool continues = p->following && s->ahead_t == u->t;
  s->ahead_t = 0;
  HP_TRY(hp_run_step(p->p, p->io, p->ios, continues, next != NULL));
  s->clipped = s->update.factor != 1;
  if (next && !s->clipped) s->ahead_t = next->update.t;
  return HP_OK;
}

hp_status stepper_run(stepper *s, const step_micro *b, int64_t n, const step_update *u,
                      const step_following *next, step_result *out) {
  step_program *p;
  float loss = 0;
  HP_TRY(find_program(s, b, n, s->has_left, &p));
  set_update(s, u);
  if (!goes_ahead(s, p, next)) next = NULL;
  for (int64_t i = 0; i < n; i++) set_micro(s, p, i, &b[i], u);
  set_following(s, p, b, u, next);
  HP_TRY(run_program(s, p, u, next));
  s->ran = p->p;
  HP_TRY(check_finite(s, p, s->update.norm));
  s->has_left = p->choice.leaves;
  s->left = s->update;
  for (int64_t i = 0; i < n; i++) loss += p->micro[i].loss;
  *out = (step_result){.loss = (double)loss, .grad_norm = (double)s->update.norm};
  return HP_OK;
}

hp_status stepper_settle(stepper *s) {
  step_program *p;
  if (!s->has_left) return HP_OK;
  HP_TRY(find_program(s, NULL, 0, true, &p));
  HP_TRY(hp_run(p->p, p->io, p->ios));
  s->has_left = false;
  return HP_OK;
}
