/* `hyper bench`: figures of whole models beside the machine's limits. */
#include "base/philox.h"
#include "base/thread.h"
#include "cli/bench.h"
#include "model/lm_eval.h"
#include "model/strategy.h"
#include "serve/session.h"
#include "train/step.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

enum { WARM_UP = 2 };

typedef struct {
  double flops_per_s, bytes_per_s;
} machine;

static double rss_bytes(void) {
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  return (double)u.ru_maxrss * 1024;
}

/* The device that the options ask for; what its layouts are to be, in *s. */
static hp_status open_device(const bench_args *a, bool plan_only, strategy *s, hp_device **d) {
  char mesh[STRATEGY_TEXT];
  hp_device_options o;
  HP_TRY(cli_device_options(&a->m, s, mesh, &o));
  o.engine = a->engine;
  o.plan_only = plan_only;
  return hp_device_open(&o, d);
}

/* A model by its folder or its config.json alone, with random weights. */
static hp_status open_model(const bench_args *a, bool training, hp_device **d, lm **m) {
  hp_dtype t = HP_F32;
  if (!a->m.model) HP_FAIL(HP_ERR_ARG, "--model DIR or CONFIG.json is missing");
  if (a->m.dtype && !strcmp(a->m.dtype, "bf16")) t = HP_BF16;
  else if (a->m.dtype && strcmp(a->m.dtype, "f32"))
    HP_FAIL(HP_ERR_ARG, "--dtype %s: expected f32 or bf16", a->m.dtype);
  strategy s;
  lm_options lo = {.compute = t, .weights = training ? HP_F32 : t};
  HP_TRY(open_device(a, false, &s, d));
  hp_status st = lm_create(a->m.model, *d, &lo, m);
  if (!st) {
    st = strategy_apply(&s, *m, *d);
    if (!st) st = lm_init(*m, (uint64_t)a->m.seed);
    if (st) lm_free(*m);
  }
  if (st) hp_device_close(*d);
  return st;
}

static int32_t *random_ids(const lm *m, int64_t n) {
  int32_t *ids = mem_calloc((size_t)n, sizeof *ids);
  for (int64_t i = 0; ids && i < n; i++)
    ids[i] = (int32_t)(philox_u32(1, 7, (uint64_t)i) % (uint64_t)m->c.vocab);
  return ids;
}

static void common(bench_row *r, const bench_args *a, const lm *m, const machine *k) {
  bench_row_text(r, "model", a->m.model);
  bench_row_text(r, "device", hp_device_describe(m->d));
  bench_row_text(r, "dtype", m->compute == HP_BF16 ? "bf16" : "f32");
  bench_row_text(r, "engine", m->compute == HP_BF16 ? hp_device_engine(m->d) : "packed");
  bench_row_num(r, "parameters", model_config_params(&m->c));
  bench_row_num(r, "batch", (double)a->batch);
  bench_row_num(r, "seq", (double)a->seq);
  bench_row_num(r, "peak_flops", k->flops_per_s);
  bench_row_num(r, "read_bytes_per_s", k->bytes_per_s);
}

static step_options step_options_of(const bench_args *a) {
  return (step_options){.optimizer = STEP_ADAMW,
                        .beta1 = 0.9,
                        .beta2 = 0.999,
                        .eps = 1e-8,
                        .clip = 1,
                        .remat = a->remat,
                        .interleave = a->interleave,
                        .serial = a->serial};
}

/* --- training step ---------------------------------------------------------------------------- */

typedef struct {
  double *seconds; /* of each timed step */
  double loss;
  double comm_s, hideable_s, hidden_s; /* of all timed steps */
} step_times;

static hp_status add_comm(const stepper *s, step_times *t) {
  hp_program_stats p;
  HP_TRY(hp_program_stats_get(stepper_program(s), &p));
  t->comm_s += p.comm_s;
  t->hideable_s += p.hideable_s;
  t->hidden_s += p.hidden_s;
  return HP_OK;
}

static hp_status time_steps(const bench_args *a, lm *m, stepper *s, step_times *t) {
  int64_t n = a->batch * a->seq;
  int32_t *ids = random_ids(m, n), *labels = mem_calloc((size_t)n, sizeof *labels);
  hp_status st = ids && labels ? HP_OK : HP_ERR_OOM;
  for (int64_t i = 0; !st && i < n; i++) labels[i] = ids[(i + 1) % n];
  for (int64_t i = 0; !st && i < WARM_UP + a->steps; i++) {
    step_micro b = {.B = a->batch,
                    .T = a->seq,
                    .ids = ids,
                    .labels = labels,
                    .weight = 1.0 / (double)n,
                    .first = true,
                    .last = true};
    step_update u = {.lr = 1e-4, .t = i + 1};
    step_result r;
    double start = time_now_s();
    st = stepper_run(s, &b, &u, &r);
    if (i >= WARM_UP) t->seconds[i - WARM_UP] = time_now_s() - start;
    if (!st && i >= WARM_UP) st = add_comm(s, t);
    t->loss = r.loss;
  }
  mem_free(ids);
  mem_free(labels);
  return st;
}

/* What goes between devices in a step, and how much of it behind computation. */
static void put_comm(const bench_args *a, const step_times *t, bench_row *r) {
  double n = (double)a->steps;
  if (t->comm_s <= 0) return;
  bench_row_num(r, "comm_s", t->comm_s / n);
  bench_row_num(r, "hideable_s", t->hideable_s / n);
  bench_row_num(r, "hidden_s", t->hidden_s / n);
  bench_row_num(r, "exposed_s", (t->comm_s - t->hidden_s) / n);
  bench_row_num(r, "hidden_share", t->hideable_s > 0 ? t->hidden_s / t->hideable_s : 1);
}

static hp_status print_step(const bench_args *a, const lm *m, const machine *k, const stepper *s,
                            const step_times *times) {
  double t = bench_median(times->seconds, a->steps), tokens = (double)(a->batch * a->seq);
  double flops = 3 * lm_flops_per_token(m, a->seq) * tokens;
  double limit = flops / k->flops_per_s + 28 * model_config_params(&m->c) / k->bytes_per_s;
  bench_row r = {0};
  bench_row_begin(&r, a, "step");
  common(&r, a, m, k);
  bench_row_num(&r, "tokens_per_s", tokens / t);
  bench_row_num(&r, "step_s", t);
  bench_row_num(&r, "limit_s", limit);
  bench_row_num(&r, "of_limit", limit / t);
  put_comm(a, times, &r);
  bench_row_num(&r, "loss", times->loss);
  bench_row_num(&r, "peak_bytes", (double)(hp_device_param_bytes(m->d) + stepper_work_bytes(s)));
  bench_row_num(&r, "rss_bytes", rss_bytes());
  bench_row_num(&r, "compile_s", stepper_compile_seconds(s));
  return bench_row_end(&r);
}

/* For people: the last run by op. */
static hp_status print_ops(const bench_args *a, const hp_program *p) {
  char *text = NULL;
  if (a->m.json) return HP_OK;
  HP_TRY(hp_explain(p, "ops", &text));
  puts(text);
  hp_free(text);
  return HP_OK;
}

static hp_status step(const bench_args *a, lm *m, const machine *k) {
  step_options o = step_options_of(a);
  stepper *s = NULL;
  step_times t = {.seconds = mem_calloc((size_t)a->steps, sizeof *t.seconds)};
  HP_TRY_MEM(t.seconds);
  hp_status st = stepper_create(m, &o, &s);
  if (!st) st = time_steps(a, m, s, &t);
  if (!st) st = print_step(a, m, k, s, &t);
  if (!st) st = print_ops(a, stepper_program(s));
  if (!st && a->trace) st = hp_trace(stepper_program(s), a->trace);
  stepper_free(s);
  mem_free(t.seconds);
  return st;
}

/* --- inference -------------------------------------------------------------------------------- */

static hp_status prefill(const bench_args *a, lm *m, const machine *k) {
  session *s;
  int32_t *ids = random_ids(m, a->seq);
  float *logits = mem_calloc((size_t)m->c.vocab, sizeof *logits);
  double *seconds = mem_calloc((size_t)a->steps, sizeof *seconds);
  hp_status st = ids && logits && seconds ? session_create(m, a->seq, &s) : HP_ERR_OOM;
  if (!st) {
    for (int64_t i = 0; !st && i < WARM_UP + a->steps; i++) {
      session_reset(s);
      double start = time_now_s();
      st = session_feed(s, ids, a->seq, logits);
      if (i >= WARM_UP) seconds[i - WARM_UP] = time_now_s() - start;
    }
    if (!st) st = print_ops(a, session_program(s));
    session_free(s);
  }
  if (!st) {
    double t = bench_median(seconds, a->steps);
    double flops = lm_flops_per_token(m, a->seq) * (double)a->seq;
    bench_row r = {0};
    bench_row_begin(&r, a, "prefill");
    common(&r, a, m, k);
    bench_row_num(&r, "tokens_per_s", (double)a->seq / t);
    bench_row_num(&r, "step_s", t);
    bench_row_num(&r, "limit_s", flops / k->flops_per_s);
    bench_row_num(&r, "of_limit", flops / k->flops_per_s / t);
    bench_row_num(&r, "rss_bytes", rss_bytes());
    st = bench_row_end(&r);
  }
  mem_free(ids);
  mem_free(logits);
  mem_free(seconds);
  return st;
}

static hp_status decode(const bench_args *a, lm *m, const machine *k) {
  session *s;
  int64_t n = a->steps < 32 ? 32 : a->steps;
  float *logits = mem_calloc((size_t)m->c.vocab, sizeof *logits);
  double *seconds = mem_calloc((size_t)n, sizeof *seconds);
  hp_status st = logits && seconds ? session_create(m, n + WARM_UP, &s) : HP_ERR_OOM;
  if (!st) {
    for (int64_t i = 0; !st && i < n + WARM_UP; i++) {
      int32_t id = (int32_t)(i % m->c.vocab);
      double start = time_now_s();
      st = session_feed(s, &id, 1, logits);
      if (i >= WARM_UP) seconds[i - WARM_UP] = time_now_s() - start;
    }
    if (!st) st = print_ops(a, session_program(s));
    session_free(s);
  }
  if (!st) {
    double t = bench_median(seconds, n), weights = 0;
    for (size_t i = 0; i < m->params.len; i++) {
      const model_param *p = &m->params.at[i];
      bool read = p->kind == PARAM_MATRIX || (p->kind == PARAM_EMBEDDING && m->c.tied);
      if (read) weights += lm_elements_used(m, p) * (m->weights == HP_BF16 ? 2 : 4);
    }
    bench_row r = {0};
    bench_row_begin(&r, a, "decode");
    common(&r, a, m, k);
    bench_row_num(&r, "tokens_per_s", 1 / t);
    bench_row_num(&r, "step_s", t);
    bench_row_num(&r, "limit_s", weights / k->bytes_per_s);
    bench_row_num(&r, "of_limit", weights / k->bytes_per_s / t);
    bench_row_num(&r, "rss_bytes", rss_bytes());
    st = bench_row_end(&r);
  }
  mem_free(logits);
  mem_free(seconds);
  return st;
}

/* --- machine and compiler --------------------------------------------------------------------- */

static hp_status copy(const bench_args *a, const strategy *by, hp_device *d) {
  machine k;
  bench_row r = {0};
  (void)by;
  HP_TRY(hp_device_measure(d, &k.flops_per_s, &k.bytes_per_s));
  bench_row_begin(&r, a, "copy");
  bench_row_text(&r, "device", hp_device_describe(d));
  bench_row_num(&r, "peak_flops", k.flops_per_s);
  bench_row_num(&r, "read_bytes_per_s", k.bytes_per_s);
  return bench_row_end(&r);
}

/* The training step of a configuration, from nothing to a planned program; its parameters are not
 * made, so any size can be asked for. */
static hp_status compile(const bench_args *a, const strategy *by, hp_device *d) {
  step_options o = step_options_of(a);
  hp_program_stats s;
  lm *m;
  bench_row r = {0};
  if (!a->m.model) HP_FAIL(HP_ERR_ARG, "--model DIR or CONFIG.json is missing");
  double start = time_now_s();
  HP_TRY(lm_create(a->m.model, NULL, &(lm_options){HP_F32, HP_F32}, &m));
  hp_status st = strategy_apply(by, m, d);
  if (!st) st = stepper_plan(m, &o, a->batch, a->seq, d, &s, NULL, NULL);
  double total = time_now_s() - start;
  if (!st) {
    bench_row_begin(&r, a, "compile");
    bench_row_text(&r, "model", a->m.model);
    bench_row_num(&r, "layers", (double)m->c.layers);
    bench_row_num(&r, "devices", (double)strategy_devices(by));
    bench_row_num(&r, "total_s", total);
    bench_row_num(&r, "compile_s", s.compile_s);
    bench_row_num(&r, "instructions", (double)s.instructions);
    bench_row_num(&r, "kernels", (double)s.kernels);
    bench_row_num(&r, "received_bytes", s.received);
    bench_row_num(&r, "work_bytes", (double)s.work_bytes);
    bench_row_num(&r, "work_bound_bytes", (double)s.work_bound);
    bench_row_num(&r, "rss_bytes", rss_bytes());
    st = bench_row_end(&r);
  }
  lm_free(m);
  return st;
}

typedef hp_status run_fn(const bench_args *a, lm *m, const machine *k);
/* A kind that runs a model: its device, its weights, the machine's limits. */
static hp_status run_model(const bench_args *a, bool training, run_fn *run) {
  hp_device *d;
  lm *m;
  machine k;
  HP_TRY(open_model(a, training, &d, &m));
  hp_status st = hp_device_measure(d, &k.flops_per_s, &k.bytes_per_s);
  if (!st) st = run(a, m, &k);
  lm_free(m);
  hp_device_close(d);
  return st;
}

hp_status bench_step(const bench_args *a) { return run_model(a, true, step); }
hp_status bench_prefill(const bench_args *a) { return run_model(a, false, prefill); }
hp_status bench_decode(const bench_args *a) { return run_model(a, false, decode); }

/* A kind that needs no memory on its devices: one is opened for all. */
static hp_status run_device(const bench_args *a,
                            hp_status (*run)(const bench_args *, const strategy *, hp_device *)) {
  strategy s;
  hp_device *d;
  HP_TRY(open_device(a, true, &s, &d));
  hp_status st = run(a, &s, d);
  hp_device_close(d);
  return st;
}
hp_status bench_copy(const bench_args *a) { return run_device(a, copy); }
hp_status bench_compile(const bench_args *a) { return run_device(a, compile); }
