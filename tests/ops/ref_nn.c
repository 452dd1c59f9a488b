/* Reference of the composite rows: what models are made of, random numbers, optimizers. */
#include "base/dtype.h"
#include "ops/paged.h"
#include "ops/ref.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

static double largest_error(const ref_tensor *t) {
  double e = 0;
  for (int64_t k = 0; k < t->n; k++)
    if (t->e[k] > e) e = t->e[k];
  return e;
}
static double *doubles(int64_t n) {
  double *p = calloc((size_t)n + 1, sizeof *p);
  HP_ASSERT(p);
  return p;
}

/* --- tables ----------------------------------------------------------------------------------- */

void ref_EMBEDDING(ref_ctx *c) {
  const ref_tensor *table = c->in[0];
  int64_t width = table->dim[1];
  for (int64_t k = 0; k < c->out[0]->n; k++)
    if (c->in[1]->i[k / width] != ID_ELSEWHERE)
      ref_copy(c->out[0], k, table, c->in[1]->i[k / width] * width + k % width);
}

void ref_EMBEDDING_GRAD(ref_ctx *c) {
  const ref_tensor *dy = c->in[0];
  ref_tensor *y = c->out[0];
  int64_t width = y->dim[1];
  double *sum = doubles(y->n), *count = doubles(y->n), grain = ref_grain(dy);
  for (int64_t k = 0; k < dy->n; k++) {
    int64_t id = c->in[1]->i[k / width], to = id * width + k % width;
    if (id == ID_ELSEWHERE) continue;
    y->f[to] += dy->f[k];
    y->e[to] += dy->e[k];
    sum[to] += fabs(dy->f[k]);
    count[to]++;
  }
  const ref_tensor *start = c->n->n_in == 3 ? c->in[2] : NULL;
  for (int64_t k = 0; start && k < y->n; k++) {
    y->f[k] += start->f[k];
    y->e[k] += start->e[k];
    sum[k] += fabs(start->f[k]);
    count[k]++;
  }
  if (start && (!grain || !ref_grain(start))) grain = 0;
  else if (start) grain = fmin(grain, ref_grain(start));
  for (int64_t k = 0; k < y->n; k++)
    if (count[k] > 1) y->e[k] += ref_sum_error(c, count[k], sum[k], grain);
  free(sum);
  free(count);
}

/* --- softmax and norms, over rows of `width` -------------------------------------------------- */

static double row_max(const double *x, int64_t n) {
  double m = -INFINITY;
  for (int64_t k = 0; k < n; k++) m = x[k] > m ? x[k] : m;
  return m;
}

void ref_SOFTMAX(ref_ctx *c) {
  const ref_tensor *x = c->in[0];
  ref_tensor *y = c->out[0];
  int64_t width = x->dim[x->rank - 1];
  double e = largest_error(x);
  for (int64_t r = 0; width && r < x->n / width; r++) {
    const double *v = x->f + r * width;
    double m = row_max(v, width), sum = 0;
    for (int64_t k = 0; k < width; k++) sum += exp(v[k] - m);
    for (int64_t k = 0; k < width; k++) {
      double p = exp(v[k] - m) / sum;
      y->f[r * width + k] = p;
      y->e[r * width + k] = p * (expm1(2 * e) + ref_eps * (32 + 4 * fabs(v[k] - m))) + 1e-38;
    }
  }
}

/* Both norms: of x - shift; w and b may be NULL. */
static void norm(ref_ctx *c, bool centered, const ref_tensor *w, const ref_tensor *b) {
  const ref_tensor *x = c->in[0];
  ref_tensor *y = c->out[0];
  int64_t width = x->dim[x->rank - 1];
  double eps = attr_float(c->g, c->n, "eps");
  for (int64_t r = 0; width && r < x->n / width; r++) {
    const double *v = x->f + r * width, *ve = x->e + r * width;
    double mean = 0, ms = 0, big = 0, off = 0, wide = (double)width, err = 0;
    for (int64_t k = 0; k < width; k++) mean += centered ? v[k] / wide : 0;
    for (int64_t k = 0; k < width; k++) {
      ms += (v[k] - mean) * (v[k] - mean) / wide;
      big = fabs(v[k]) > big ? fabs(v[k]) : big;
      off = ve[k] > off ? ve[k] : off;
    }
    err = (centered ? 2 * off + 8 * ref_eps * big : off); /* of x - mean */
    double scale = 1 / sqrt(ms + eps), turn = err * sqrt(ms) / (ms + eps) + 32 * ref_eps;
    for (int64_t k = 0; k < width; k++) {
      int64_t at = r * width + k;
      double n = (v[k] - mean) * scale, g = w->f[k];
      y->f[at] = n * g + (b ? b->f[k] : 0);
      y->e[at] = fabs(g) * (err * scale + fabs(n) * turn) + fabs(n) * w->e[k] +
                 (b ? b->e[k] + 2 * ref_eps * (fabs(n * g) + fabs(b->f[k])) : 0);
    }
  }
}
void ref_RMS_NORM(ref_ctx *c) { norm(c, false, c->in[1], NULL); }
void ref_LAYER_NORM(ref_ctx *c) { norm(c, true, c->in[1], c->in[2]); }

void ref_ROPE(ref_ctx *c) {
  const ref_tensor *x = c->in[0];
  ref_tensor *y = c->out[0];
  bool inverse = attr_int(c->g, c->n, "inverse") != 0;
  bool interleaved = attr_int(c->g, c->n, "interleaved") != 0;
  int64_t heads = x->dim[2], width = x->dim[3], half = c->in[1]->dim[1];
  for (int64_t k = 0; k < y->n; k++) ref_copy(y, k, x, k);
  for (int64_t row = 0; width && row < x->n / width; row++) {
    int64_t p = c->in[3]->i[row / heads];
    for (int64_t j = 0; j < half; j++) {
      int64_t a = row * width + (interleaved ? 2 * j : j);
      int64_t b = row * width + (interleaved ? 2 * j + 1 : j + half);
      double cs = c->in[1]->f[p * half + j], sn = c->in[2]->f[p * half + j];
      double u = x->f[a], v = x->f[b];
      if (inverse) sn = -sn;
      double e = fabs(cs) * (x->e[a] + x->e[b]) + fabs(sn) * (x->e[a] + x->e[b]);
      y->f[a] = u * cs - v * sn;
      y->f[b] = v * cs + u * sn;
      y->e[a] = y->e[b] = e + 2 * ref_eps * (fabs(u) + fabs(v)) * (fabs(cs) + fabs(sn));
    }
  }
}

/* --- random numbers --------------------------------------------------------------------------- */

/* Philox4x32-10 of Salmon et al. 2011: word `index` of the stream. */
static void philox(uint64_t seed, uint64_t stream, uint64_t block, uint32_t x[4]) {
  uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
  x[0] = (uint32_t)block, x[1] = (uint32_t)(block >> 32);
  x[2] = (uint32_t)stream, x[3] = (uint32_t)(stream >> 32);
  for (int round = 0; round < 10; round++) {
    uint64_t a = 0xD2511F53ull * x[0], b = 0xCD9E8D57ull * x[2];
    uint32_t y[4] = {(uint32_t)(b >> 32) ^ x[1] ^ key[0], (uint32_t)b,
                     (uint32_t)(a >> 32) ^ x[3] ^ key[1], (uint32_t)a};
    memcpy(x, y, sizeof y);
    key[0] += 0x9E3779B9u, key[1] += 0xBB67AE85u;
  }
}

/* Number `index` of a stream, in [0, 1). */
static double uniform(uint64_t seed, uint64_t stream, uint64_t index) {
  uint32_t x[4];
  philox(seed, stream, index / 4, x);
  return ldexp((double)(x[index % 4] >> 8), -24);
}

void ref_UNIFORM(ref_ctx *c) {
  uint64_t seed = (uint64_t)c->in[0]->i[0], stream = (uint64_t)attr_int(c->g, c->n, "stream");
  for (int64_t k = 0; k < c->out[0]->n; k++) c->out[0]->f[k] = uniform(seed, stream, (uint64_t)k);
}

/* Box and Muller: radius from one word, angle from the next. */
void ref_NORMAL(ref_ctx *c) {
  uint64_t seed = (uint64_t)c->in[0]->i[0], stream = (uint64_t)attr_int(c->g, c->n, "stream");
  for (int64_t k = 0; k < c->out[0]->n; k++) {
    uint32_t x[4];
    philox(seed, stream, (uint64_t)k / 4, x);
    float u = (float)x[k & 2] + 1.0f;
    double radius = sqrt(-2 * log(ldexp(u, -32))), turn = ldexp(x[(k & 2) + 1], -32);
    double angle = 2 * acos(-1) * turn;
    c->out[0]->f[k] = radius * (k & 1 ? sin(angle) : cos(angle));
    c->out[0]->e[k] = 8 * ref_eps * (radius + 1e-3);
  }
}

void ref_DROPOUT(ref_ctx *c) {
  const ref_tensor *x = c->in[0];
  double p = attr_float(c->g, c->n, "p"), kept = 1 / (1 - p);
  uint64_t seed = (uint64_t)c->in[1]->i[0], stream = (uint64_t)attr_int(c->g, c->n, "stream");
  for (int64_t k = 0; k < x->n; k++) {
    bool keep = uniform(seed, stream, (uint64_t)k) >= (float)p;
    c->out[0]->f[k] = keep ? x->f[k] * kept : 0;
    c->out[0]->e[k] = keep ? x->e[k] * kept + 2 * ref_eps * fabs(x->f[k] * kept) : 0;
  }
}

/* --- attention -------------------------------------------------------------------------------- */

typedef struct {
  const ref_tensor *q, *k, *v, *span;
  int64_t B, T, S, H, KV, D, Dv;
  double scale, weight_error; /* of a weight, relative */
  double value_error;         /* of any value */
  bool causal;
  int64_t window;
  double dropout;
  uint64_t seed, stream, first, sequence;
} attention;

/* What follows from q, k, v and the scale. */
static void put_sizes(attention *a) {
  a->B = a->q->dim[0], a->T = a->q->dim[1], a->H = a->q->dim[2], a->D = a->q->dim[3];
  a->S = a->k->dim[1], a->KV = a->k->dim[2], a->Dv = a->v->dim[3];
  a->sequence = (uint64_t)(a->H * a->T);
  double e = largest_error(a->q) + largest_error(a->k), big = 1;
  a->value_error = largest_error(a->v);
  for (int64_t i = 0; i < a->q->n; i++) big = fmax(big, fabs(a->q->f[i]));
  for (int64_t i = 0; i < a->k->n; i++) big = fmax(big, fabs(a->k->f[i]));
  double d = (double)a->D;
  a->weight_error =
      2 * expm1(2 * a->scale * d * big * e) + ref_eps * (64 + 8 * d * a->scale * big * big);
  if (a->q->type != HP_F32) a->weight_error += 0x1p-8;
}

/* Span and seed from operand `more` on. */
static attention attention_of(ref_ctx *c, int more) {
  attention a = {.q = c->in[0], .k = c->in[1], .v = c->in[2]};
  int end = c->n->n_in;
  a.dropout = attr_float(c->g, c->n, "dropout");
  a.stream = (uint64_t)attr_int(c->g, c->n, "stream");
  const ref_tensor *seed = a.dropout > 0 ? c->in[--end] : NULL;
  if (seed) a.seed = (uint64_t)seed->i[0];
  a.span = more < end ? c->in[more] : NULL;
  a.scale = attr_float(c->g, c->n, "scale");
  a.causal = attr_int(c->g, c->n, "causal") != 0;
  a.window = attr_int(c->g, c->n, "window");
  put_sizes(&a);
  if (seed && seed->rank) a.first = (uint64_t)seed->i[1], a.sequence = (uint64_t)seed->i[2];
  return a;
}

/* Does query t of sequence b see key s? */
static bool sees(const attention *a, int64_t b, int64_t t, int64_t s) {
  int64_t self = t + a->S - a->T;
  if (a->span) {
    const int64_t *p = a->span->i + (b * a->T + t) * 2;
    if (s < p[0] || s > p[1]) return false;
    self = p[1];
  } else if (a->causal && s > self) return false;
  return !a->window || s > self - a->window;
}

static int64_t row_at(const ref_tensor *x, int64_t b, int64_t t, int64_t h) {
  return ((b * x->dim[1] + t) * x->dim[2] + h) * x->dim[3];
}

/* Weights [S] of a query, and the log of their sum; all zero when it sees no key. */
static double weights(const attention *a, int64_t b, int64_t t, int64_t h, double *p) {
  const double *q = a->q->f + row_at(a->q, b, t, h);
  double m = -INFINITY, sum = 0;
  for (int64_t s = 0; s < a->S; s++) {
    const double *k = a->k->f + row_at(a->k, b, s, h / (a->H / a->KV));
    p[s] = 0;
    for (int64_t d = 0; d < a->D; d++) p[s] += q[d] * k[d] * a->scale;
    if (!sees(a, b, t, s)) p[s] = -INFINITY;
    else m = fmax(m, p[s]);
  }
  for (int64_t s = 0; s < a->S; s++) {
    p[s] = m == -INFINITY ? 0 : exp(p[s] - m);
    sum += p[s];
  }
  for (int64_t s = 0; s < a->S && sum > 0; s++) p[s] /= sum;
  return m + log(sum);
}

/* What dropout multiplies the weight of a query and key s with. */
static double kept(const attention *a, int64_t b, int64_t t, int64_t h, int64_t s) {
  uint64_t row = a->first + (uint64_t)b * a->sequence + (uint64_t)(h * a->T + t);
  if (a->dropout == 0) return 1;
  double u = uniform(a->seed, a->stream, row << 34 | (uint64_t)s);
  return u >= (float)a->dropout ? 1 / (1 - a->dropout) : 0;
}

/* The row of o from the weights p of its keys. */
static void sum_of_values(ref_ctx *c, const attention *a, int64_t b, int64_t t, int64_t h,
                          const double *p) {
  int64_t at = row_at(c->out[0], b, t, h);
  for (int64_t s = 0; s < a->S; s++) {
    const double *v = a->v->f + row_at(a->v, b, s, h / (a->H / a->KV));
    double w = p[s] * kept(a, b, t, h, s);
    for (int64_t d = 0; d < a->Dv; d++) {
      c->out[0]->f[at + d] += w * v[d];
      c->out[0]->e[at + d] += w * (fabs(v[d]) * a->weight_error + a->value_error);
    }
  }
}

void ref_ATTENTION(ref_ctx *c) {
  attention a = attention_of(c, 3);
  double *p = doubles(a.S);
  for (int64_t b = 0; b < a.B; b++)
    for (int64_t h = 0; h < a.H; h++)
      for (int64_t t = 0; t < a.T; t++) {
        int64_t l = (b * a.H + h) * a.T + t;
        double lse = weights(&a, b, t, h, p);
        c->out[1]->f[l] = lse;
        c->out[1]->e[l] = a.weight_error + 4 * ref_eps * fabs(lse);
        sum_of_values(c, &a, b, t, h, p);
      }
  free(p);
}

void ref_ATTENTION_GRAD(ref_ctx *c) {
  attention a = attention_of(c, 6);
  double *p = doubles(a.S), tol = 4 * a.weight_error;
  for (int64_t b = 0; b < a.B; b++)
    for (int64_t h = 0; h < a.H; h++)
      for (int64_t t = 0; t < a.T; t++) {
        int64_t at_q = row_at(a.q, b, t, h), at_o = row_at(c->in[3], b, t, h);
        const double *d_o = c->in[5]->f + at_o;
        double mean = 0, spread = 0;
        weights(&a, b, t, h, p);
        for (int64_t s = 0; s < a.S; s++)
          for (int64_t d = 0; d < a.Dv; d++) {
            double x = p[s] * kept(&a, b, t, h, s) * d_o[d] *
                       a.v->f[row_at(a.v, b, s, h / (a.H / a.KV)) + d];
            mean += x;
            spread += fabs(x);
          }
        for (int64_t s = 0; s < a.S; s++) {
          int64_t at_k = row_at(a.k, b, s, h / (a.H / a.KV));
          int64_t at_v = row_at(a.v, b, s, h / (a.H / a.KV));
          double dp = 0, big = spread, mask = kept(&a, b, t, h, s);
          for (int64_t d = 0; d < a.Dv; d++) {
            dp += mask * d_o[d] * a.v->f[at_v + d];
            big += mask * fabs(d_o[d] * a.v->f[at_v + d]);
            c->out[2]->f[at_v + d] += p[s] * mask * d_o[d];
            c->out[2]->e[at_v + d] += p[s] * mask * fabs(d_o[d]) * tol;
          }
          double ds = p[s] * (dp - mean) * a.scale, e = p[s] * big * a.scale * tol;
          for (int64_t d = 0; d < a.D; d++) {
            c->out[0]->f[at_q + d] += ds * a.k->f[at_k + d];
            c->out[0]->e[at_q + d] += e * fabs(a.k->f[at_k + d]);
            c->out[1]->f[at_k + d] += ds * a.q->f[at_q + d];
            c->out[1]->e[at_k + d] += e * fabs(a.q->f[at_q + d]);
          }
        }
      }
  free(p);
}

/* --- keys and values in blocks ---------------------------------------------------------------- */

/* Element of a pool: row `token` of sequence b of a head; -1: it has no block. */
static int64_t paged_at(const ref_tensor *pool, const ref_tensor *table, bool transposed, int64_t b,
                        int64_t token, int64_t head, int64_t d) {
  const int64_t *n = pool->dim, M = table->dim[1], width = transposed ? n[3] : n[4];
  if (token < 0 || token / PAGE_TOKENS >= M) return -1;
  int64_t block = table->i[b * M + token / PAGE_TOKENS], each = table->dim[0] / n[0];
  if (block < 0 || block >= n[1]) return -1;
  int64_t page = ((b / each * n[1] + block) * n[2] + head) * PAGE_TOKENS * width;
  return page +
         (transposed ? d * PAGE_TOKENS + token % PAGE_TOKENS : token % PAGE_TOKENS * width + d);
}

void ref_PAGED_UPDATE(ref_ctx *c) {
  const ref_tensor *x = c->in[1], *at = c->in[3], *copy = c->in[4];
  ref_tensor *pool = c->out[0];
  bool transposed = attr_int(c->g, c->n, "transposed") != 0;
  int64_t B = x->dim[0], T = x->dim[1], KV = x->dim[2], D = x->dim[3];
  int64_t block = KV * PAGE_TOKENS * D, N = pool->dim[1];
  for (int64_t k = 0; k < pool->n; k++) ref_copy(pool, k, c->in[0], k);
  for (int64_t b = 0; b < B; b++) {
    int64_t first = at->i[b] / PAGE_TOKENS * PAGE_TOKENS, from = copy->i[b];
    int64_t to = at->i[b] < 0 ? -1 : paged_at(pool, c->in[2], transposed, b, first, 0, 0);
    if (to < 0 || from < 0 || from >= N) continue;
    from = (b / (B / pool->dim[0]) * N + from) * block;
    for (int64_t k = 0; k < block; k++) ref_copy(pool, to + k, pool, from + k);
  }
  for (int64_t row = 0; row < B * T * KV; row++)
    for (int64_t d = 0; d < D; d++) {
      int64_t b = row / KV / T, token = at->i[b] + row / KV % T;
      int64_t to = paged_at(pool, c->in[2], transposed, b, token, row % KV, d);
      if (to >= 0) ref_copy(pool, to, x, row * D + d);
    }
}

/* Keys and values as rows [B,PAGE_TOKENS M,KV,..], then as attention. */
static ref_tensor rows_of(const ref_tensor *table, const ref_tensor *pool, bool transposed) {
  int64_t B = table->dim[0], S = PAGE_TOKENS * table->dim[1], KV = pool->dim[2];
  int64_t D = pool->dim[transposed ? 3 : 4];
  ref_tensor x = *pool;
  x.rank = 4;
  x.dim[0] = B, x.dim[1] = S, x.dim[2] = KV, x.dim[3] = D;
  x.n = B * S * KV * D;
  x.f = doubles(x.n), x.e = doubles(x.n);
  for (int64_t k = 0; k < x.n; k++) {
    int64_t row = k / D, b = row / KV / S, s = row / KV % S;
    int64_t from = paged_at(pool, table, transposed, b, s, row % KV, k % D);
    if (from >= 0) x.f[k] = pool->f[from], x.e[k] = pool->e[from];
  }
  return x;
}

void ref_PAGED_ATTENTION(ref_ctx *c) {
  ref_tensor k = rows_of(c->in[3], c->in[1], true), v = rows_of(c->in[3], c->in[2], false);
  attention a = {.q = c->in[0], .k = &k, .v = &v, .span = c->in[4]};
  a.scale = attr_float(c->g, c->n, "scale");
  a.window = attr_int(c->g, c->n, "window");
  put_sizes(&a);
  double *p = doubles(a.S);
  for (int64_t b = 0; b < a.B; b++)
    for (int64_t h = 0; h < a.H; h++)
      for (int64_t t = 0; t < a.T; t++) {
        weights(&a, b, t, h, p);
        sum_of_values(c, &a, b, t, h, p);
      }
  free(p);
  free(k.f), free(k.e), free(v.f), free(v.e);
}

/* What a row has after a part, from what it had before: maximum, sum of weights, sums of values. */
static void add_part(ref_ctx *c, const attention *a, const ref_tensor *table, int64_t b, int64_t t,
                     int64_t h, double *sum) {
  const double log2e = 1 / log(2);
  const ref_tensor *before = c->n->n_in > 5 ? c->in[5] : NULL;
  int64_t width = 16 + (a->Dv + 15) / 16 * 16, at = ((b * a->T + t) * a->H + h) * width;
  const double *q = a->q->f + row_at(a->q, b, t, h);
  bool any = before && before->f[at + 1] != 0;
  double m = any ? before->f[at] : -(double)FLT_MAX, scale;
  double *p = doubles(a->S);
  for (int64_t s = 0; s < a->S; s++) {
    int64_t block = table->i[b * table->dim[1] + s / PAGE_TOKENS];
    const double *k = a->k->f + row_at(a->k, b, s, h / (a->H / a->KV));
    for (int64_t d = 0; d < a->D; d++) p[s] += q[d] * k[d] * a->scale * log2e;
    bool is_in = block >= 0 && block < c->in[1]->dim[1] && sees(a, b, t, s);
    if (!is_in) p[s] = -INFINITY;
    else m = fmax(m, p[s]);
  }
  scale = any ? exp2(before->f[at] - m) : 0;
  sum[0] = m;
  sum[1] = any ? before->f[at + 1] * scale : 0;
  for (int64_t d = 0; d < a->Dv; d++) sum[2 + d] = any ? before->f[at + 16 + d] * scale : 0;
  for (int64_t s = 0; s < a->S; s++) {
    double w = p[s] == -INFINITY ? 0 : exp2(p[s] - m);
    sum[1] += w;
    for (int64_t d = 0; w > 0 && d < a->Dv; d++)
      sum[2 + d] += w * a->v->f[row_at(a->v, b, s, h / (a->H / a->KV)) + d];
  }
  free(p);
}

void ref_PAGED_PART(ref_ctx *c) {
  ref_tensor table = *c->in[3];
  int64_t first = attr_int(c->g, c->n, "first"),
          *moved = calloc((size_t)table.n + 1, sizeof *moved);
  for (int64_t i = 0; i < table.n; i++) moved[i] = table.i[i] - first;
  table.i = moved;
  ref_tensor k = rows_of(&table, c->in[1], true), v = rows_of(&table, c->in[2], false);
  attention a = {.q = c->in[0], .k = &k, .v = &v, .span = c->in[4]};
  bool end = attr_int(c->g, c->n, "end") != 0;
  a.scale = attr_float(c->g, c->n, "scale");
  a.window = attr_int(c->g, c->n, "window");
  put_sizes(&a);
  double *sum = doubles(a.Dv + 2), e = 8 * a.weight_error;
  int64_t width = c->out[0]->dim[3];
  for (int64_t row = 0; row < a.B * a.T * a.H; row++) {
    double *to = c->out[0]->f + row * width, *off = c->out[0]->e + row * width;
    add_part(c, &a, &table, row / a.H / a.T, row / a.H % a.T, row % a.H, sum);
    double l = sum[1], wide = e * (1 + l) + a.value_error * l;
    if (!end) to[0] = sum[0], to[1] = l, off[0] = off[1] = wide;
    for (int64_t d = 0; d < a.Dv; d++) {
      double x = end ? (l > 0 ? sum[2 + d] / l : 0) : sum[2 + d];
      to[(end ? 0 : 16) + d] = x;
      off[(end ? 0 : 16) + d] = end ? e * (2 + fabs(x)) + a.value_error : e * (2 + fabs(x)) + wide;
    }
  }
  free(sum);
  free(moved);
  free(k.f), free(k.e), free(v.f), free(v.e);
}

/* Blocks of a pool to slots, and back. */
static void move_blocks(ref_ctx *c, const ref_tensor *pool, const ref_tensor *slots,
                        const ref_tensor *list, int64_t first, bool stores) {
  int64_t N = pool->dim[1], S = slots->dim[1], L = list->dim[1];
  int64_t block = pool->dim[2] * pool->dim[3] * pool->dim[4];
  if (slots->dim[2] != pool->dim[2]) N *= pool->dim[2], block /= pool->dim[2]; /* heads of blocks */
  for (int64_t i = 0; i < pool->dim[0] * S; i++) {
    int64_t g = i / S, from = list->i[g * L + first + i % S];
    if (from < 0 || from >= N) continue;
    from += g * N;
    for (int64_t k = 0; k < block; k++)
      ref_copy(c->out[0], (stores ? from : i) * block + k, stores ? slots : pool,
               (stores ? i : from) * block + k);
  }
}

void ref_PAGED_FETCH(ref_ctx *c) {
  move_blocks(c, c->in[0], c->out[0], c->in[1], attr_int(c->g, c->n, "first"), false);
}

void ref_PAGED_STORE(ref_ctx *c) {
  for (int64_t k = 0; k < c->out[0]->n; k++) ref_copy(c->out[0], k, c->in[0], k);
  move_blocks(c, c->in[0], c->in[1], c->in[2], 0, true);
}

void ref_PAGED_BOUNDS(ref_ctx *c) {
  const ref_tensor *x = c->in[1], *table = c->in[2], *at = c->in[3], *copy = c->in[4];
  const ref_tensor *span = c->in[5];
  ref_tensor *y = c->out[0];
  int64_t B = x->dim[0], T = x->dim[1], KV = x->dim[2], D = x->dim[3], N = y->dim[1];
  int64_t M = table->dim[1], each = B / y->dim[0], block = KV * 2 * D;
  for (int64_t k = 0; k < y->n; k++) ref_copy(y, k, c->in[0], k);
  for (int64_t k = 0; k < B + B * T; k++) { /* copies, then rows */
    int64_t b = k < B ? k : (k - B) / T, t = k < B ? 0 : (k - B) % T, token = at->i[b] + t;
    int64_t to = token >= 0 && token / PAGE_TOKENS < M ? table->i[b * M + token / PAGE_TOKENS] : -1;
    if (to < 0 || to >= N) continue;
    to = (b / each * N + to) * block;
    if (k < B) {
      int64_t from = copy->i[b];
      for (int64_t i = 0; from >= 0 && from < N && i < block; i++)
        ref_copy(y, to + i, y, (b / each * N + from) * block + i);
      continue;
    }
    if (span->i[2 * (b * T + t) + 1] < span->i[2 * (b * T + t)]) continue;
    for (int64_t i = 0; i < KV * D; i++) {
      int64_t lo = to + i / D * 2 * D + i % D, hi = lo + D, row = (b * T + t) * KV * D + i;
      bool first = token % PAGE_TOKENS == 0;
      if (first || x->f[row] < y->f[lo]) ref_copy(y, lo, x, row);
      if (first || x->f[row] > y->f[hi]) ref_copy(y, hi, x, row);
    }
  }
}

/* How often a block of 1 .. last - 1 has a score that is higher, or as high and earlier. */
static int64_t count_before(const double *score, int64_t last, int64_t i) {
  int64_t n = 0;
  for (int64_t k = 1; k < last; k++) n += score[k] > score[i] || (score[k] == score[i] && k < i);
  return n;
}

static double bound_score(const ref_ctx *c, int64_t b, int64_t kv, int64_t block) {
  const ref_tensor *q = c->in[0], *bounds = c->in[1];
  int64_t H = q->dim[2], KV = bounds->dim[2], D = q->dim[3], each = q->dim[0] / bounds->dim[0];
  double sum = 0;
  if (block < 0) return -INFINITY;
  const double *lo = bounds->f + ((b / each * bounds->dim[1] + block) * KV + kv) * 2 * D;
  for (int64_t h = kv * (H / KV); h < (kv + 1) * (H / KV); h++)
    for (int64_t d = 0; d < D; d++) {
      double x = q->f[(b * H + h) * D + d];
      sum += fmax(x * lo[d], x * lo[D + d]);
    }
  return sum;
}

/* Scores whose order rounding may swap: what is selected is not known. */
static bool is_close(const double *score, int64_t last, int64_t k) {
  double least = INFINITY, most = -INFINITY;
  for (int64_t i = 1; i < last; i++) {
    if (count_before(score, last, i) < k) least = fmin(least, score[i]);
    else most = fmax(most, score[i]);
  }
  return least > -INFINITY && most > -INFINITY && least != most &&
         least - most < 1e-4 * (1 + fabs(least));
}

void ref_PAGED_SELECT(ref_ctx *c) {
  const ref_tensor *table = c->in[2], *at = c->in[3], *copy = c->in[4];
  int64_t KV = c->in[1]->dim[2], M = table->dim[1], n = attr_int(c->g, c->n, "n");
  bool slots = attr_int(c->g, c->n, "slots") != 0;
  double *score = doubles(M);
  for (int64_t u = 0; u < c->out[2]->n; u++) {
    int64_t b = u / KV, kv = u % KV, last = at->i[b] < 0 ? -1 : at->i[b] / PAGE_TOKENS, used = 0;
    int64_t *list = c->out[0]->i + u * n, *store = c->out[1]->i + u * n;
    const int64_t *row = table->i + b * M;
    for (int64_t i = 0; i < n; i++) list[i] = store[i] = -1;
    c->out[2]->i[u] = -1;
    if (last < 0 || last >= M || row[last] < 0) continue;
    for (int64_t i = 0; i <= last; i++) score[i] = bound_score(c, b, kv, row[i]);
    for (int64_t i = 0; i <= last; i++)
      if (last < n || !i || i == last || count_before(score, last, i) < n - 2)
        list[used++] = row[i] * KV + kv;
    bool known = last < n || !is_close(score, last, n - 2);
    store[used - 1] = list[used - 1];
    if (slots && copy->i[b] >= 0) list[used - 1] = copy->i[b] * KV + kv;
    c->out[2]->i[u] = (used - 1) * PAGE_TOKENS + at->i[b] % PAGE_TOKENS;
    for (int64_t i = 0; i < n && !known; i++) c->out[0]->e[u * n + i] = INFINITY;
  }
  free(score);
}

/* --- cross-entropy ---------------------------------------------------------------------------- */

static double log_sum_exp(const double *x, int64_t n) {
  double m = row_max(x, n), sum = 0;
  for (int64_t k = 0; k < n; k++) sum += exp(x[k] - m);
  return n ? m + log(sum) : -INFINITY;
}

void ref_CROSS_ENTROPY(ref_ctx *c) {
  const ref_tensor *x = c->in[0], *label = c->in[1];
  int64_t width = x->dim[x->rank - 1], ignore = attr_int(c->g, c->n, "ignore");
  double off = largest_error(x);
  for (int64_t r = 0; r < label->n; r++) {
    const double *v = x->f + r * width;
    double lse = log_sum_exp(v, width), e = off + 32 * ref_eps * (1 + fabs(lse));
    bool out = label->i[r] == ignore;
    double own = label->i[r] == ID_ELSEWHERE || out ? 0 : v[label->i[r]];
    c->out[0]->f[r] = out ? 0 : lse - own;
    c->out[0]->e[r] = out ? 0 : 2 * e + 2 * ref_eps * fabs(own);
    c->out[1]->f[r] = lse;
    c->out[1]->e[r] = e;
  }
}

void ref_CROSS_ENTROPY_GRAD(ref_ctx *c) {
  const ref_tensor *x = c->in[0], *label = c->in[1], *d = c->in[3];
  int64_t width = x->dim[x->rank - 1], ignore = attr_int(c->g, c->n, "ignore");
  double off = largest_error(x);
  for (int64_t r = 0; r < label->n; r++) {
    const double *v = x->f + r * width;
    double lse = c->in[2]->f[r];
    for (int64_t k = 0; k < width; k++) {
      double p = exp(v[k] - lse), e = p * (expm1(2 * off) + 64 * ref_eps * (1 + fabs(lse)));
      bool out = label->i[r] == ignore;
      c->out[0]->f[r * width + k] = out ? 0 : (p - (label->i[r] == k)) * d->f[r];
      c->out[0]->e[r * width + k] = out ? 0 : (e + 2 * ref_eps) * fabs(d->f[r]) + d->e[r];
    }
  }
}

/* --- optimizers ------------------------------------------------------------------------------- */

void ref_ADAMW(ref_ctx *c) {
  double b1 = attr_float(c->g, c->n, "beta1"), b2 = attr_float(c->g, c->n, "beta2");
  double eps = attr_float(c->g, c->n, "eps"), decay = attr_float(c->g, c->n, "decay");
  double factor = c->in[4]->f[0], lr = c->in[5]->f[0], step = c->in[6]->f[0], bc = c->in[7]->f[0];
  double off = 0;
  for (int i = 0; i < 8; i++) off += largest_error(c->in[i]);
  for (int64_t k = 0; k < c->out[0]->n; k++) {
    double p = c->in[0]->f[k], g = c->in[1]->f[k] * factor;
    double m = b1 * c->in[2]->f[k] + (1 - b1) * g, v = b2 * c->in[3]->f[k] + (1 - b2) * g * g;
    double move = step * m / (sqrt(v) / bc + eps);
    double loose = fabs(b1 * c->in[2]->f[k]) + fabs((1 - b1) * g); /* m may cancel */
    c->out[0]->f[k] = p * (1 - lr * decay) - move;
    c->out[1]->f[k] = m;
    c->out[2]->f[k] = v;
    c->out[1]->e[k] = off > 0 ? INFINITY : 8 * ref_eps * loose;
    c->out[2]->e[k] = off > 0 ? INFINITY : 16 * ref_eps * v;
    c->out[0]->e[k] =
        off > 0 ? INFINITY
                : 4 * ref_eps * fabs(p) + 32 * ref_eps * fabs(step) * loose / (sqrt(v) / bc + eps);
  }
}

void ref_SGD(ref_ctx *c) {
  double momentum = attr_float(c->g, c->n, "momentum"), decay = attr_float(c->g, c->n, "decay");
  double off = 0;
  for (int i = 0; i < 5; i++) off += largest_error(c->in[i]);
  for (int64_t k = 0; k < c->out[0]->n; k++) {
    double p = c->in[0]->f[k], g = c->in[1]->f[k] * c->in[3]->f[0], buffer = c->in[2]->f[k];
    double d = g + decay * p,
           e = 4 * ref_eps * (fabs(g) + fabs(decay * p) + fabs(momentum * buffer));
    if (momentum != 0) buffer = d = momentum * buffer + d;
    c->out[0]->f[k] = p - c->in[4]->f[0] * d;
    c->out[1]->f[k] = buffer;
    c->out[0]->e[k] =
        off > 0 ? INFINITY
                : fabs(c->in[4]->f[0]) * (e + 4 * ref_eps * fabs(d)) + 2 * ref_eps * fabs(p);
    c->out[1]->e[k] = off > 0 ? INFINITY : momentum != 0 ? e : 0;
  }
}
