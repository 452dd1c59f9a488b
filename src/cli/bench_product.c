#include "cli/bench_product.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "cli/bench.h"

#include <string.h>
#include <time.h>

static const double turn_s = 5e-3; /* small products are repeated to take about that */

double bench_product_flops(const gemm_query *q) {
  return 2.0 * (double)q->m * (double)q->n * (double)q->k * (double)gemm_items(q);
}

hp_status bench_product_open(const gemm_query *q, int threads, int turns, bench_product *out) {
  int rows;
  const gemm_engine *const *row = engine_rows(&rows);
  *out = (bench_product){.q = *q, .turns = turns};
  HP_TRY(gemm_check(q));
  for (int i = 0; i < rows && out->entrants < BENCH_ENGINES; i++) {
    if (row[i] == &engine_scalar || !row[i]->available() || !row[i]->supports(q)) continue;
    bench_entrant *e = &out->e[out->entrants++];
    e->engine = row[i];
    e->work_bytes = row[i]->workspace(q, threads);
    e->seconds = mem_calloc((size_t)turns, sizeof *e->seconds);
    if (!e->seconds) {
      bench_product_close(out);
      return HP_ERR_OOM;
    }
  }
  return HP_OK;
}

void bench_product_close(bench_product *p) {
  for (int i = 0; i < p->entrants; i++) mem_free(p->e[i].seconds);
  p->entrants = 0;
}

void bench_operands_need(bench_operands *x, const bench_product *p) {
  const gemm_query *q = &p->q;
  size_t items = (size_t)gemm_items(q);
  size_t need[4] = {items * (size_t)(q->m * q->k) * dtype_size(q->a_type),
                    items * (size_t)(q->k * q->n) * dtype_size(q->b_type),
                    items * (size_t)(q->m * q->n) * dtype_size(q->c_type), 1};
  for (int i = 0; i < p->entrants; i++)
    if (p->e[i].work_bytes > need[3]) need[3] = p->e[i].work_bytes;
  for (int i = 0; i < 4; i++)
    if (need[i] > x->bytes[i]) x->bytes[i] = need[i];
}

hp_status bench_operands_open(bench_operands *x, hp_dtype type) {
  for (int i = 0; i < 4; i++) {
    x->at[i] = mem_map(x->bytes[i]);
    HP_TRY_MEM(x->at[i]);
    if (i > 1) continue;
    size_t n = x->bytes[i] / dtype_size(type);
    for (size_t k = 0; k < n; k++) {
      float v = (float)(k * 2654435761u % 1000) * 1e-3f - 0.5f;
      if (type == HP_F32) ((float *)x->at[i])[k] = v;
      else ((uint16_t *)x->at[i])[k] = f32_to_bf16(v);
    }
  }
  return HP_OK;
}

void bench_operands_close(bench_operands *x) {
  for (int i = 0; i < 4; i++) mem_unmap(x->at[i], x->bytes[i]);
}

/* One thread is timed by its own clock, which stands still while the machine serves others. */
static double now_s(const pool *threads) {
  struct timespec t;
  if (pool_size(threads) > 1) return time_now_s();
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds of one run, of n. */
static hp_status run(const bench_product *p, const bench_entrant *e, const bench_operands *x,
                     pool *threads, int n, double *seconds) {
  gemm_args args = {x->at[0], x->at[1], x->at[2], NULL};
  double start = now_s(threads);
  for (int i = 0; i < n; i++) HP_TRY(e->engine->run(&p->q, &args, threads, x->at[3]));
  *seconds = (now_s(threads) - start) / n;
  return HP_OK;
}

hp_status bench_product_turn(bench_product *p, const bench_operands *x, pool *threads) {
  for (int i = 0; i < p->entrants; i++) {
    bench_entrant *e = &p->e[i];
    double s;
    if (!e->repeat) {
      HP_TRY(run(p, e, x, threads, 1, &s));
      HP_TRY(run(p, e, x, threads, 1, &s));
      e->repeat = 1 + (int)(turn_s / (s > 0 ? s : turn_s));
    }
    HP_TRY(run(p, e, x, threads, e->repeat, &e->seconds[p->turn]));
  }
  p->turn++;
  return HP_OK;
}

double bench_product_seconds(const bench_product *p, int e) {
  double x[BENCH_TURNS];
  memcpy(x, p->e[e].seconds, sizeof *x * (size_t)p->turn);
  return bench_median(x, p->turn);
}

double bench_product_best(const bench_product *p) {
  double best = 0;
  for (int i = 0; i < p->entrants; i++) {
    double s = bench_product_seconds(p, i);
    if (i == 0 || s < best) best = s;
  }
  return best;
}
