#include "cli/bench_limit.h"

#include "backend/cpu/machine_limits.h"
#include "base/dtype.h"
#include "base/mem.h"
#include "base/vec.h"
#include "cli/bench.h"

#include <string.h>

/* Operands above this are cut: fewer tokens or heads are multiplied, and count for more. */
enum { OPERAND_BYTES = 512 << 20, TOKENS_LEAST = 512 };

typedef struct {
  engine_measure p;
  double count; /* of it in the work */
} part;

struct bench_limit {
  const lm *m;
  bench_work work;
  int64_t B, T;
  pool *threads;
  int rounds, round;
  VEC(part) parts;
  measured_operands operands;
  double bytes;
  double read[MEASURE_ROUNDS], peak[MEASURE_ROUNDS];
};

static bool is_same(const gemm_query *a, const gemm_query *b) {
  return a->m == b->m && a->n == b->n && a->k == b->k && a->a_m == b->a_m && a->b_n == b->b_n &&
         a->c_type == b->c_type && gemm_items(a) == gemm_items(b);
}

static hp_status append_product(bench_limit *l, const gemm_query *q, double count) {
  for (size_t i = 0; i < l->parts.len; i++)
    if (is_same(&l->parts.at[i].p.q, q)) {
      l->parts.at[i].count += count;
      return HP_OK;
    }
  part p = {.count = count};
  HP_TRY(engine_measure_open(q, pool_size(l->threads), l->rounds, &p.p));
  if (vec_push(&l->parts, p)) return HP_OK;
  engine_measure_close(&p.p);
  return HP_ERR_OOM;
}

/* `items` products C = op(A) op(B) of packed matrices. */
static hp_status add_product(bench_limit *l, const char *layout, int64_t items, int64_t m,
                             int64_t k, int64_t n, hp_dtype out, double count) {
  gemm_query q = gemm_query_make(m, n, k, *layout == 't', layout[1] == 't', l->m->compute, out);
  q.n_batch = items > 1;
  q.batch[0] = (gemm_batch){items, m * k, k * n, m * n};
  return append_product(l, &q, count);
}

/* A linear layer [rows,cols], or `items` of them, for that many tokens each.  (Of weights stored
 * the other way round the first and the second product change places.)  A frozen one has no
 * gradient of its weights. */
static hp_status add_linear(bench_limit *l, int64_t items, int64_t rows, int64_t cols,
                            int64_t tokens, bool trained) {
  int64_t widest = rows > cols ? rows : cols, most = OPERAND_BYTES / 4 / (widest * items), n;
  if (most < TOKENS_LEAST) most = TOKENS_LEAST;
  n = tokens < most ? tokens : most;
  double count = (double)tokens / (double)n;
  HP_TRY(add_product(l, "nt", items, n, cols, rows, l->m->compute, count));
  if (l->work != BENCH_TRAIN) return HP_OK;
  HP_TRY(add_product(l, "nn", items, n, rows, cols, l->m->compute, count));
  return trained ? add_product(l, "tn", items, rows, n, cols, HP_F32, count) : HP_OK;
}

/* Share of all pairs of a query and a key that a causal layer multiplies, of half when there is no
 * window. */
static double find_pair_share(const model_config *c, int64_t layer, int64_t T) {
  double t = (double)T, w = (double)c->window;
  if (!c->window || !c->windowed[layer] || w >= t) return 0.5;
  return (w * t - w * w / 2) / (t * t);
}

/* Scores and what they weigh; backwards each has two products. */
static hp_status add_attention(bench_limit *l, double share) {
  const model_config *c = &l->m->c;
  int64_t T = l->T, D = c->head_dim, V = c->latent.v_dim ? c->latent.v_dim : D;
  int64_t heads = l->B * c->heads, most = OPERAND_BYTES / 4 / (T * T), n;
  if (most < pool_size(l->threads)) most = pool_size(l->threads);
  n = heads < most ? heads : most;
  double count = share * (double)heads / (double)n;
  hp_dtype t = l->m->compute;
  bool train = l->work == BENCH_TRAIN;
  HP_TRY(add_product(l, "nt", n, T, D, T, t, count));
  HP_TRY(add_product(l, "nn", n, T, T, V, t, count));
  if (!train) return HP_OK;
  HP_TRY(add_product(l, "nt", n, T, V, T, t, count)); /* of the weights */
  HP_TRY(add_product(l, "nn", n, T, T, D, t, count)); /* of queries */
  HP_TRY(add_product(l, "tn", n, T, T, D, t, count)); /* of keys */
  return add_product(l, "tn", n, T, T, V, t, count);  /* of values */
}

/* A stack of experts has a token's rows in per_token of them. */
static hp_status add_param(bench_limit *l, const model_param *p, bool trained) {
  const model_config *c = &l->m->c;
  const hp_shape stored = p->order ? model_param_stored(p) : p->shape;
  const int64_t *dim = stored.dim;
  int64_t tokens = l->B * l->T;
  if (stored.rank == 2) return add_linear(l, 1, dim[0], dim[1], tokens, trained);
  if (stored.rank != 3 || !c->moe.experts) return HP_OK;
  int64_t rows = tokens * c->moe.per_token / c->moe.experts;
  return add_linear(l, dim[0], dim[1], dim[2], rows > 0 ? rows : 1, trained);
}

static double count_weight_bytes(const lm *m, const model_param *p) {
  return lm_elements_used(m, p) * (double)dtype_size(m->weights);
}

static double count_cache_bytes(const lm *m, int64_t B, int64_t T) {
  const model_config *c = &m->c;
  return 2.0 * (double)(B * T * c->layers * c->kv_heads * c->head_dim) *
         (double)dtype_size(m->compute);
}

static hp_status add_update(bench_limit *l, const optimizer_options *by, const model_param *p) {
  l->bytes += 12 * (double)model_param_elements(p) + 8 * (double)optimizer_state_size(by, p);
  if (by->kind != OPTIMIZER_MUON || !optimizer_is_of_muon(p)) return HP_OK;
  const int64_t *dim = p->shape.dim;
  int64_t n = dim[0] < dim[1] ? dim[0] : dim[1], k = dim[0] < dim[1] ? dim[1] : dim[0];
  HP_TRY(add_product(l, "nt", 1, n, k, n, HP_F32, MUON_STEPS)); /* y y^T */
  HP_TRY(add_product(l, "nn", 1, n, n, n, HP_F32, MUON_STEPS)); /* its square */
  return add_product(l, "nn", 1, n, n, k, HP_F32, MUON_STEPS);  /* what they make of y */
}

static hp_status list_products(bench_limit *l, const optimizer_options *by) {
  const lm *m = l->m;
  for (size_t i = 0; l->work == BENCH_TRAIN && i < m->trained; i++)
    HP_TRY(add_update(l, by, &m->params.at[i]));
  if (l->work == BENCH_TOKEN) l->bytes = count_cache_bytes(m, l->B, l->T);
  for (size_t i = 0; i < m->params.len; i++) {
    const model_param *p = &m->params.at[i];
    bool head = p->kind == PARAM_EMBEDDING || !strcmp(p->name, m->c.family->head_name);
    if (!lm_is_product(m, p) && p->kind != PARAM_LORA_A && p->kind != PARAM_LORA_B) continue;
    if (l->work == BENCH_TOKEN || (l->work == BENCH_PROMPT && head))
      l->bytes += count_weight_bytes(m, p);
    else HP_TRY(add_param(l, p, i < m->trained));
  }
  for (int64_t i = 0; l->work != BENCH_TOKEN && i < m->c.layers; i++)
    HP_TRY(add_attention(l, find_pair_share(&m->c, i, l->T)));
  return HP_OK;
}

hp_status bench_limit_create(const lm *m, bench_work work, const optimizer_options *by, int64_t B,
                             int64_t T, pool *threads, int rounds, bench_limit **out) {
  bench_limit *l = mem_calloc(1, sizeof *l);
  HP_TRY_MEM(l);
  l->m = m, l->work = work, l->B = B, l->T = T, l->threads = threads;
  l->rounds = rounds < MEASURE_ROUNDS ? rounds : MEASURE_ROUNDS;
  hp_status st = list_products(l, by);
  for (size_t i = 0; i < l->parts.len; i++) measured_operands_need(&l->operands, &l->parts.at[i].p);
  if (!st && l->parts.len) st = measured_operands_open(&l->operands, m->compute);
  if (st) bench_limit_free(l);
  else *out = l;
  return st;
}

void bench_limit_free(bench_limit *l) {
  if (!l) return;
  for (size_t i = 0; i < l->parts.len; i++) engine_measure_close(&l->parts.at[i].p);
  measured_operands_close(&l->operands);
  vec_free(&l->parts);
  mem_free(l);
}

hp_status bench_limit_round(bench_limit *l) {
  cpu_isa isa = cpu_best_isa();
  if (l->round == l->rounds) return HP_OK;
  l->peak[l->round] = limits_measure_flops(isa, l->threads, l->m->compute);
  HP_TRY(limits_measure_read(isa, l->threads, 0, &l->read[l->round]));
  for (size_t i = 0; i < l->parts.len; i++)
    HP_TRY(engine_measure_round(&l->parts.at[i].p, &l->operands, l->threads));
  l->round++;
  return HP_OK;
}

static double find_median(const double *x, int n) {
  double copy[MEASURE_ROUNDS];
  memcpy(copy, x, sizeof *copy * (size_t)n);
  return measured_median(copy, n);
}

bench_limit_result bench_limit_get(const bench_limit *l) {
  bench_limit_result r = {.bytes = l->bytes,
                          .peak_flops = find_median(l->peak, l->round),
                          .bytes_per_s = find_median(l->read, l->round)};
  r.bytes_s = r.bytes / r.bytes_per_s;
  for (size_t i = 0; i < l->parts.len; i++) {
    const part *p = &l->parts.at[i];
    r.flops += p->count * measured_flops(&p->p.q);
    r.matmul_s += p->count * engine_measure_best(&p->p);
  }
  return r;
}
