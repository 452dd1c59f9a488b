#include "backend/cpu/gemm/grouped.h"

#include "backend/cpu/gemm/gemm.h"
#include "backend/cpu/gemm/gemm_isa.h"
#include "base/dtype.h"
#include "base/mem.h"
#include "base/round.h"

#include <stdatomic.h>
#include <string.h>

enum {
  DEPTH = 512,      /* steps of the chains between two packings */
  ROWS = 512,       /* of an item, whose columns of B are packed once for all of them */
  PANEL_ROWS = 112, /* rows of A that are packed at a time */
  COLS = 512,       /* of an item */
};

/* Sizes of an item, and where the parts of a thread's work memory begin.  In the product an item is
 * rows by features; in the gradient, features by features, for one expert each. */
typedef struct {
  int64_t rows, panel_rows, cols, depth;
  size_t gathered, a, b, c, per_thread;
} sizes;

typedef struct grouped_job grouped_job;
struct grouped_job {
  const grouped_spec *s;
  const gemm_kernels *kernels;
  sizes z;
  const void *x, *w; /* of the gradient: x and dy */
  void *y;
  int64_t *start, *first, *order; /* slots of expert e: order[start[e]..]; its items: first[e].. */
  void (*item)(const grouped_job *j, int64_t expert, int64_t item, char *work);
  char *work;
  atomic_llong next;
};

static int64_t min_i64(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max_i64(int64_t a, int64_t b) { return a > b ? a : b; }
/* About `limit` of n, in multiples of unit, so that all parts of n are nearly alike. */
static int64_t choose_even_block(int64_t n, int64_t limit, int64_t unit) {
  int64_t parts = max_i64(div_up(n, limit), 1);
  return max_i64(div_up(div_up(n, parts), unit), 1) * unit;
}

static const gemm_kernels *get_kernels(cpu_isa isa) {
  static const gemm_kernels *const table[ISA_COUNT] = {[ISA_PLAIN] = &gemm_kernels_plain,
                                                       [ISA_AVX2] = &gemm_kernels_avx2,
                                                       [ISA_AVX512] = &gemm_kernels_avx512,
                                                       [ISA_AVX512_BF16] = &gemm_kernels_avx512};
  return table[isa];
}

/* --- work memory ------------------------------------------------------------------------------ */

/* Takes n floats from the work memory of a thread. */
static size_t reserve_floats(sizes *z, int64_t n) {
  size_t at = z->per_thread;
  z->per_thread += gemm_align((size_t)n * sizeof(float));
  return at;
}

/* m by n results, sums of `depth` steps; the product's few rows are gathered over all steps. */
static sizes plan_sizes(const gemm_kernels *kernels, int64_t m, int64_t n, int64_t depth,
                        int64_t few) {
  sizes z = {.rows = choose_even_block(m, ROWS, kernels->mr),
             .panel_rows = choose_even_block(min_i64(m, ROWS), PANEL_ROWS, kernels->mr),
             .cols = choose_even_block(n, COLS, kernels->nr),
             .depth = choose_even_block(depth, DEPTH, 1)};
  z.gathered =
      reserve_floats(&z, max_i64(z.depth * max_i64(z.panel_rows, few ? 0 : z.cols), few * depth));
  z.a = reserve_floats(&z, z.panel_rows * GEMM_PITCH);
  z.b = reserve_floats(&z, z.cols * z.depth);
  z.c = reserve_floats(&z, z.rows * z.cols);
  return z;
}

static sizes plan_product_sizes(const gemm_kernels *kernels, const grouped_spec *s) {
  return plan_sizes(kernels, s->rows * s->slots, s->n, s->k, GEMM_ROWS_MAX);
}
static sizes plan_gradient_sizes(const gemm_kernels *kernels, const grouped_spec *s) {
  return plan_sizes(kernels, s->n, s->k, s->rows * s->slots, 0);
}

/* The lists of the sort come first. */
static size_t list_bytes(const grouped_spec *s) {
  return gemm_align(sizeof(int64_t) * (size_t)(2 * (s->experts + 2) + s->rows * s->slots));
}

static hp_status count_bytes(const grouped_spec *s, const sizes *z, int threads, size_t *bytes) {
  size_t all;
  if (!size_mul(z->per_thread, (size_t)threads, &all) || !size_add(all, list_bytes(s), bytes))
    HP_FAIL(HP_ERR_OOM, "rows by expert need more work memory than can be addressed");
  return HP_OK;
}

hp_status grouped_work(cpu_isa isa, const grouped_spec *s, int threads, size_t *bytes) {
  sizes z = plan_product_sizes(get_kernels(isa), s);
  return count_bytes(s, &z, threads, bytes);
}
hp_status grouped_grad_work(cpu_isa isa, const grouped_spec *s, int threads, size_t *bytes) {
  sizes z = plan_gradient_sizes(get_kernels(isa), s);
  return count_bytes(s, &z, threads, bytes);
}

/* --- rows by expert --------------------------------------------------------------------------- */

/* A counting sort of the slots; those without an expert come last. */
static void sort_slots(grouped_job *j, const int32_t *ids) {
  int64_t experts = j->s->experts, slots = j->s->rows * j->s->slots;
  memset(j->start, 0, sizeof *j->start * (size_t)(experts + 2));
  for (int64_t i = 0; i < slots; i++) {
    int64_t e = ids[i] < 0 || ids[i] >= experts ? experts : ids[i];
    j->start[e + 1]++;
  }
  for (int64_t e = 0; e <= experts; e++) j->start[e + 1] += j->start[e];
  memcpy(j->first, j->start, sizeof *j->first * (size_t)(experts + 1)); /* where the next goes */
  for (int64_t i = 0; i < slots; i++) {
    int64_t e = ids[i] < 0 || ids[i] >= experts ? experts : ids[i];
    j->order[j->first[e]++] = i;
  }
}

/* The expert that item i belongs to. */
static int64_t find_expert(const grouped_job *j, int64_t i) {
  int64_t low = 0, high = j->s->experts;
  while (high - low > 1) {
    int64_t middle = (low + high) / 2;
    if (j->first[middle] <= i) low = middle;
    else high = middle;
  }
  return low;
}

static void run_thread(void *ctx, int64_t thread) {
  grouped_job *j = ctx;
  char *work = j->work + (size_t)thread * j->z.per_thread;
  int64_t items = j->first[j->s->experts];
  for (int64_t i; (i = atomic_fetch_add(&j->next, 1)) < items;) {
    int64_t e = find_expert(j, i);
    j->item(j, e, i - j->first[e], work);
  }
}

static void job_begin(grouped_job *j, const int32_t *ids, void *work) {
  j->start = work;
  j->first = j->start + j->s->experts + 2;
  j->order = j->first + j->s->experts + 2;
  j->work = (char *)work + list_bytes(j->s);
  sort_slots(j, ids);
}

static void job_run(grouped_job *j, pool *threads) {
  int64_t items = j->first[j->s->experts];
  if (items) pool_run(threads, min_i64(pool_size(threads), items), run_thread, j);
}

static const void *get_element(const void *p, hp_dtype type, int64_t i) {
  return (const char *)p + i * (int64_t)dtype_size(type);
}

/* Elements from..+n of rows order[i]..+rows of `from` [*, width], widened, as rows of `to`, `pitch`
 * floats from one to the next.  `shared`: that many slots have one row of it. */
static void gather_rows(const grouped_job *j, const void *from, int64_t width, int64_t shared,
                        int64_t i, int64_t rows, int64_t first, int64_t n, float *to,
                        int64_t pitch) {
  for (int64_t r = 0; r < rows; r++) {
    int64_t row = j->order[i + r] / shared;
    j->kernels->start(to + r * pitch, pitch, 1, n,
                      get_element(from, j->s->type, row * width + first), j->s->type, 0, 1);
  }
}

static float *get_region(char *work, size_t at) { return (float *)(void *)(work + at); }

/* --- the product ------------------------------------------------------------------------------ */

/* An expert's weights as [n, k], by strides. */
typedef struct {
  const void *at;
  int64_t along_n, along_k;
} weights;

static weights get_expert_weights(const grouped_job *j, int64_t expert) {
  const grouped_spec *s = j->s;
  return (weights){get_element(j->w, s->type, expert * s->n * s->k), s->transposed ? 1 : s->k,
                   s->transposed ? s->n : 1};
}

static const void *get_weights(const grouped_job *j, const weights *w, int64_t n, int64_t k) {
  return get_element(w->at, j->s->type, n * w->along_n + k * w->along_k);
}

/* Sums of `rows` sorted slots from i on, columns n0..+cols, to c. */
static void compute_product_blocks(const grouped_job *j, const weights *w, int64_t i, int64_t rows,
                                   int64_t n0, int64_t cols, char *work, float *c) {
  const grouped_spec *s = j->s;
  const gemm_kernels *kernels = j->kernels;
  float *pa = get_region(work, j->z.a), *pb = get_region(work, j->z.b);
  for (int64_t k = 0; k < s->k || k == 0; k += j->z.depth) {
    int64_t steps = min_i64(j->z.depth, s->k - k);
    kernels->pack_panels(pb, &(gemm_source){get_weights(j, w, n0, k), s->type, cols, steps,
                                            w->along_n, w->along_k, 0, false});
    for (int64_t r = 0; r < rows; r += j->z.panel_rows) {
      int64_t some = min_i64(j->z.panel_rows, rows - r);
      gather_rows(j, j->x, s->k, s->shared ? s->slots : 1, i + r, some, k, steps, pa, GEMM_PITCH);
      kernels->block(some, cols, steps, pa, &(gemm_columns){pb, steps * GEMM_PACK, false},
                     c + r * cols, cols, k > 0, &(gemm_target){0}, &(gemm_ahead){0});
    }
  }
}

/* Few rows: reads the weights once, in place. */
static void compute_few_rows(const grouped_job *j, const weights *w, int64_t i, int64_t rows,
                             int64_t n0, int64_t cols, char *work, float *c) {
  const grouped_spec *s = j->s;
  float *x = get_region(work, j->z.gathered);
  gather_rows(j, j->x, s->k, s->shared ? s->slots : 1, i, rows, 0, s->k, x, s->k);
  j->kernels->rows(rows, cols, s->k, x, s->k, get_weights(j, w, n0, 0), s->type, w->along_k,
                   w->along_n, c, cols, false);
}

static void compute_product_item(const grouped_job *j, int64_t expert, int64_t item, char *work) {
  const grouped_spec *s = j->s;
  int64_t across = div_up(s->n, j->z.cols), n0 = item % across * j->z.cols;
  int64_t i = j->start[expert] + item / across * j->z.rows;
  int64_t rows = min_i64(j->z.rows, j->start[expert + 1] - i), cols = min_i64(j->z.cols, s->n - n0);
  weights w = get_expert_weights(j, expert);
  float *c = get_region(work, j->z.c);
  (rows <= GEMM_ROWS_MAX ? compute_few_rows : compute_product_blocks)(j, &w, i, rows, n0, cols,
                                                                      work, c);
  for (int64_t r = 0; r < rows; r++) {
    int64_t to = j->order[i + r] * s->n + n0;
    j->kernels->finish(c + r * cols, cols, 1, cols, 1, NULL, NULL,
                       (char *)j->y + to * (int64_t)dtype_size(s->out_type), s->out_type, 0, 1);
  }
}

void grouped_run(cpu_isa isa, pool *threads, const grouped_spec *s, const void *x, const void *w,
                 const int32_t *ids, void *y, void *work) {
  grouped_job j = {.s = s, .kernels = get_kernels(isa), .x = x, .w = w, .y = y};
  j.z = plan_product_sizes(j.kernels, s);
  j.item = compute_product_item;
  job_begin(&j, ids, work);
  size_t row = (size_t)s->n * dtype_size(s->out_type);
  for (int64_t i = j.start[s->experts]; i < j.start[s->experts + 1]; i++)
    memset((char *)y + (size_t)j.order[i] * row, 0, row);
  int64_t items = 0;
  for (int64_t e = 0; e <= s->experts; e++) {
    j.first[e] = items;
    if (e < s->experts)
      items += div_up(j.start[e + 1] - j.start[e], j.z.rows) * div_up(s->n, j.z.cols);
  }
  job_run(&j, threads);
}

/* --- the gradient ----------------------------------------------------------------------------- */

/* Features n0..+rows of dy by k0..+cols of x, summed over all slots of an expert, into c. */
static void compute_gradient_blocks(const grouped_job *j, int64_t expert, int64_t n0, int64_t rows,
                                    int64_t k0, int64_t cols, char *work, float *c, int64_t ldc) {
  const grouped_spec *s = j->s;
  const gemm_kernels *kernels = j->kernels;
  float *pa = get_region(work, j->z.a), *pb = get_region(work, j->z.b),
        *rows_of = get_region(work, j->z.gathered);
  int64_t begin = j->start[expert], end = j->start[expert + 1];
  for (int64_t i = begin; i < end || i == begin; i += j->z.depth) {
    int64_t steps = min_i64(j->z.depth, end - i);
    gather_rows(j, j->x, s->k, s->shared ? s->slots : 1, i, steps, k0, cols, rows_of, cols);
    kernels->pack_panels(pb, &(gemm_source){rows_of, HP_F32, cols, steps, 1, cols, 0, false});
    for (int64_t r = 0; r < rows; r += j->z.panel_rows) {
      int64_t some = min_i64(j->z.panel_rows, rows - r);
      gather_rows(j, j->w, s->n, 1, i, steps, n0 + r, some, rows_of, some);
      kernels->pack_rows(pa, GEMM_PITCH,
                         &(gemm_source){rows_of, HP_F32, some, steps, 1, some, 0, false});
      kernels->block(some, cols, steps, pa, &(gemm_columns){pb, steps * GEMM_PACK, false},
                     c + r * ldc, ldc, i > begin, &(gemm_target){0}, &(gemm_ahead){0});
    }
  }
}

static void compute_gradient_item(const grouped_job *j, int64_t expert, int64_t item, char *work) {
  const grouped_spec *s = j->s;
  int64_t across = div_up(s->k, j->z.cols);
  int64_t n0 = item / across * j->z.rows, k0 = item % across * j->z.cols;
  int64_t rows = min_i64(j->z.rows, s->n - n0), cols = min_i64(j->z.cols, s->k - k0);
  int64_t to = (expert * s->n + n0) * s->k + k0;
  if (s->out_type == HP_F32) {
    compute_gradient_blocks(j, expert, n0, rows, k0, cols, work, (float *)j->y + to, s->k);
    return;
  }
  float *c = get_region(work, j->z.c);
  compute_gradient_blocks(j, expert, n0, rows, k0, cols, work, c, cols);
  j->kernels->finish(c, cols, rows, cols, 1, NULL, NULL,
                     (char *)j->y + to * (int64_t)dtype_size(s->out_type), s->out_type, s->k, 1);
}

void grouped_grad_run(cpu_isa isa, pool *threads, const grouped_spec *s, const void *dy,
                      const void *x, const int32_t *ids, void *dw, void *work) {
  grouped_job j = {.s = s, .kernels = get_kernels(isa), .x = x, .w = dy, .y = dw};
  j.z = plan_gradient_sizes(j.kernels, s);
  j.item = compute_gradient_item;
  job_begin(&j, ids, work);
  int64_t each = div_up(s->n, j.z.rows) * div_up(s->k, j.z.cols);
  for (int64_t e = 0; e <= s->experts; e++) j.first[e] = e * each;
  job_run(&j, threads);
}
