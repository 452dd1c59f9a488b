/* The largest of rows, and elements by index. */
#include "backend/cpu/rows/rowops.h"
#include "base/dtype.h"

#include <string.h>

enum { CHUNK = 1 << 14 }; /* elements of an item, about */

typedef struct job job;
struct job {
  const row_choice *r;
  const char *x;
  char *y;
  int64_t each; /* rows of an item */
  void (*row)(const job *j, int64_t row);
};

static void run_item(void *ctx, int64_t item) {
  const job *j = ctx;
  int64_t first = item * j->each, left = j->r->N - first;
  for (int64_t i = 0; i < (left < j->each ? left : j->each); i++) j->row(j, first + i);
}

static void run_job(pool *p, job *j) {
  int64_t width = j->r->width + j->r->k;
  j->each = width < CHUNK ? CHUNK / (width + 1) + 1 : 1;
  if (j->r->N > 0) pool_run(p, (j->r->N + j->each - 1) / j->each, run_item, j);
}

static float load_element(const void *row, hp_dtype t, int64_t i) {
  if (t == HP_F32) return ((const float *)row)[i];
  uint16_t h = ((const uint16_t *)row)[i];
  return t == HP_BF16 ? bf16_to_f32(h) : f16_to_f32(h);
}
static void store_element(void *row, hp_dtype t, int64_t i, float x) {
  if (t == HP_F32) ((float *)row)[i] = x;
  else ((uint16_t *)row)[i] = t == HP_BF16 ? f32_to_bf16(x) : f32_to_f16(x);
}

/* Element from of one row to element `to` of another. */
static void copy_element(void *to_row, int64_t to, const void *row, hp_dtype t, int64_t from) {
  size_t n = dtype_size(t);
  memcpy((char *)to_row + (size_t)to * n, (const char *)row + (size_t)from * n, n);
}

static const void *get_row(const void *x, const job *j, int64_t row, int64_t width) {
  return (const char *)x + (size_t)(row * width) * dtype_size(j->r->dtype);
}

static bool is_less(float a, float b) { return a < b || (b != b && a == a); }

/* The best so far, in order: an element goes before those that are less, behind its equals. */
static void find_topk_of_row(const job *j, int64_t row) {
  const row_choice *r = j->r;
  const void *x = get_row(j->x, j, row, r->width);
  void *y = (void *)(uintptr_t)get_row(j->y, j, row, r->k);
  int32_t *best = r->index + row * r->k;
  int64_t n = 0;
  for (int64_t i = 0; i < r->width; i++) {
    float v = load_element(x, r->dtype, i);
    if (n == r->k && !is_less(load_element(x, r->dtype, best[n - 1]), v)) continue;
    int64_t at = n < r->k ? n++ : n - 1;
    for (; at > 0 && is_less(load_element(x, r->dtype, best[at - 1]), v); at--)
      best[at] = best[at - 1];
    best[at] = (int32_t)i;
  }
  for (int64_t i = 0; i < r->k; i++) copy_element(y, i, x, r->dtype, best[i]);
}

static bool is_inside(const row_choice *r, int32_t index) { return index >= 0 && index < r->width; }

static void take_row(const job *j, int64_t row) {
  const row_choice *r = j->r;
  const void *x = get_row(j->x, j, row, r->width);
  void *y = (void *)(uintptr_t)get_row(j->y, j, row, r->k);
  const int32_t *index = r->index + row * r->k;
  for (int64_t i = 0; i < r->k; i++)
    if (is_inside(r, index[i])) copy_element(y, i, x, r->dtype, index[i]);
    else store_element(y, r->dtype, i, 0);
}

static bool is_first(const int32_t *index, int64_t i) {
  for (int64_t k = 0; k < i; k++)
    if (index[k] == index[i]) return false;
  return true;
}

/* A place is written once, by the first that goes there: sums are f32, and rounded at the end. */
static void put_row(const job *j, int64_t row) {
  const row_choice *r = j->r;
  const void *v = get_row(j->x, j, row, r->k);
  void *y = (void *)(uintptr_t)get_row(j->y, j, row, r->width);
  const int32_t *index = r->index + row * r->k;
  memset(y, 0, (size_t)r->width * dtype_size(r->dtype));
  for (int64_t i = 0; i < r->k; i++) {
    if (!is_inside(r, index[i]) || !is_first(index, i)) continue;
    float sum = load_element(v, r->dtype, i);
    for (int64_t k = i + 1; k < r->k; k++)
      if (index[k] == index[i]) sum += load_element(v, r->dtype, k);
    store_element(y, r->dtype, index[i], sum);
  }
}

void row_topk(pool *p, const row_choice *r, const void *x, void *values) {
  run_job(p, &(job){.r = r, .x = x, .y = values, .row = find_topk_of_row});
}
void row_take(pool *p, const row_choice *r, const void *x, void *y) {
  run_job(p, &(job){.r = r, .x = x, .y = y, .row = take_row});
}
void row_put(pool *p, const row_choice *r, const void *v, void *y) {
  run_job(p, &(job){.r = r, .x = v, .y = y, .row = put_row});
}
