/* The engines of a program's products: the one that the device's owner has named, or for each
 * product the fastest one, measured once. */
#include "backend/cpu/cpu_kernel.h"
#include "backend/cpu/engine/engine_measure.h"
#include "base/dtype.h"
#include "base/log.h"
#include "base/milestone.h"

/* Rounds of a measurement: as many as fit the time, but at least this many. */
enum { ROUNDS = 15, ROUNDS_LEAST = 3 };
static const double measure_s = 0.15, tell_s = 1;
static const double part_flops = 2.5e9; /* per thread; of larger products a part is measured */

/* --- measuring -------------------------------------------------------------------------------- */

/* A product without a measurement. */
typedef struct {
  const char *text;
  engine_measure measurement;
} open_product;

typedef struct {
  cpu_device *dev;
  tuning_record cached;
  bool read; /* the cache */
  VEC(open_product) open;
  arena text;
  size_t done; /* of them */
  double start_s, told_s;
} chooser;

/* Reduces the rows or columns of a product that would take long to measure; layouts stay. */
static gemm_query cut_product(const gemm_query *q, int threads) {
  enum { LEAST = 64, UNIT = 32 };
  gemm_query part = *q;
  while (measured_flops(&part) > part_flops * threads) {
    int64_t *size = part.m >= part.n ? &part.m : &part.n;
    if (*size < LEAST) break;
    *size = (*size / 2 + UNIT - 1) / UNIT * UNIT;
  }
  return part;
}

static hp_status run_rounds(engine_measure *r, measured_operands *x, pool *threads) {
  double start = time_now_s();
  while (r->entrants > 1 && r->round < ROUNDS &&
         (r->round < ROUNDS_LEAST || time_now_s() - start < measure_s)) {
    HP_TRY(engine_measure_round(r, x, threads));
    if (r->round == 1) engine_measure_drop(r, ENGINE_HOPELESS);
  }
  return HP_OK;
}

static void tell_progress(chooser *c) {
  double now = time_now_s();
  if (now - c->told_s < tell_s) return;
  c->told_s = now;
  log_info("measuring engines: %zu of %zu products", c->done, c->open.len);
}

/* All measurements of that dtype, one after another in the same memory. */
static hp_status measure_products(chooser *c, hp_dtype type) {
  measured_operands x = {.cold = true};
  hp_status st = HP_OK;
  for (size_t i = 0; i < c->open.len; i++)
    if (c->open.at[i].measurement.q.a_type == type)
      measured_operands_need(&x, &c->open.at[i].measurement);
  if (!x.bytes[0]) return HP_OK;
  st = measured_operands_open(&x, type);
  for (size_t i = 0; i < c->open.len && !st; i++) {
    open_product *k = &c->open.at[i];
    if (k->measurement.q.a_type != type) continue;
    st = run_rounds(&k->measurement, &x, c->dev->threads);
    const gemm_engine *winner = engine_measure_winner(&k->measurement);
    if (!st) st = tuning_record_add(&c->cached, k->text, winner);
    if (!st) st = tuning_record_add(&c->dev->tuning, k->text, winner);
    c->done++;
    milestone_count_work();
    tell_progress(c);
  }
  measured_operands_close(&x);
  return st;
}

static hp_status measure_engines(chooser *c) {
  c->start_s = c->told_s = time_now_s();
  for (hp_dtype t = 0; t < HP_DTYPE_COUNT; t++)
    if (dtype_is_float(t)) HP_TRY(measure_products(c, t));
  engine_cache_write(&c->cached, pool_size(c->dev->threads));
  log_debug("engines of %zu products measured in %.2f s", c->done, time_now_s() - c->start_s);
  return HP_OK;
}

/* --- what is measured ------------------------------------------------------------------------- */

static bool is_open(const chooser *c, const char *text) {
  for (size_t i = 0; i < c->open.len; i++)
    if (!strcmp(c->open.at[i].text, text)) return true;
  return false;
}

/* Takes the engine of a product from the cache, or adds the product to those to be measured. */
static hp_status look_up_engine(chooser *c, const gemm_query *q, const char *text) {
  if (tuning_record_find(&c->dev->tuning, text) || is_open(c, text)) return HP_OK;
  if (!c->read) engine_cache_read(&c->cached, pool_size(c->dev->threads));
  c->read = true;
  const gemm_engine *known = tuning_record_find(&c->cached, text);
  if (known) return tuning_record_add(&c->dev->tuning, text, known);
  gemm_query part = cut_product(q, pool_size(c->dev->threads));
  open_product k = {.text = arena_strdup(&c->text, text)};
  HP_TRY_MEM(k.text);
  HP_TRY(engine_measure_open(&part, pool_size(c->dev->threads), ROUNDS, &k.measurement));
  if (k.measurement.entrants > 1 && vec_push(&c->open, k)) return HP_OK;
  hp_status st = k.measurement.entrants > 1 ? HP_ERR_OOM : HP_OK;
  engine_measure_close(&k.measurement);
  return st ? st : tuning_record_add(&c->dev->tuning, text, engine_default());
}

/* --- choosing --------------------------------------------------------------------------------- */

/* An instruction's product, where it has one that computes anything. */
static hp_status find_product(const program *p, size_t i, einsum_plan *plan, str *text, bool *is) {
  const prog_inst *n = program_inst(p, i);
  *is = n->op == OP_EINSUM && !n->engine;
  if (!*is) return HP_OK;
  HP_TRY(einsum_plan_inst(p, n, 0, plan));
  *is = measured_flops(&plan->gemm) > 0;
  str_clear(text);
  engine_product_print(&plan->gemm, text);
  return str_status(text);
}

/* Chooses engines for the products that have none. */
static hp_status pick_new(cpu_device *d, const program *p) {
  chooser c = {.dev = d};
  einsum_plan plan;
  str text = {0};
  bool is;
  hp_status st = HP_OK;
  for (size_t i = 0; i < p->insts.len && !st; i++) {
    st = find_product(p, i, &plan, &text, &is);
    if (!st && is) st = look_up_engine(&c, &plan.gemm, text.at);
  }
  if (!st && c.open.len) st = measure_engines(&c);
  for (size_t i = 0; i < c.open.len; i++) engine_measure_close(&c.open.at[i].measurement);
  vec_free(&c.open);
  tuning_record_free(&c.cached);
  arena_free(&c.text);
  str_free(&text);
  return st;
}

/* Products of few rows use our engine unless measured: memory bounds them, and libraries, made
 * for many rows, read it slowly. */
static const gemm_engine *choose_engine(const cpu_device *d, const gemm_query *q,
                                        const char *text) {
  if (!d->engine) return tuning_record_find(&d->tuning, text);
  return gemm_reads_once(q) ? engine_default() : d->engine;
}

hp_status cpu_choose_engines(void *dev, program *p) {
  cpu_device *d = dev;
  einsum_plan plan;
  str text = {0};
  bool is;
  if (d->engine == engine_default()) return HP_OK;
  hp_status st = d->engine ? HP_OK : pick_new(d, p);
  for (size_t i = 0; i < p->insts.len && !st; i++) {
    st = find_product(p, i, &plan, &text, &is);
    if (st || !is) continue;
    const gemm_engine *e = choose_engine(d, &plan.gemm, text.at);
    if (!e || e == engine_default() || !einsum_supports(&plan, e)) continue;
    p->insts.at[i].engine = graph_string(p->names, e->name);
    st = graph_status(p->names);
  }
  str_free(&text);
  return st;
}
