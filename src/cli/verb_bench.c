/* `hyper bench`: measured figures beside the machine's limits. */
#include "base/json.h"
#include "base/log.h"
#include "base/philox.h"
#include "base/thread.h"
#include "cli/cli.h"
#include "model/lm_eval.h"
#include "serve/session.h"
#include "train/step.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { WARM_UP = 2, STEPS = 5, IGNORE = -100 };

typedef struct {
  model_options m;
  int64_t batch, seq, steps;
  bool remat;
  const char *trace, *engine;
} args;

typedef struct {
  double flops_per_s, bytes_per_s;
} machine;

static double rss_bytes(void) {
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  return (double)u.ru_maxrss * 1024;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}
static double median(double *x, int64_t n) {
  qsort(x, (size_t)n, sizeof *x, by_value);
  return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

/* One result, as a JSON line or as text for people. */
typedef struct {
  str text;
  json_writer w;
  bool json;
} row;
static void row_begin(row *r, const args *a, const char *what) {
  r->json = a->m.json;
  r->w = (json_writer){.out = &r->text};
  json_open_map(&r->w);
  json_put_key(&r->w, "bench"), json_put_string(&r->w, what);
}
static void row_num(row *r, const char *key, double x) {
  json_put_key(&r->w, key);
  json_put_double(&r->w, x);
}
static void row_text(row *r, const char *key, const char *x) {
  json_put_key(&r->w, key);
  json_put_string(&r->w, x);
}
/* People get "key value" pairs, one a line. */
static hp_status row_end(row *r) {
  json_close(&r->w);
  hp_status st = str_status(&r->text);
  if (!st && r->json) puts(r->text.at);
  else if (!st) {
    for (char *p = r->text.at + 1; *p; p++) {
      if (*p == '"') continue;
      if (p[0] == ',' && p[1] == ' ') putchar('\n'), p++;
      else if (*p != '}') putchar(*p);
    }
    puts("\n");
  }
  str_free(&r->text);
  fflush(stdout);
  return st;
}

/* A model by its folder or its config.json alone, with random weights. */
static hp_status open_model(const args *a, bool training, hp_device **d, lm **m) {
  hp_dtype t = HP_F32;
  if (!a->m.model) HP_FAIL(HP_ERR_ARG, "--model DIR or CONFIG.json is missing");
  if (a->m.dtype && !strcmp(a->m.dtype, "bf16")) t = HP_BF16;
  else if (a->m.dtype && strcmp(a->m.dtype, "f32"))
    HP_FAIL(HP_ERR_ARG, "--dtype %s: expected f32 or bf16", a->m.dtype);
  hp_device_options o = {.threads = (int)a->m.threads,
                         .engine = a->engine,
                         .memory_limit = a->m.memory_limit};
  lm_options lo = {.compute = t, .weights = training ? HP_F32 : t};
  HP_TRY(hp_device_open(&o, d));
  hp_status st = lm_create(a->m.model, *d, &lo, m);
  if (!st) {
    st = lm_init(*m, (uint64_t)a->m.seed);
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

static void common(row *r, const args *a, const lm *m, const machine *k) {
  row_text(r, "model", a->m.model);
  row_text(r, "device", hp_device_describe(m->d));
  row_text(r, "dtype", m->compute == HP_BF16 ? "bf16" : "f32");
  row_text(r, "engine", m->compute == HP_BF16 ? hp_device_engine(m->d) : "packed");
  row_num(r, "parameters", model_config_params(&m->c));
  row_num(r, "batch", (double)a->batch);
  row_num(r, "seq", (double)a->seq);
  row_num(r, "peak_flops", k->flops_per_s);
  row_num(r, "read_bytes_per_s", k->bytes_per_s);
}

/* --- training step ---------------------------------------------------------------------------- */

static hp_status time_steps(const args *a, lm *m, stepper *s, double *seconds, double *loss) {
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
    if (i >= WARM_UP) seconds[i - WARM_UP] = time_now_s() - start;
    *loss = r.loss;
  }
  mem_free(ids);
  mem_free(labels);
  return st;
}

static hp_status print_step(const args *a, const lm *m, const machine *k, const stepper *s,
                            double *seconds, double loss) {
  double t = median(seconds, a->steps), tokens = (double)(a->batch * a->seq);
  double flops = 3 * lm_flops_per_token(m, a->seq) * tokens;
  double limit = flops / k->flops_per_s + 28 * model_config_params(&m->c) / k->bytes_per_s;
  row r = {0};
  row_begin(&r, a, "step");
  common(&r, a, m, k);
  row_num(&r, "tokens_per_s", tokens / t);
  row_num(&r, "step_s", t);
  row_num(&r, "limit_s", limit);
  row_num(&r, "of_limit", limit / t);
  row_num(&r, "loss", loss);
  row_num(&r, "peak_bytes", (double)(hp_device_param_bytes(m->d) + stepper_work_bytes(s)));
  row_num(&r, "rss_bytes", rss_bytes());
  row_num(&r, "compile_s", stepper_compile_seconds(s));
  return row_end(&r);
}

static hp_status bench_step(const args *a, lm *m, const machine *k) {
  step_options o = {.optimizer = STEP_ADAMW,
                    .beta1 = 0.9,
                    .beta2 = 0.999,
                    .eps = 1e-8,
                    .clip = 1,
                    .remat = a->remat};
  stepper *s = NULL;
  char *text = NULL;
  double *seconds = mem_calloc((size_t)a->steps, sizeof *seconds), loss = 0;
  HP_TRY_MEM(seconds);
  hp_status st = stepper_create(m, &o, &s);
  if (!st) st = time_steps(a, m, s, seconds, &loss);
  if (!st) st = print_step(a, m, k, s, seconds, loss);
  if (!st && !a->m.json) st = hp_explain(stepper_program(s), "ops", &text);
  if (text) puts(text);
  if (!st && a->trace) st = hp_trace(stepper_program(s), a->trace);
  hp_free(text);
  stepper_free(s);
  mem_free(seconds);
  return st;
}

/* --- inference -------------------------------------------------------------------------------- */

static hp_status bench_prefill(const args *a, lm *m, const machine *k) {
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
    session_free(s);
  }
  if (!st) {
    double t = median(seconds, a->steps);
    double flops = lm_flops_per_token(m, a->seq) * (double)a->seq;
    row r = {0};
    row_begin(&r, a, "prefill");
    common(&r, a, m, k);
    row_num(&r, "tokens_per_s", (double)a->seq / t);
    row_num(&r, "step_s", t);
    row_num(&r, "limit_s", flops / k->flops_per_s);
    row_num(&r, "of_limit", flops / k->flops_per_s / t);
    row_num(&r, "rss_bytes", rss_bytes());
    st = row_end(&r);
  }
  mem_free(ids);
  mem_free(logits);
  mem_free(seconds);
  return st;
}

static hp_status bench_decode(const args *a, lm *m, const machine *k) {
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
    session_free(s);
  }
  if (!st) {
    double t = median(seconds, n), weights = 0;
    for (size_t i = 0; i < m->params.len; i++) {
      const model_param *p = &m->params.at[i];
      bool read = p->kind == PARAM_MATRIX || (p->kind == PARAM_EMBEDDING && m->c.tied);
      if (read)
        weights +=
            (double)p->shape.dim[0] * (double)p->shape.dim[1] * (m->weights == HP_BF16 ? 2 : 4);
    }
    row r = {0};
    row_begin(&r, a, "decode");
    common(&r, a, m, k);
    row_num(&r, "tokens_per_s", 1 / t);
    row_num(&r, "step_s", t);
    row_num(&r, "limit_s", weights / k->bytes_per_s);
    row_num(&r, "of_limit", weights / k->bytes_per_s / t);
    row_num(&r, "rss_bytes", rss_bytes());
    st = row_end(&r);
  }
  mem_free(logits);
  mem_free(seconds);
  return st;
}

/* --- machine and compiler --------------------------------------------------------------------- */

static hp_status bench_copy(const args *a, hp_device *d) {
  machine k;
  row r = {0};
  HP_TRY(hp_device_measure(d, &k.flops_per_s, &k.bytes_per_s));
  row_begin(&r, a, "copy");
  row_text(&r, "device", hp_device_describe(d));
  row_num(&r, "peak_flops", k.flops_per_s);
  row_num(&r, "read_bytes_per_s", k.bytes_per_s);
  return row_end(&r);
}

/* The training step of a configuration, from nothing to a planned program; its parameters are not
 * made, so any size can be asked for. */
static hp_status bench_compile(const args *a, hp_device *d) {
  step_options o = {.optimizer = STEP_ADAMW,
                    .beta1 = 0.9,
                    .beta2 = 0.999,
                    .eps = 1e-8,
                    .clip = 1,
                    .remat = a->remat};
  hp_program_stats s;
  lm *m;
  row r = {0};
  if (!a->m.model) HP_FAIL(HP_ERR_ARG, "--model DIR or CONFIG.json is missing");
  double start = time_now_s();
  HP_TRY(lm_create(a->m.model, NULL, &(lm_options){HP_F32, HP_F32}, &m));
  hp_status st = stepper_plan(m, &o, a->batch, a->seq, d, &s, NULL, NULL);
  double total = time_now_s() - start;
  if (!st) {
    row_begin(&r, a, "compile");
    row_text(&r, "model", a->m.model);
    row_num(&r, "layers", (double)m->c.layers);
    row_num(&r, "total_s", total);
    row_num(&r, "compile_s", s.compile_s);
    row_num(&r, "instructions", (double)s.instructions);
    row_num(&r, "kernels", (double)s.kernels);
    row_num(&r, "work_bytes", (double)s.work_bytes);
    row_num(&r, "work_bound_bytes", (double)s.work_bound);
    row_num(&r, "rss_bytes", rss_bytes());
    st = row_end(&r);
  }
  lm_free(m);
  return st;
}

static hp_status run_model(const args *a, const char *what) {
  hp_device *d;
  lm *m;
  machine k;
  HP_TRY(open_model(a, !strcmp(what, "step"), &d, &m));
  hp_status st = hp_device_measure(d, &k.flops_per_s, &k.bytes_per_s);
  if (!st && !strcmp(what, "step")) st = bench_step(a, m, &k);
  else if (!st && !strcmp(what, "prefill")) st = bench_prefill(a, m, &k);
  else if (!st) st = bench_decode(a, m, &k);
  lm_free(m);
  hp_device_close(d);
  return st;
}

static hp_status run(const args *a, const char *what) {
  if (strcmp(what, "copy") && strcmp(what, "compile")) return run_model(a, what);
  hp_device *d;
  hp_device_options o = {.threads = (int)a->m.threads};
  HP_TRY(hp_device_open(&o, &d));
  hp_status st = strcmp(what, "copy") ? bench_compile(a, d) : bench_copy(a, d);
  hp_device_close(d);
  return st;
}

int verb_bench(int argc, char **argv) {
  static const char *const known[] = {"copy", "compile", "step", "prefill", "decode"};
  enum { KNOWN = sizeof known / sizeof *known };
  args a = {.batch = 4, .seq = 256, .steps = STEPS};
  const char *rest[256];
  int n;
  const cli_option option[] =
      {MODEL_OPTIONS(a.m),
       {"--batch", CLI_INT, &a.batch, "B", "sequences (default: 4)"},
       {"--seq", CLI_INT, &a.seq, "T", "tokens of a sequence (default: 256)"},
       {"--steps", CLI_INT, &a.steps, "N", "timed repetitions after 2 for warm-up (default: 5)"},
       {"--recompute", CLI_FLAG, &a.remat, NULL, "step: recompute activations"},
       {"--engine", CLI_TEXT, &a.engine, "NAME",
        "of bf16 products: packed, onednn (default: fastest)"},
       {"--trace", CLI_TEXT, &a.trace, "F.json",
        "step: the last step as a Chrome / Perfetto trace, an event an instruction"}};
  const cli_spec spec =
      {"hyper bench copy|compile|step|prefill|decode|all --model DIR|CONFIG.json [--json]",
       "Medians beside the machine's own limits, which are measured in the same run.  A model is\n"
       "given by its folder or its config.json alone; its weights are random.",
       "hyper bench step --model config.json --batch 4 --seq 256 --json", option,
       sizeof option / sizeof *option};
  if (argc > 256) return cli_usage(argv[0], "too many arguments");
  int code = cli_parse_keys(&spec, argc, argv, rest, &n);
  if (code != CLI_GO_ON) return code;
  if (n != 1) return cli_usage(argv[0], "say what: copy, compile, step, prefill, decode or all");
  if (a.batch < 1 || a.seq < 2 || a.steps < 1 || a.batch > 65536 || a.seq > (1 << 24) ||
      a.steps > 1000000)
    return cli_usage(argv[0], "--batch, --seq or --steps is out of range");
  bool all = !strcmp(rest[0], "all"), found = false;
  hp_status st = HP_OK;
  if (all && !a.m.model) a.m.model = "examples/demo/model/config.json";
  for (int i = 0; !st && i < KNOWN; i++) {
    if (!all && strcmp(rest[0], known[i])) continue;
    found = true;
    st = run(&a, known[i]);
  }
  if (!found)
    return cli_usage(argv[0], "\"%s\" is not copy, compile, step, prefill, decode or all", rest[0]);
  return st ? cli_fail(st) : 0;
}
