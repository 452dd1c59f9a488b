/* `hyper bench gemm`: matrix products by every engine that this machine has.
 *
 * Engines and the multiply-add peak are measured in rounds, so that all of them see the same
 * machine; ratios are taken round by round.  Layouts as BLAS names them: nt is a linear layer's
 * forward, nn its gradient of the input, tn that of the weight (for weights stored [in,out]: nn,
 * nt, tn). */
#include "backend/cpu/machine_limits.h"
#include "base/dtype.h"
#include "cli/bench.h"
#include "model/lm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE_MAX_ = 1 << 20 };

typedef struct {
  const bench_args *a;
  bench_machine k;
  hp_dtype type;
  int rounds;
} setting;

/* peak: seconds of the product at the peak of multiply-adds, by round. */
static hp_status print_product(const setting *s, const char *layout, const engine_measure *p,
                               double *peak) {
  double flops = measured_flops(&p->q);
  char key[64];
  bench_row r;
  bench_line_begin(&r, s->a, "gemm");
  bench_row_machine(&r, &s->k);
  bench_row_text(&r, "dtype", dtype_name(s->type));
  bench_row_text(&r, "layout", layout);
  bench_row_int(&r, "m", p->q.m);
  bench_row_int(&r, "k", p->q.k);
  bench_row_int(&r, "n", p->q.n);
  double of_peak[MEASURE_ROUNDS];
  for (int i = 0; i < p->round; i++) of_peak[i] = peak[i] / p->e[0].seconds[i];
  bench_row_num(&r, "peak_flops", flops / measured_median(peak, p->round));
  for (int i = 0; i < p->entrants; i++) {
    snprintf(key, sizeof key, "%s_flops", p->e[i].engine->name);
    bench_row_num(&r, key, flops / engine_measure_seconds(p, i));
  }
  for (int i = 1; i < p->entrants; i++) {
    snprintf(key, sizeof key, "over_%s", p->e[i].engine->name);
    bench_row_num(&r, key, engine_measure_ratio(p, i));
  }
  bench_row_num(&r, "of_peak", measured_median(of_peak, p->round));
  str plan = {0};
  gemm_packed_print(s->k.isa, &p->q, pool_size(s->k.threads), &plan);
  if (plan.at) bench_row_text(&r, "packed_plan", plan.at);
  str_free(&plan);
  return bench_row_end(&r);
}

static hp_status run_rounds(const setting *s, const char *layout, engine_measure *p) {
  double peak[MEASURE_ROUNDS];
  measured_operands x = {0};
  measured_operands_need(&x, p);
  hp_status st = measured_operands_open(&x, s->type);
  for (int i = 0; !st && i < s->rounds; i++) {
    peak[i] = measured_flops(&p->q) / limits_measure_flops(s->k.isa, s->k.threads, s->type);
    st = engine_measure_round(p, &x, s->k.threads);
  }
  if (!st) st = print_product(s, layout, p, peak);
  measured_operands_close(&x);
  return st;
}

static hp_status bench_product(const setting *s, const char *layout, int64_t m, int64_t k,
                               int64_t n, hp_dtype out) {
  gemm_query q = gemm_query_make(m, n, k, *layout == 't', layout[1] == 't', s->type, out);
  engine_measure p;
  HP_TRY(engine_measure_open(&q, pool_size(s->k.threads), s->rounds, &p));
  hp_status st = run_rounds(s, layout, &p);
  engine_measure_close(&p);
  return st;
}

/* The three products of a weight [rows,cols] in training, for the tokens of a batch. */
static hp_status bench_weight(const setting *s, int64_t rows, int64_t cols) {
  int64_t tokens = bench_batch(s->a, BENCH_TRAINED) * s->a->seq;
  HP_TRY(bench_product(s, "nt", tokens, cols, rows, s->type));
  HP_TRY(bench_product(s, "nn", tokens, rows, cols, s->type));
  return bench_product(s, "tn", rows, tokens, cols, HP_F32);
}

/* Is it the first of its shape among the products of m? */
static bool is_first(const lm *m, size_t i) {
  const hp_shape *x = &m->params.at[i].shape;
  for (size_t k = 0; k < i; k++) {
    const model_param *p = &m->params.at[k];
    if (p->kind == m->params.at[i].kind && p->shape.dim[0] == x->dim[0] &&
        p->shape.dim[1] == x->dim[1])
      return false;
  }
  return true;
}

static hp_status bench_model_products(const setting *s) {
  lm *m;
  HP_TRY(lm_create(s->a->m.model, NULL, &(lm_options){.compute = HP_F32, .weights = HP_F32}, &m));
  hp_status st = HP_OK;
  for (size_t i = 0; !st && i < m->params.len; i++) {
    const model_param *p = &m->params.at[i];
    if (lm_is_product(m, p) && p->shape.rank == 2 && is_first(m, i))
      st = bench_weight(s, p->shape.dim[0], p->shape.dim[1]);
  }
  lm_free(m);
  return st;
}

/* "MxKxN" */
static hp_status parse_shape(const char *text, int64_t size[3]) {
  const char *p = text;
  for (int i = 0; i < 3; i++) {
    char *end;
    size[i] = strtoll(p, &end, 10);
    if (end == p || size[i] < 1 || size[i] > SIZE_MAX_ || *end != (i < 2 ? 'x' : 0))
      HP_FAIL(HP_ERR_ARG, "--shape \"%s\": expected MxKxN, as 1024x768x3072, each 1 to %d", text,
              SIZE_MAX_);
    p = end + 1;
  }
  return HP_OK;
}

/* The products: --shape, the weights of --model, or those of models of many sizes. */
static hp_status bench_products(const setting *s) {
  static const int64_t usual[][2] = {{288, 288},  {768, 288},  {768, 768},   {3072, 768},
                                     {768, 3072}, {2048, 768}, {2048, 2048}, {4096, 4096}};
  int64_t size[3];
  if (s->a->shape) {
    HP_TRY(parse_shape(s->a->shape, size));
    return bench_product(s, "nn", size[0], size[1], size[2], s->type);
  }
  if (s->a->m.model) return bench_model_products(s);
  for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
    HP_TRY(bench_weight(s, usual[i][0], usual[i][1]));
  return HP_OK;
}

hp_status bench_gemm(const bench_args *a) {
  setting s = {.a = a, .rounds = a->steps < MEASURE_ROUNDS ? (int)a->steps : MEASURE_ROUNDS};
  hp_dtype type[2];
  int types;
  HP_TRY(bench_dtypes(a, type, &types));
  HP_TRY(bench_machine_open(a, &s.k));
  hp_status st = HP_OK;
  for (int i = 0; !st && i < types; i++) {
    s.type = type[i];
    st = bench_products(&s);
  }
  bench_machine_close(&s.k);
  return st;
}
