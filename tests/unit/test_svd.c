#include "test.h"

#include "base/mem.h"
#include "base/svd.h"

#include <math.h>

enum { ROWS = 9, COLUMNS = 6, RANK = 3 };

/* a_ij = (7 i + 3 j + i j) mod 11 - 5, or its transpose. */
static void fill(float *x, bool turned) {
  for (int i = 0; i < ROWS; i++)
    for (int j = 0; j < COLUMNS; j++)
      x[turned ? j * ROWS + i : i * COLUMNS + j] = (float)((7 * i + 3 * j + i * j) % 11 - 5);
}

/* Element (i,j) of U diag(s) V^T. */
static double product(const svd_vectors *v, int64_t i, int64_t j) {
  double sum = 0;
  for (int64_t k = 0; k < v->rank; k++)
    sum += v->u[i * v->rank + k] * v->s[k] * v->v[j * v->rank + k];
  return sum;
}

static bool near(double x, double y, double tol) { return fabs(x - y) <= tol * (1 + fabs(y)); }

static void check_orthonormal(const double *x, int64_t n, int64_t rank) {
  for (int64_t a = 0; a < rank; a++)
    for (int64_t b = 0; b < rank; b++) {
      double sum = 0;
      for (int64_t i = 0; i < n; i++) sum += x[i * rank + a] * x[i * rank + b];
      CHECK(near(sum, a == b, 1e-12));
    }
}

/* What torch 2.11 makes of the matrix. */
typedef struct {
  double s[RANK], row[3], inside; /* elements (0,0..2) and (2,3) of U diag(s) V^T */
} expected;

static void check(const svd_vectors *v, const expected *e, double tol) {
  for (int k = 0; k < RANK; k++) CHECK(near(v->s[k], e->s[k], tol));
  for (int j = 0; j < 3; j++) CHECK(near(product(v, 0, j), e->row[j], tol));
  CHECK(near(product(v, 2, 3), e->inside, tol));
}

TEST(leading_singular_vectors_are_those_of_torch_whatever_the_order_in_memory) {
  static const expected e = {{13.04390887192364, 12.476676243848791, 10.144882380212453},
                             {-5.215720504049762, -0.346594427654122, 0.21400942624298633},
                             0.4560133000755521};
  for (int turned = 0; turned < 2; turned++) {
    float x[ROWS * COLUMNS];
    double u[ROWS * RANK], s[RANK], w[COLUMNS * RANK];
    svd_vectors v = {RANK, u, s, w};
    fill(x, turned);
    CHECK_OK(svd_exact(&(svd_matrix){x, ROWS, COLUMNS, turned}, &v));
    check(&v, &e, 1e-12);
    check_orthonormal(u, ROWS, RANK);
    check_orthonormal(w, COLUMNS, RANK);
  }
}

/* After one iteration, which is far from exact: the random numbers are torch's. */
TEST(a_few_iterations_give_the_numbers_of_torch_svd_lowrank) {
  static const expected of[] =
      {{{12.839775, 12.350056, 9.788082}, {-5.054852, -1.6423826, 2.224329}, 0.6225423},
       {{12.839775, 12.350051, 9.788083}, {-5.0548506, 0.0499251, 0.0822388}, -3.3912346}};
  for (int wide = 0; wide < 2; wide++)
    for (int turned = 0; turned < 2; turned++)
      for (int threads = 1; threads < 4; threads += 2) {
        float x[ROWS * COLUMNS];
        double u[ROWS * RANK], s[RANK], w[ROWS * RANK];
        int64_t rows = wide ? COLUMNS : ROWS, columns = wide ? ROWS : COLUMNS;
        svd_vectors v = {RANK, u, s, w};
        mt19937 random;
        pool *p;
        fill(x, wide != turned);
        mt19937_seed(&random, 7);
        CHECK_OK(pool_create(threads, false, &p));
        CHECK_OK(svd_lowrank(&(svd_matrix){x, rows, columns, turned}, 1, &random, p, &v));
        check(&v, &of[wide], 2e-6);
        pool_free(p);
      }
}

TEST(a_matrix_of_lower_rank_has_singular_values_of_zero) {
  float x[ROWS * COLUMNS];
  double u[ROWS * RANK], s[RANK], w[COLUMNS * RANK];
  svd_vectors v = {RANK, u, s, w};
  svd_matrix a = {x, ROWS, COLUMNS, false};
  mt19937 random;
  pool *p;
  CHECK_OK(pool_create(1, false, &p));
  for (int same = 0; same < 2; same++) {
    double largest = same * sqrt(ROWS * COLUMNS);
    for (int i = 0; i < ROWS * COLUMNS; i++) x[i] = (float)same;
    CHECK_OK(svd_exact(&a, &v));
    CHECK(near(s[0], largest, 1e-12) && near(s[1], 0, 1e-12));
    mt19937_seed(&random, 1);
    CHECK_OK(svd_lowrank(&a, 2, &random, p, &v));
    CHECK(near(s[0], largest, 1e-12) && near(s[1], 0, 1e-12));
    CHECK(near(product(&v, 4, 4), same, 1e-12));
  }
  pool_free(p);
}

/* torch.manual_seed(42); torch.randn(n), and the number after it */
TEST(normal_numbers_are_those_of_torch) {
  static const struct {
    int n;
    float want[5]; /* elements 0, 1, 7, 8 and the last */
    uint32_t next;
  } row[] =
      {{16, {1.92691529f, 1.48728406f, -1.60466695f, -0.752135277f, 0.76244539f}, 434285667},
       {32, {1.92691529f, 1.48728406f, -1.60466695f, -0.752135277f, 0.859858513f}, 1306710475},
       {20, {1.92691529f, 1.48728406f, 1.68062055f, 0.355859905f, -0.621595383f}, 1855189739}};
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    float x[32 + MT19937_NORMALS];
    mt19937 random;
    int n = row[i].n, at[] = {0, 1, 7, 8, n - 1};
    mt19937_seed(&random, 42);
    mt19937_normal(&random, n, x);
    for (int k = 0; k < 5; k++) CHECK(near((double)x[at[k]], (double)row[i].want[k], 1e-6));
    CHECK_EQ(mt19937_u32(&random) & 0x7fffffff, row[i].next);
  }
}
