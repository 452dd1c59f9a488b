/* `hyper bench`: times of full models, compared with the machine's limits. */
#include "base/io.h"
#include "base/thread.h"
#include "cli/bench.h"
#include "cli/bench_limit.h"
#include "cli/placement_options.h"
#include "rt/device_mesh.h"
#include "rt/op_times.h"
#include "serve/session.h"
#include "train/memory_limit.h"
#include "train/step.h"
#include "train/step_memory.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

enum { WARM_UP = 2, LIMIT_ROUNDS = 9, TOKENS_LEAST = 32 };

static double read_rss_bytes(void) {
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  return (double)u.ru_maxrss * 1024;
}

static bool has_weights(const char *dir) {
  static const char *const name[] = {"model.safetensors", "model.safetensors.index.json"};
  str file = {0};
  bool found = false;
  for (int i = 0; i < 2; i++) found |= !path_join(&file, dir, name[i]) && file_exists(file.at);
  str_free(&file);
  return found;
}

/* A model by its folder, or with random weights by its config.json alone. */
static hp_status open_model(const bench_args *a, bool training, const cli_work *w, hp_device **d,
                            lm **m) {
  hp_dtype t = HP_F32;
  if (!a->m.model) HP_FAIL(HP_ERR_ARG, "--model DIR or CONFIG.json is missing");
  if (a->m.dtype && !strcmp(a->m.dtype, "bf16")) t = HP_BF16;
  else if (a->m.dtype && strcmp(a->m.dtype, "f32"))
    HP_FAIL(HP_ERR_ARG, "--dtype %s: expected f32 or bf16", a->m.dtype);
  int cache = HP_OFFLOAD_NONE;
  if (!training) HP_TRY(cli_kv_tier(&a->m, &cache));
  HP_TRY(placement_options_check_cache(&a->m, cache));
  placement_options where;
  HP_TRY(placement_options_read(&a->m, &where));
  lm_options lo = {.compute = t,
                   .weights = training ? HP_F32 : t,
                   .packed = !training && placement_devices(&where.p) == 1};
  *m = NULL;
  hp_status st = lm_create(a->m.model, NULL, &lo, m);
  if (!st) st = cli_place_model(&a->m, training, &where.p, *m, d);
  if (!st) {
    placement_tell_rows(&where.p, bench_batch(a, training ? 4 : 1), 0);
    st = cli_resolve_limit(&a->m, *m, w);
    if (!st && has_weights(a->m.model)) st = lm_load(*m, a->m.model);
    else if (!st) st = lm_init(*m, (uint64_t)a->m.seed);
    if (st) hp_device_close(*d);
  }
  placement_options_free(&where);
  if (st) lm_free(*m);
  return st;
}

/* The i-th input token; bench/compare uses the same tokens for other frameworks. */
static int32_t make_token(const lm *m, int64_t i) {
  return (int32_t)(((uint32_t)i * 2654435761u >> 8) % (uint32_t)m->c.vocab);
}

/* What runs of a model have in common: times, and the rounds of their limit between them. */
typedef struct {
  const bench_args *a;
  lm *m;
  bench_machine k; /* the limit's threads */
  bench_work work;
  int64_t B, T, n; /* of what is run; repetitions that are timed */
  bench_limit *limit;
  double *seconds;    /* [n] */
  double rss_bytes;   /* without the limit's */
  double predicted_s; /* of one repetition, by costs known before the first; 0: none was asked */
  int32_t *ids;       /* [B,T] */
  float *logits;      /* [B,V] */
} model_run;

static hp_status run_open(model_run *r) {
  int64_t n = r->B * r->T;
  r->seconds = mem_calloc((size_t)r->n, sizeof *r->seconds);
  r->ids = mem_calloc((size_t)n, sizeof *r->ids);
  r->logits = mem_calloc((size_t)(r->B * r->m->c.vocab), sizeof *r->logits);
  if (!r->seconds || !r->ids || !r->logits) return HP_ERR_OOM;
  for (int64_t i = 0; i < n; i++) r->ids[i] = make_token(r->m, i);
  return HP_OK;
}
static void run_close(model_run *r) {
  bench_limit_free(r->limit);
  mem_free(r->seconds);
  mem_free(r->ids);
  mem_free(r->logits);
}

static optimizer_options optimizer_of(const bench_args *a) {
  int kind = a->optimizer ? optimizer_find(a->optimizer) : OPTIMIZER_ADAMW;
  return (optimizer_options){(optimizer_kind)kind, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
}

/* Notes repetition i, which began at `start`; after some of those that count the limit has a round.
 */
static hp_status run_note(model_run *r, int64_t i, double start) {
  int64_t at = i - WARM_UP, rounds = r->n < LIMIT_ROUNDS ? r->n : LIMIT_ROUNDS;
  if (at < 0) return HP_OK;
  r->seconds[at] = time_now_s() - start;
  if (at == 0) {
    r->rss_bytes = read_rss_bytes();
    optimizer_options by = optimizer_of(r->a);
    HP_TRY(
        bench_limit_create(r->m, r->work, &by, r->B, r->T, r->k.threads, (int)rounds, &r->limit));
  }
  return at % (r->n / rounds) ? HP_OK : bench_limit_round(r->limit);
}

/* The first keys of a line: what was run, how fast, and its limit. */
static void put_run(model_run *r, const char *kind, double tokens, bench_row *row) {
  const lm *m = r->m;
  bench_limit_result k = bench_limit_get(r->limit);
  double t = measured_median(r->seconds, r->n), limit = k.matmul_s + k.bytes_s;
  bench_row_begin(row, r->a, kind);
  bench_row_text(row, "model", r->a->m.model);
  bench_row_machine(row, &r->k);
  bench_row_text(row, "device", hp_device_describe(m->d));
  bench_row_text(row, "dtype", m->compute == HP_BF16 ? "bf16" : "f32");
  bench_row_text(row, "engine", hp_device_engine(m->d));
  bench_row_num(row, "parameters", model_config_params(&m->c));
  bench_row_num(row, "batch", (double)r->B);
  bench_row_num(row, "seq", (double)r->T);
  bench_row_num(row, "peak_flops", k.peak_flops);
  bench_row_num(row, "read_bytes_per_s", k.bytes_per_s);
  bench_row_num(row, "tokens_per_s", tokens / t);
  bench_row_num(row, "step_s", t);
  if (r->predicted_s > 0) bench_row_num(row, "predicted_s", r->predicted_s);
  bench_row_num(row, "limit_s", limit);
  bench_row_num(row, "of_limit", limit / t);
  bench_row_num(row, "flops", k.flops);
  bench_row_num(row, "bytes", k.bytes);
  bench_row_num(row, "matmul_s", k.matmul_s);
  bench_row_num(row, "bytes_s", k.bytes_s);
}

static step_options step_options_of(const bench_args *a, const lm *m) {
  bool recomputes = a->m.offload_policy && !strcmp(a->m.offload_policy, "full_recompute");
  return (step_options){.optimizer = optimizer_of(a),
                        .clip = 1,
                        .compile = {.remat = a->remat || recomputes,
                                    .serial = a->serial,
                                    .host_update = a->host_update ? HP_HOST_UPDATE_ALWAYS
                                                                  : HP_HOST_UPDATE_AUTO},
                        .remat_auto = a->m.memory_limit && !a->keep,
                        .limited = a->m.memory_limit,
                        .interleave = a->interleave,
                        .replicas = m->groups};
}

/* --- training step ---------------------------------------------------------------------------- */

typedef struct {
  double loss;
  double comm_s, can_overlap_s, overlapped_s; /* of all timed steps */
  uint64_t planned_bytes;
} step_sums;

static hp_status add_comm(const stepper *s, step_sums *sum) {
  hp_program_stats p;
  HP_TRY(hp_program_stats_get(stepper_program(s), &p));
  sum->comm_s += p.comm_s;
  sum->can_overlap_s += p.can_overlap_s;
  sum->overlapped_s += p.overlapped_s;
  sum->planned_bytes = p.memory.planned_bytes;
  return HP_OK;
}

static hp_status time_steps(model_run *r, stepper *s, step_sums *sum) {
  int64_t n = r->B * r->T, micros = r->a->accumulate;
  int32_t *labels = mem_calloc((size_t)n, sizeof *labels);
  step_micro *b = mem_calloc((size_t)micros, sizeof *b);
  hp_status st = labels && b ? HP_OK : HP_ERR_OOM;
  for (int64_t i = 0; !st && i < n; i++) labels[i] = r->ids[(i + 1) % n];
  for (int64_t i = 0; !st && i < micros; i++)
    b[i] = (step_micro){.B = r->B,
                        .T = r->T,
                        .ids = r->ids,
                        .labels = labels,
                        .weight = 1.0 / (double)(n * micros)};
  for (int64_t i = 0; !st && i < WARM_UP + r->n; i++) {
    step_update u = {.lr = 1e-4, .t = i + 1};
    step_result result;
    double start = time_now_s();
    st = stepper_run(s, b, micros, &u, NULL, &result);
    if (!st) st = run_note(r, i, start);
    if (!st && i >= WARM_UP) st = add_comm(s, sum);
    sum->loss = result.loss;
  }
  mem_free(labels);
  mem_free(b);
  return st;
}

/* What goes between devices in a step, and how much of it behind computation. */
static void put_comm(const model_run *r, const step_sums *sum, bench_row *row) {
  double n = (double)r->n;
  if (sum->comm_s <= 0) return;
  bench_row_num(row, "comm_s", sum->comm_s / n);
  bench_row_num(row, "can_overlap_s", sum->can_overlap_s / n);
  bench_row_num(row, "overlapped_s", sum->overlapped_s / n);
  bench_row_num(row, "exposed_s", (sum->comm_s - sum->overlapped_s) / n);
  bench_row_num(row, "overlapped_share",
                sum->can_overlap_s > 0 ? sum->overlapped_s / sum->can_overlap_s : 1);
}

/* The kind of work furthest from its own limit, and what share of a run would be won there. */
static hp_status put_gap(const hp_program *p, bench_row *row) {
  hp_op_time *kind;
  str name = {0};
  double run = 0;
  int n;
  HP_TRY(hp_program_times(p, &kind, &n));
  for (int i = 0; i < n; i++) run += kind[i].overlapped ? 0 : kind[i].seconds;
  if (n) str_printf(&name, "%s %s", kind[0].kind, *kind[0].shape ? kind[0].shape : kind[0].place);
  hp_status st = str_status(&name);
  if (!st && run > 0) {
    bench_row_text(row, "widest_gap", name.at);
    bench_row_num(row, "widest_gap_share", kind[0].gap_s / run);
  }
  str_free(&name);
  hp_free(kind);
  return st;
}

/* What moves between memory tiers: as planned, and as measured in recent runs. */
static hp_status put_moved_bytes(const hp_program *p, bench_row *row) {
  static const char *const key[] = {"plan_s", "compute_s", "lower_bound_s", "copy_s", "exposed_s"};
  char *text;
  tree t;
  HP_TRY(hp_explain(p, "memory.json", &text));
  hp_status st = json_parse(text, strlen(text), "memory.json", &t);
  hp_free(text);
  HP_TRY(st);
  for (size_t i = 0; !st && i < sizeof key / sizeof *key; i++) {
    const tree_node *v = tree_get(t.root, key[i]);
    double x;
    if (!v || v->kind == TREE_NULL) continue;
    st = tree_as_double(v, &x);
    if (!st) bench_row_num(row, key[i], x);
  }
  tree_free(&t);
  return st;
}

/* Bytes that a run reads from flash and writes there, and the time of these copies. */
static hp_status put_flash(const hp_program *p, bench_row *row) {
  hp_op_time *kind;
  int n;
  HP_TRY(hp_program_times(p, &kind, &n));
  for (int i = 0; i < n; i++) {
    bool reads = !strcmp(kind[i].kind, "fetch from flash");
    if (!reads && strcmp(kind[i].kind, "offload to flash") != 0) continue;
    bench_row_num(row, reads ? "flash_read_bytes" : "flash_written_bytes", kind[i].bytes);
    bench_row_num(row, reads ? "flash_read_s" : "flash_write_s", kind[i].seconds);
  }
  hp_free(kind);
  return HP_OK;
}

static hp_status predict(model_run *r, const hp_program *p) {
  hp_program_stats s;
  HP_TRY(hp_program_stats_get(p, &s));
  r->predicted_s = s.predicted_s;
  return HP_OK;
}

static hp_status print_step(model_run *r, const stepper *s, const step_sums *sum) {
  bench_row row = {0};
  HP_TRY(predict(r, stepper_program(s)));
  put_run(r, "step", (double)(r->B * r->T * r->a->accumulate), &row);
  bench_row_num(&row, "micro_batches", (double)r->a->accumulate);
  put_comm(r, sum, &row);
  bench_row_num(&row, "loss", sum->loss);
  bench_row_num(&row, "peak_bytes", (double)sum->planned_bytes);
  bench_row_num(&row, "rss_bytes", r->rss_bytes);
  bench_row_num(&row, "compile_s", stepper_compile_seconds(s));
  hp_status st = put_gap(stepper_program(s), &row);
  if (!st && r->a->m.memory_limit) st = put_moved_bytes(stepper_program(s), &row);
  if (!st && r->a->m.memory_limit) st = put_flash(stepper_program(s), &row);
  hp_status end = bench_row_end(&row);
  return st ? st : end;
}

/* The limits of the rounds are those of the rows too: one measurement in one output. */
static hp_status use_limits(const model_run *r) {
  hp_limits l;
  bench_limit_result k = bench_limit_get(r->limit);
  HP_TRY(hp_device_measure(r->m->d, &l));
  if (r->m->compute == HP_BF16) l.bf16_flops = k.peak_flops;
  else l.flops = k.peak_flops;
  l.bytes = k.bytes_per_s;
  for (int i = 0; i < r->m->d->own; i++) r->m->d->member[i]->limits = l;
  return HP_OK;
}

/* The last run by op, for people, without a limit of the whole, which is told above; and as a trace
 * where one is asked for. */
static hp_status show_run(const bench_args *a, const hp_program *p) {
  hp_op_time *row;
  str text = {0};
  int n;
  if (!a->m.json) {
    HP_TRY(hp_program_times(p, &row, &n));
    op_times_print(row, n, NULL, &text);
    hp_free(row);
    HP_TRY(str_status(&text));
    puts(text.at);
    str_free(&text);
  }
  return a->trace ? hp_trace(p, a->trace) : HP_OK;
}

static hp_status measure_step(model_run *r) {
  const bench_args *a = r->a;
  step_options o = step_options_of(a, r->m);
  stepper *s = NULL;
  step_sums sum = {0};
  hp_status st = stepper_create(r->m, &o, &s);
  if (!st) st = time_steps(r, s, &sum);
  if (!st) st = use_limits(r);
  if (!st) st = print_step(r, s, &sum);
  if (!st) st = show_run(a, stepper_program(s));
  stepper_free(s);
  return st;
}

/* --- inference -------------------------------------------------------------------------------- */

static hp_status print_inference(model_run *r, const session *s, const char *kind, double tokens) {
  bench_row row = {0};
  HP_TRY(predict(r, session_program(s)));
  put_run(r, kind, tokens, &row);
  bench_row_num(&row, "rss_bytes", r->rss_bytes);
  hp_status st = put_gap(session_program(s), &row), end = bench_row_end(&row);
  return st ? st : end;
}

/* Feeds n tokens to each sequence: sequence i those from ids + i * n on. */
static hp_status feed_tokens(const model_run *r, session *s, const int32_t *ids, int64_t n) {
  session_tokens *t = mem_calloc((size_t)r->B, sizeof *t);
  HP_TRY_MEM(t);
  for (int64_t i = 0; i < r->B; i++) t[i] = (session_tokens){i, ids + i * n, n};
  hp_status st = session_feed(s, t, r->B, r->logits);
  mem_free(t);
  return st;
}

/* B sequences, numbers 0 to B - 1, in place of all there are. */
static hp_status add_sequences(const model_run *r, session *s) {
  hp_status st = HP_OK;
  session_reset(s);
  for (int64_t i = 0, number; !st && i < r->B; i++) st = session_add(s, &number);
  return st;
}

static hp_status cache_options(const model_run *r, session_options *o) {
  *o = (session_options){.sequences = r->B, .tokens = r->T};
  if (r->work == BENCH_PROMPT) return HP_OK;
  o->tokens += r->a->context + WARM_UP + r->n;
  o->sparse = r->a->sparse;
  return cli_kv_tier(&r->a->m, &o->offload);
}

static hp_status measure_prefill(model_run *r) {
  session *s;
  session_options o;
  HP_TRY(cache_options(r, &o));
  HP_TRY(session_create(r->m, &o, &s));
  hp_status st = HP_OK;
  for (int64_t i = 0; !st && i < WARM_UP + r->n; i++) {
    st = add_sequences(r, s);
    /* another first token: nothing may be left in the cache to find */
    for (int64_t k = 0; k < r->B; k++)
      r->ids[k * r->T] = make_token(r->m, r->B * r->T + i * r->B + k);
    double start = time_now_s();
    if (!st) st = feed_tokens(r, s, r->ids, r->T);
    if (!st) st = run_note(r, i, start);
  }
  if (!st) st = use_limits(r);
  if (!st) st = print_inference(r, s, "prefill", (double)(r->B * r->T));
  if (!st) st = show_run(r->a, session_program(s));
  session_free(s);
  return st;
}

/* Tokens after a prompt of T, one of each sequence at a time. */
static hp_status measure_decode(model_run *r) {
  session *s;
  session_options o;
  HP_TRY(cache_options(r, &o));
  HP_TRY(session_create(r->m, &o, &s));
  hp_status st = add_sequences(r, s);
  for (int64_t i = 0; !st && i < r->B && r->a->context; i++) st = session_skip(s, i, r->a->context);
  if (!st) st = feed_tokens(r, s, r->ids, r->T);
  for (int64_t i = 0; !st && i < WARM_UP + r->n; i++) {
    for (int64_t k = 0; k < r->B; k++) r->ids[k] = make_token(r->m, r->B * (r->T + i) + k);
    double start = time_now_s();
    st = feed_tokens(r, s, r->ids, 1);
    if (!st) st = run_note(r, i, start);
  }
  if (!st) st = use_limits(r);
  if (!st) st = print_inference(r, s, "decode", (double)r->B);
  if (!st) st = show_run(r->a, session_program(s));
  session_free(s);
  return st;
}

/* --- machine and compiler --------------------------------------------------------------------- */

static hp_status measure_limits(const bench_args *a, hp_device *d) {
  hp_limits k;
  bench_row r;
  HP_TRY(hp_device_measure(d, &k));
  bench_row_begin(&r, a, "limits");
  bench_row_text(&r, "device", hp_device_describe(d));
  bench_row_num(&r, "peak_flops", k.flops);
  bench_row_num(&r, "read_bytes_per_s", k.bytes);
  return bench_row_end(&r);
}

static hp_status plan_step(lm *m, const step_options *o, const planned_program *step,
                           uint64_t limit, hp_device *d, hp_program_stats *out) {
  step_planner *p;
  step_memory s;
  HP_TRY(step_planner_create(m, o, &(step_work){step, 1}, d, true, &p));
  hp_status st = step_memory_share(p, &limit);
  if (!st) st = step_memory_plan(p, &s, NULL, NULL);
  step_planner_free(p);
  if (!st) *out = s.stats;
  return st;
}

static hp_status print_compile(const bench_args *a, const lm *m, const hp_program_stats *s,
                               int64_t devices, double total) {
  bench_row r;
  bench_row_begin(&r, a, "compile");
  bench_row_text(&r, "model", a->m.model);
  bench_row_num(&r, "layers", (double)m->c.layers);
  bench_row_num(&r, "devices", (double)devices);
  bench_row_num(&r, "micro_batches", (double)a->accumulate);
  bench_row_num(&r, "total_s", total);
  bench_row_num(&r, "compile_s", s->compile_s);
  bench_row_num(&r, "instructions", (double)s->instructions);
  bench_row_num(&r, "kernels", (double)s->kernels);
  bench_row_num(&r, "received_bytes", s->received);
  bench_row_num(&r, "work_bytes", (double)s->memory.work_bytes);
  bench_row_num(&r, "work_bound_bytes", (double)s->memory.work_bound);
  bench_row_num(&r, "rss_bytes", read_rss_bytes());
  return bench_row_end(&r);
}

/* Times the compilation of a training step, but for opening the device.  The model comes first: it
 * knows the layers of groups. */
static hp_status measure_compile(const bench_args *a, placement *p, lm *m, double start) {
  m->groups = placement_batch_shards(p);
  step_options o = step_options_of(a, m);
  const planned_program step = {{bench_batch(a, BENCH_TRAINED), a->seq}, a->accumulate};
  hp_program_stats s;
  hp_device *d;
  HP_TRY(placement_find_layers(p, m));
  double total = time_now_s() - start;
  HP_TRY(cli_open_device(&a->m, true, p, &d));
  start = time_now_s();
  hp_status st = placement_apply(p, m, d);
  if (!st) st = plan_step(m, &o, &step, a->m.memory_limit, d, &s);
  total += time_now_s() - start;
  if (!st) st = print_compile(a, m, &s, placement_devices(p), total);
  hp_device_close(d);
  return st;
}

/* Bytes of a device without a limit: of a step, or of a prompt and its cache. */
static hp_status find_resident(const void *context, lm *m, uint64_t *bytes) {
  const model_run *r = context;
  session_options cache;
  hp_memory memory;
  if (r->work == BENCH_TRAIN) {
    step_options o = step_options_of(r->a, m);
    planned_program step = {{r->B, r->T}, r->a->accumulate};
    step_planner *p;
    HP_TRY(step_planner_create(m, &o, &(step_work){&step, 1}, m->d, false, &p));
    hp_status st = step_memory_resident(p, bytes);
    step_planner_free(p);
    return st;
  }
  HP_TRY(cache_options(r, &cache));
  HP_TRY(session_plan(m, &cache, r->T, &memory));
  *bytes = memory.planned_bytes;
  return HP_OK;
}

/* A kind that runs a model.  The limit's threads are made before the device, which binds the caller
 * to one core. */
static hp_status run_model(model_run *r, hp_status (*kind)(model_run *)) {
  hp_device *d;
  HP_TRY(bench_machine_open(r->a, &r->k));
  pool_bind_caller(r->k.threads, false);
  const cli_work work = {find_resident, r};
  hp_status st = open_model(r->a, r->work == BENCH_TRAIN, &work, &d, &r->m);
  if (!st) {
    st = run_open(r);
    if (!st) st = kind(r);
    run_close(r);
    lm_free(r->m);
    hp_device_close(d);
  }
  bench_machine_close(&r->k);
  return st;
}

hp_status bench_step(const bench_args *a) {
  return run_model(&(model_run){.a = a,
                                .work = BENCH_TRAIN,
                                .B = bench_batch(a, BENCH_TRAINED),
                                .T = a->seq,
                                .n = a->steps},
                   measure_step);
}
hp_status bench_prefill(const bench_args *a) {
  return run_model(&(model_run){.a = a,
                                .work = BENCH_PROMPT,
                                .B = bench_batch(a, 1),
                                .T = a->seq,
                                .n = a->steps},
                   measure_prefill);
}
hp_status bench_decode(const bench_args *a) {
  int64_t n = a->steps < TOKENS_LEAST ? TOKENS_LEAST : a->steps;
  return run_model(&(model_run){.a = a,
                                .work = BENCH_TOKEN,
                                .B = bench_batch(a, 1),
                                .T = a->seq,
                                .n = n},
                   measure_decode);
}

hp_status bench_limits(const bench_args *a) {
  placement_options where;
  hp_device *d;
  if (memory_limit_is_share(a->m.memory_limit))
    HP_FAIL(HP_ERR_ARG,
            "--memory-limit: no model runs, which could need less or more; write bytes");
  if (a->m.groups)
    HP_FAIL(HP_ERR_ARG, "--groups: there is no model with layers for them; write --strategy");
  HP_TRY(placement_options_read(&a->m, &where));
  hp_status st = cli_open_device(&a->m, true, &where.p, &d);
  if (!st) {
    st = measure_limits(a, d);
    hp_device_close(d);
  }
  placement_options_free(&where);
  return st;
}

/* Params are not allocated, so any size works. */
hp_status bench_compile(const bench_args *a) {
  placement_options where;
  lm *m = NULL;
  if (!a->m.model) HP_FAIL(HP_ERR_ARG, "--model DIR or CONFIG.json is missing");
  HP_TRY(placement_options_read(&a->m, &where));
  double start = time_now_s();
  const lm_options lo = {.compute = HP_F32, .weights = HP_F32};
  hp_status st = lm_create(a->m.model, NULL, &lo, &m);
  if (!st) st = measure_compile(a, &where.p, m, start);
  lm_free(m);
  placement_options_free(&where);
  return st;
}
