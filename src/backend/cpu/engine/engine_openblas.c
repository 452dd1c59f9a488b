/* OpenBLAS, loaded if it is installed: cblas_sgemm, one call per item and thread. */
#include "backend/cpu/engine/engine_split.h"
#include "backend/cpu/engine/engine_table.h"

#include <dlfcn.h>
#include <pthread.h>

enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };
typedef void sgemm_fn(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                      const float *a, int lda, const float *b, int ldb, float beta, float *c,
                      int ldc);

/* The loaded library, written once. */
static struct {
  pthread_once_t once;
  sgemm_fn *sgemm;
  void (*set_threads)(int);
  char *(*config)(void);
} lib = {.once = PTHREAD_ONCE_INIT};

static void load_library(void) {
  void *so = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  if (!so) return;
  *(void **)&lib.set_threads = dlsym(so, "openblas_set_num_threads");
  *(void **)&lib.config = dlsym(so, "openblas_get_config");
  *(void **)&lib.sgemm = dlsym(so, "cblas_sgemm");
  if (!lib.set_threads || !lib.config) lib.sgemm = NULL;
}

static bool is_available(void) {
  pthread_once(&lib.once, load_library);
  return lib.sgemm;
}

static const char *get_version(void) { return lib.config(); }

/* Leading dimension of a matrix with `rows` x `cols`, and whether it is stored transposed; 0 if
 * it has no unit stride or does not fit an int. */
static int find_leading_dim(int64_t rows, int64_t cols, int64_t s_row, int64_t s_col,
                            bool *transposed) {
  *transposed = !(s_col == 1 || cols == 1) || (rows == 1 && s_row == 1 && s_col != 1);
  int64_t unit = *transposed ? s_row : s_col, ld = *transposed ? s_col : s_row;
  int64_t width = *transposed ? rows : cols, height = *transposed ? cols : rows;
  if (unit != 1 && width > 1) return 0;
  if (height <= 1 || ld < width) ld = height <= 1 ? width : 0;
  return ld > INT32_MAX ? 0 : (int)ld;
}

static bool supports_query(const gemm_query *query) {
  gemm_query transposed = engine_row_major(query, NULL), *q = &transposed;
  bool ta, tb, tc;
  return q->a_type == HP_F32 && q->b_type == HP_F32 && q->c_type == HP_F32 && !q->b_pack &&
         !q->bias && q->m > 0 && q->n > 0 && q->k > 0 && q->m <= INT32_MAX && q->n <= INT32_MAX &&
         q->k <= INT32_MAX && find_leading_dim(q->m, q->k, q->a_m, q->a_k, &ta) &&
         find_leading_dim(q->k, q->n, q->b_k, q->b_n, &tb) &&
         find_leading_dim(q->m, q->n, q->c_m, q->c_n, &tc) && !tc;
}

static size_t get_no_workspace(const gemm_query *q, int threads) {
  (void)q, (void)threads;
  return 0;
}

static hp_status run_share(const gemm_query *q, const gemm_args *args, int thread) {
  (void)thread;
  bool ta, tb, tc;
  int lda = find_leading_dim(q->m, q->k, q->a_m, q->a_k, &ta),
      ldb = find_leading_dim(q->k, q->n, q->b_k, q->b_n, &tb),
      ldc = find_leading_dim(q->m, q->n, q->c_m, q->c_n, &tc);
  int64_t items = gemm_items(q);
  for (int64_t i = 0; i < items; i++) {
    int64_t at[3];
    gemm_item(q, i, at);
    lib.sgemm(ROW_MAJOR, ta ? TRANS : NO_TRANS, tb ? TRANS : NO_TRANS, (int)q->m, (int)q->n,
              (int)q->k, q->alpha, (const float *)args->a + at[0], lda,
              (const float *)args->b + at[1], ldb, q->accumulate ? 1.0f : 0.0f,
              (float *)args->c + at[2], ldc);
  }
  return HP_OK;
}

static hp_status run_product(const gemm_query *q, const gemm_args *args, pool *threads,
                             void *work) {
  (void)work;
  lib.set_threads(1); /* the pool has the threads */
  return engine_split_run(q, args, threads, run_share);
}

const gemm_engine engine_openblas = {
    .name = "openblas",
    .about = "OpenBLAS, f32",
    .available = is_available,
    .version = get_version,
    .supports = supports_query,
    .workspace = get_no_workspace,
    .run = run_product,
};
