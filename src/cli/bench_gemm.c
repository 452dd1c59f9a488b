/* `hyper bench gemm`: matrix products by every engine that this machine has.
 *
 * Engines and the multiply-add peak take turns, so that all of them see the same machine; ratios
 * are taken turn by turn.  Layouts as BLAS names them: nt is a linear layer's forward, nn its
 * gradient of the input, tn that of the weight (for weights stored [in,out]: nn, nt, tn). */
#include "backend/cpu/engine_table.h"
#include "backend/cpu/machine_limits.h"
#include "base/dtype.h"
#include "cli/bench.h"
#include "model/lm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ENGINES_MAX = 8, ROUNDS_MAX = 1001, SIZE_MAX_ = 1 << 20 };
static const double turn_s = 5e-3; /* small products are repeated to take about that */

typedef struct {
  const bench_args *a;
  bench_machine k;
  hp_dtype type;
  int rounds;
} setting;

/* One thread is timed by its own clock, which stands still while the machine serves others. */
static double now_s(const setting *s) {
  struct timespec t;
  if (pool_size(s->k.threads) > 1) return time_now_s();
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct {
  const gemm_engine *engine;
  void *work;
  size_t work_bytes;
  int repeat;
  double rate[ROUNDS_MAX]; /* flops per second of each turn */
} entrant;

/* A matrix of numbers around 0. */
static void *filled(hp_dtype type, int64_t n) {
  char *p = mem_map((size_t)n * dtype_size(type));
  for (int64_t i = 0; p && i < n; i++) {
    float x = (float)(i * 2654435761u % 1000) * 1e-3f - 0.5f;
    if (type == HP_F32) ((float *)(void *)p)[i] = x;
    else ((uint16_t *)(void *)p)[i] = f32_to_bf16(x);
  }
  return p;
}

static hp_status turn(const setting *s, const entrant *e, const gemm_query *q,
                      const gemm_args *args, double *rate) {
  double start = now_s(s);
  for (int i = 0; i < e->repeat; i++) HP_TRY(e->engine->run(q, args, s->k.threads, e->work));
  *rate = 2.0 * (double)q->m * (double)q->n * (double)q->k * e->repeat / (now_s(s) - start);
  return HP_OK;
}

/* Two turns of one product, the first of which may do what is done once. */
static hp_status warm_up(const setting *s, entrant *e, const gemm_query *q, const gemm_args *args) {
  double rate;
  e->repeat = 1;
  HP_TRY(turn(s, e, q, args, &rate));
  HP_TRY(turn(s, e, q, args, &rate));
  e->repeat += (int)(turn_s * rate / (2.0 * (double)q->m * (double)q->n * (double)q->k));
  return HP_OK;
}

static hp_status enter(const setting *s, const gemm_query *q, entrant *e, int *n) {
  int rows;
  const gemm_engine *const *row = engine_rows(&rows);
  for (int i = 0; i < rows && *n < ENGINES_MAX; i++) {
    if (row[i] == &engine_scalar || !row[i]->available() || !row[i]->supports(q)) continue;
    e[*n].engine = row[i];
    e[*n].work_bytes = row[i]->workspace(q, pool_size(s->k.threads));
    e[*n].work = mem_map(e[*n].work_bytes);
    HP_TRY_MEM(e[*n].work);
    ++*n;
  }
  return HP_OK;
}

static double median_ratio(const double *a, const double *b, int n) {
  double x[ROUNDS_MAX];
  for (int i = 0; i < n; i++) x[i] = a[i] / b[i];
  return bench_median(x, n);
}

static hp_status print(const setting *s, const char *layout, const gemm_query *q, const entrant *e,
                       int n, const double *peak) {
  char key[64];
  double x[ROUNDS_MAX];
  bench_row r = {0};
  bench_row_begin(&r, s->a, "gemm");
  bench_row_machine(&r, &s->k);
  bench_row_text(&r, "dtype", dtype_name(s->type));
  bench_row_text(&r, "layout", layout);
  bench_row_int(&r, "m", q->m);
  bench_row_int(&r, "k", q->k);
  bench_row_int(&r, "n", q->n);
  memcpy(x, peak, sizeof *x * (size_t)s->rounds);
  bench_row_num(&r, "peak_flops", bench_median(x, s->rounds));
  for (int i = 0; i < n; i++) {
    memcpy(x, e[i].rate, sizeof *x * (size_t)s->rounds);
    snprintf(key, sizeof key, "%s_flops", e[i].engine->name);
    bench_row_num(&r, key, bench_median(x, s->rounds));
  }
  for (int i = 1; i < n; i++) {
    snprintf(key, sizeof key, "over_%s", e[i].engine->name);
    bench_row_num(&r, key, median_ratio(e[0].rate, e[i].rate, s->rounds));
  }
  bench_row_num(&r, "of_peak", median_ratio(e[0].rate, peak, s->rounds));
  return bench_row_end(&r);
}

static hp_status take_turns(const setting *s, const char *layout, const gemm_query *q,
                            const gemm_args *args, entrant *e, int n) {
  double peak[ROUNDS_MAX];
  for (int i = 0; i < n; i++) HP_TRY(warm_up(s, &e[i], q, args));
  for (int r = 0; r < s->rounds; r++) {
    peak[r] = limits_measure_flops(s->k.isa, s->k.threads, s->type);
    for (int i = 0; i < n; i++) HP_TRY(turn(s, &e[i], q, args, &e[i].rate[r]));
  }
  return print(s, layout, q, e, n, peak);
}

static hp_status product(const setting *s, const char *layout, int64_t m, int64_t k, int64_t n,
                         hp_dtype out) {
  gemm_query q = gemm_query_make(m, n, k, *layout == 't', layout[1] == 't', s->type, out);
  int64_t elements[3] = {m * k, k * n, m * n};
  hp_dtype type[3] = {s->type, s->type, out};
  void *at[3];
  int entrants = 0;
  entrant *e = mem_calloc(ENGINES_MAX, sizeof *e);
  hp_status st = e ? gemm_check(&q) : HP_ERR_OOM;
  for (int i = 0; i < 3; i++) {
    at[i] = filled(type[i], elements[i]);
    if (!at[i]) st = HP_ERR_OOM;
  }
  if (!st) st = enter(s, &q, e, &entrants);
  if (!st) st = take_turns(s, layout, &q, &(gemm_args){at[0], at[1], at[2], NULL}, e, entrants);
  for (int i = 0; i < entrants; i++) mem_unmap(e[i].work, e[i].work_bytes);
  for (int i = 0; i < 3; i++) mem_unmap(at[i], (size_t)elements[i] * dtype_size(type[i]));
  mem_free(e);
  return st;
}

/* The three products of a weight [rows,cols] in training, for the tokens of a batch. */
static hp_status weight(const setting *s, int64_t rows, int64_t cols) {
  int64_t tokens = s->a->batch * s->a->seq;
  HP_TRY(product(s, "nt", tokens, cols, rows, s->type));
  HP_TRY(product(s, "nn", tokens, rows, cols, s->type));
  return product(s, "tn", rows, tokens, cols, HP_F32);
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

static hp_status model(const setting *s) {
  lm *m;
  HP_TRY(lm_create(s->a->m.model, NULL, &(lm_options){HP_F32, HP_F32}, &m));
  hp_status st = HP_OK;
  for (size_t i = 0; !st && i < m->params.len; i++) {
    const model_param *p = &m->params.at[i];
    bool head = m->c.tied && !strcmp(p->name, m->c.family->embedding_name);
    bool matrix = p->kind == PARAM_MATRIX && p->shape.rank == 2;
    if ((matrix || head) && is_first(m, i)) st = weight(s, p->shape.dim[0], p->shape.dim[1]);
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

/* What is multiplied: --shape, or the weights of --model, or those of models of many sizes. */
static hp_status products(const setting *s) {
  static const int64_t usual[][2] = {{288, 288},  {768, 288},  {768, 768},   {3072, 768},
                                     {768, 3072}, {2048, 768}, {2048, 2048}, {4096, 4096}};
  int64_t size[3];
  if (s->a->shape) {
    HP_TRY(parse_shape(s->a->shape, size));
    return product(s, "nn", size[0], size[1], size[2], s->type);
  }
  if (s->a->m.model) return model(s);
  for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
    HP_TRY(weight(s, usual[i][0], usual[i][1]));
  return HP_OK;
}

hp_status bench_gemm(const bench_args *a) {
  setting s = {.a = a, .rounds = a->steps < ROUNDS_MAX ? (int)a->steps : ROUNDS_MAX};
  hp_dtype type[2];
  int types;
  HP_TRY(bench_dtypes(a, type, &types));
  HP_TRY(bench_machine_open(a, &s.k));
  hp_status st = HP_OK;
  for (int i = 0; !st && i < types; i++) {
    s.type = type[i];
    st = products(&s);
  }
  bench_machine_close(&s.k);
  return st;
}
