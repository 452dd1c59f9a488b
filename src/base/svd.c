#include "base/svd.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

/* --- rotations -------------------------------------------------------------------------------- */

enum { LANES = 8 };

/* In lanes, for a compiler that may not reorder a sum. */
static double dot(const double *x, const double *y, int64_t n) {
  double lane[LANES] = {0}, sum = 0;
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES)
    for (int k = 0; k < LANES; k++) lane[k] += x[i + k] * y[i + k];
  for (; i < n; i++) lane[0] += x[i] * y[i];
  for (int k = 0; k < LANES; k++) sum += lane[k];
  return sum;
}

static void rotate(double *restrict x, double *restrict y, int64_t n, double c, double s) {
  for (int64_t i = 0; i < n; i++) {
    double t = c * x[i] - s * y[i];
    y[i] = s * x[i] + c * y[i];
    x[i] = t;
  }
}

/* Rows x [k,n] on their way to be orthogonal, and the rotation r [k,k] that they come from. */
typedef struct {
  double *x, *r, *square; /* square [k]: of each row's length */
  int64_t k, n;
} rotated;

/* Makes two rows orthogonal; were they not? */
static bool rotate_pair(rotated *m, int64_t i, int64_t j) {
  const double enough = 1e-14;
  double *a = m->x + i * m->n, *b = m->x + j * m->n, ab = dot(a, b, m->n);
  if (fabs(ab) <= enough * sqrt(m->square[i] * m->square[j])) return false;
  double zeta = (m->square[j] - m->square[i]) / (2 * ab);
  double t = (zeta < 0 ? -1 : 1) / (fabs(zeta) + sqrt(1 + zeta * zeta)), c = 1 / sqrt(1 + t * t);
  rotate(a, b, m->n, c, c * t);
  rotate(m->r + i * m->k, m->r + j * m->k, m->k, c, c * t);
  m->square[i] -= t * ab;
  m->square[j] += t * ab;
  return true;
}

/* Hestenes: x becomes r x with orthogonal rows. */
static void make_orthogonal(rotated *m) {
  enum { MOST_SWEEPS = 60 };
  bool moved = true;
  for (int64_t i = 0; i < m->k * m->k; i++) m->r[i] = i % (m->k + 1) == 0;
  for (int sweep = 0; moved && sweep < MOST_SWEEPS; sweep++) {
    moved = false;
    for (int64_t i = 0; i < m->k; i++) m->square[i] = dot(m->x + i * m->n, m->x + i * m->n, m->n);
    for (int64_t i = 0; i < m->k; i++)
      for (int64_t j = i + 1; j < m->k; j++) moved |= rotate_pair(m, i, j);
  }
}

/* The largest of the k rows of x that is not in `taken`. */
static int64_t find_longest(const double *size, const bool *taken, int64_t k) {
  int64_t best = -1;
  for (int64_t i = 0; i < k; i++)
    if (!taken[i] && (best < 0 || size[i] > size[best])) best = i;
  return best;
}

/* Singular vectors of x [k,n], which is destroyed: the `rank` largest, the left ones [k,rank], the
 * right ones [n,rank]. */
static hp_status decompose(double *x, int64_t k, int64_t n, int64_t rank, double *left, double *s,
                           double *right) {
  double *r = mem_calloc((size_t)(k * k), sizeof *r), *size = mem_calloc((size_t)k, sizeof *size);
  bool *taken = mem_calloc((size_t)k, sizeof *taken);
  hp_status st = r && size && taken ? HP_OK : HP_ERR_OOM;
  if (!st) make_orthogonal(&(rotated){x, r, size, k, n});
  for (int64_t i = 0; !st && i < k; i++) size[i] = sqrt(dot(x + i * n, x + i * n, n));
  for (int64_t to = 0; !st && to < rank; to++) {
    int64_t i = find_longest(size, taken, k);
    taken[i] = true;
    s[to] = size[i];
    for (int64_t a = 0; a < k; a++) left[a * rank + to] = r[i * k + a];
    for (int64_t b = 0; b < n; b++) right[b * rank + to] = size[i] > 0 ? x[i * n + b] / size[i] : 0;
  }
  mem_free(r);
  mem_free(size);
  mem_free(taken);
  return st;
}

hp_status svd_exact(const svd_matrix *a, svd_vectors *out) {
  bool wide = a->rows <= a->columns;
  int64_t k = wide ? a->rows : a->columns, n = wide ? a->columns : a->rows;
  double *x = mem_calloc((size_t)(k * n), sizeof *x);
  HP_TRY_MEM(x);
  for (int64_t i = 0; i < k; i++)
    for (int64_t j = 0; j < n; j++)
      x[i * n + j] = (double)a->at[wide != a->turned ? i * n + j : j * k + i];
  hp_status st =
      decompose(x, k, n, out->rank, wide ? out->u : out->v, out->s, wide ? out->v : out->u);
  mem_free(x);
  return st;
}

/* --- subspaces -------------------------------------------------------------------------------- */

enum { ROWS_A_PART = 32, COLUMNS_A_PART = 64 };

/* to = a x or a^T x, of vectors [n,q], q a multiple of LANES; at [rows,columns] as it is in memory.
 */
typedef struct {
  const float *at;
  int64_t rows, columns, q;
  const double *x;
  double *to;
} product;

/* to[0..q) += a x[0..q) */
static void add_row(double *restrict to, double a, const double *restrict x, int64_t q) {
  for (int64_t k = 0; k < q; k += LANES)
    for (int i = 0; i < LANES; i++) to[k + i] += a * x[k + i];
}

static void multiply_rows(void *ctx, int64_t part) {
  const product *m = ctx;
  int64_t last = (part + 1) * ROWS_A_PART;
  for (int64_t i = part * ROWS_A_PART; i < last && i < m->rows; i++) {
    double *to = m->to + i * m->q;
    memset(to, 0, (size_t)m->q * sizeof *to);
    for (int64_t j = 0; j < m->columns; j++)
      add_row(to, (double)m->at[i * m->columns + j], m->x + j * m->q, m->q);
  }
}

static void multiply_columns(void *ctx, int64_t part) {
  const product *m = ctx;
  int64_t first = part * COLUMNS_A_PART, last = first + COLUMNS_A_PART;
  if (last > m->columns) last = m->columns;
  memset(m->to + first * m->q, 0, (size_t)((last - first) * m->q) * sizeof *m->to);
  for (int64_t i = 0; i < m->rows; i++)
    for (int64_t j = first; j < last; j++)
      add_row(m->to + j * m->q, (double)m->at[i * m->columns + j], m->x + i * m->q, m->q);
}

static void multiply(const svd_matrix *a, bool transposed, int64_t q, const double *x, double *to,
                     pool *p) {
  product m = {a->at, a->turned ? a->columns : a->rows, a->turned ? a->rows : a->columns, q, x, to};
  if (transposed == a->turned)
    pool_run(p, (m.rows + ROWS_A_PART - 1) / ROWS_A_PART, multiply_rows, &m);
  else pool_run(p, (m.columns + COLUMNS_A_PART - 1) / COLUMNS_A_PART, multiply_columns, &m);
}

static double dot_columns(const double *x, int64_t n, int64_t q, int64_t a, int64_t b) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += x[i * q + a] * x[i * q + b];
  return sum;
}

/* Gram and Schmidt, twice: the first columns of x [n,q] become orthonormal.  One without a
 * direction of its own becomes 0. */
static void orthonormalize(double *x, int64_t n, int64_t q, int64_t columns) {
  for (int64_t k = 0; k < columns; k++) {
    double before = sqrt(dot_columns(x, n, q, k, k)), after;
    for (int64_t c = 0; c < 2 * k; c++) {
      double along = dot_columns(x, n, q, c % k, k);
      for (int64_t i = 0; i < n; i++) x[i * q + k] -= along * x[i * q + c % k];
    }
    after = sqrt(dot_columns(x, n, q, k, k));
    double by = after > 1e-14 * before ? 1 / after : 0;
    for (int64_t i = 0; i < n; i++) x[i * q + k] *= by;
  }
}

/* Room of svd_lowrank; `tall` is the matrix or its transpose, whichever has more rows. */
typedef struct {
  const svd_matrix *a;
  bool wide;         /* tall is the transpose */
  int64_t n, m;      /* rows and columns of tall */
  int64_t rank, q;   /* vectors, and their room: a multiple of LANES */
  double *x, *y, *b; /* [n,q], [m,q], [rank,m] */
  double *rotation;  /* [rank,rank] */
  float *drawn;      /* [m,rank] */
} subspace;

static void find_subspace(subspace *s, int64_t iterations, mt19937 *random, pool *p) {
  mt19937_normal(random, s->m * s->rank, s->drawn);
  for (int64_t i = 0; i < s->m * s->rank; i++)
    s->y[i / s->rank * s->q + i % s->rank] = (double)s->drawn[i];
  multiply(s->a, s->wide, s->q, s->y, s->x, p);
  orthonormalize(s->x, s->n, s->q, s->rank);
  for (int64_t i = 0; i < iterations; i++) {
    multiply(s->a, !s->wide, s->q, s->x, s->y, p);
    orthonormalize(s->y, s->m, s->q, s->rank);
    multiply(s->a, s->wide, s->q, s->y, s->x, p);
    orthonormalize(s->x, s->n, s->q, s->rank);
  }
  multiply(s->a, !s->wide, s->q, s->x, s->y, p);
  for (int64_t i = 0; i < s->rank; i++)
    for (int64_t j = 0; j < s->m; j++) s->b[i * s->m + j] = s->y[j * s->q + i];
}

/* Singular vectors of what tall is in the subspace: left = x rotation. */
static hp_status leave_subspace(subspace *s, svd_vectors *out) {
  double *left = s->wide ? out->v : out->u, *right = s->wide ? out->u : out->v;
  int64_t r = s->rank;
  HP_TRY(decompose(s->b, r, s->m, r, s->rotation, out->s, right));
  for (int64_t i = 0; i < s->n; i++)
    for (int64_t k = 0; k < r; k++) {
      double sum = 0;
      for (int64_t c = 0; c < r; c++) sum += s->x[i * s->q + c] * s->rotation[c * r + k];
      left[i * r + k] = sum;
    }
  return HP_OK;
}

hp_status svd_lowrank(const svd_matrix *a, int64_t iterations, mt19937 *random, pool *p,
                      svd_vectors *out) {
  subspace s = {.a = a, .wide = a->rows < a->columns, .rank = out->rank};
  s.q = (s.rank + LANES - 1) / LANES * LANES;
  s.n = s.wide ? a->columns : a->rows;
  s.m = s.wide ? a->rows : a->columns;
  s.x = mem_calloc((size_t)(s.n * s.q), sizeof *s.x);
  s.y = mem_calloc((size_t)(s.m * s.q), sizeof *s.y);
  s.b = mem_calloc((size_t)(s.rank * s.m), sizeof *s.b);
  s.rotation = mem_calloc((size_t)(s.rank * s.rank), sizeof *s.rotation);
  s.drawn = mem_calloc((size_t)(s.m * s.rank) + MT19937_NORMALS, sizeof *s.drawn);
  hp_status st = s.x && s.y && s.b && s.rotation && s.drawn ? HP_OK : HP_ERR_OOM;
  if (!st) find_subspace(&s, iterations, random, p);
  if (!st) st = leave_subspace(&s, out);
  mem_free(s.x);
  mem_free(s.y);
  mem_free(s.b);
  mem_free(s.rotation);
  mem_free(s.drawn);
  return st;
}
