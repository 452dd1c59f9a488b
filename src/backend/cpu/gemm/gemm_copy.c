#include "backend/cpu/gemm/gemm_copy.h"

#include "base/dtype.h"

/* TILE x TILE elements are copied at a time, so that both sides use the full cache lines that
 * they touch; a part is a thread's unit of work. */
enum { TILE = 16, PART_ELEMENTS = 1 << 14 };

typedef struct {
  gemm_copy c; /* rank >= 2: the last dim is contiguous in writing, the one before in reading */
  const char *from;
  char *to;
  int64_t part_rows, row_parts; /* of the last but one dim */
} job;

static void swap_dims(gemm_copy *c, int i, int j) {
  __typeof__(c->dim[0]) t = c->dim[i];
  c->dim[i] = c->dim[j];
  c->dim[j] = t;
}

/* Removes dims of size 1 and merges adjacent dims that are contiguous in both tensors; at least
 * two dims remain. */
static gemm_copy simplify_copy(const gemm_copy *given) {
  gemm_copy c = *given;
  c.rank = 0;
  for (int i = 0; i < given->rank; i++) {
    __typeof__(c.dim[0]) d = given->dim[i], *last = c.rank > 0 ? &c.dim[c.rank - 1] : NULL;
    if (d.size == 1) continue;
    if (last && last->from == d.from * d.size && last->to == d.to * d.size) {
      d.size *= last->size;
      *last = d;
    } else {
      c.dim[c.rank++] = d;
    }
  }
  for (; c.rank < 2; c.rank++) {
    c.dim[c.rank].size = 1;
    c.dim[c.rank].from = c.dim[c.rank].to = INT64_MAX; /* never the smallest */
  }
  return c;
}

/* The dim with the smallest stride in `to` goes last, that of `from` among the others before it. */
static void order_dims(gemm_copy *c) {
  int best = 0;
  for (int i = 1; i < c->rank; i++)
    if (c->dim[i].to <= c->dim[best].to) best = i;
  swap_dims(c, best, c->rank - 1);
  best = 0;
  for (int i = 1; i < c->rank - 1; i++)
    if (c->dim[i].from <= c->dim[best].from) best = i;
  swap_dims(c, best, c->rank - 2);
  for (int i = 0; i < c->rank; i++)
    if (c->dim[i].size == 1) c->dim[i].from = c->dim[i].to = 0;
}

static float load_element(const void *p, hp_dtype type) {
  if (type == HP_F32) return *(const float *)p;
  uint16_t h = *(const uint16_t *)p;
  return type == HP_BF16 ? bf16_to_f32(h) : f16_to_f32(h);
}
static void store_element(void *p, hp_dtype type, float x) {
  if (type == HP_F32) *(float *)p = x;
  else *(uint16_t *)p = type == HP_BF16 ? f32_to_bf16(x) : f32_to_f16(x);
}

/* rows x cols elements of the last two dims. */
static void copy_tile(const gemm_copy *c, const char *from, char *to, int64_t rows, int64_t cols) {
  int64_t f = (int64_t)dtype_size(c->from_type), t = (int64_t)dtype_size(c->to_type);
  int64_t fr = c->dim[c->rank - 2].from * f, fc = c->dim[c->rank - 1].from * f;
  int64_t tr = c->dim[c->rank - 2].to * t, tc = c->dim[c->rank - 1].to * t;
  bool same = c->from_type == c->to_type && c->alpha == 1;
  for (int64_t i = 0; i < rows; i++) {
    const char *x = from + i * fr;
    char *y = to + i * tr;
    if (same && f == 4)
      for (int64_t j = 0; j < cols; j++) memcpy(y + j * tc, x + j * fc, 4);
    else if (same)
      for (int64_t j = 0; j < cols; j++) memcpy(y + j * tc, x + j * fc, 2);
    else
      for (int64_t j = 0; j < cols; j++)
        store_element(y + j * tc, c->to_type, load_element(x + j * fc, c->from_type) * c->alpha);
  }
}

static void copy_part(void *ctx, int64_t part) {
  const job *w = ctx;
  const gemm_copy *c = &w->c;
  int64_t f = (int64_t)dtype_size(c->from_type), t = (int64_t)dtype_size(c->to_type);
  int64_t row = part % w->row_parts * w->part_rows, outer = part / w->row_parts;
  int64_t from = 0, to = 0;
  for (int d = c->rank - 3; d >= 0; d--) {
    from += outer % c->dim[d].size * c->dim[d].from;
    to += outer % c->dim[d].size * c->dim[d].to;
    outer /= c->dim[d].size;
  }
  int64_t end = row + w->part_rows, rows = c->dim[c->rank - 2].size,
          cols = c->dim[c->rank - 1].size;
  if (end > rows) end = rows;
  bool along = c->dim[c->rank - 1].from == 1 && c->dim[c->rank - 1].to == 1;
  int64_t step = along ? cols : TILE;
  for (; row < end; row += TILE) {
    int64_t h = end - row < TILE ? end - row : TILE;
    for (int64_t col = 0; col < cols; col += step) {
      int64_t n = cols - col < step ? cols - col : step;
      copy_tile(c,
                w->from +
                    (from + row * c->dim[c->rank - 2].from + col * c->dim[c->rank - 1].from) * f,
                w->to + (to + row * c->dim[c->rank - 2].to + col * c->dim[c->rank - 1].to) * t, h,
                n);
    }
  }
}

void gemm_copy_run(const gemm_copy *given, const void *from, void *to, pool *threads) {
  for (int i = 0; i < given->rank; i++)
    if (given->dim[i].size == 0) return;
  job w = {.c = simplify_copy(given), .from = from, .to = to};
  order_dims(&w.c);
  int64_t outer = 1, rows = w.c.dim[w.c.rank - 2].size, cols = w.c.dim[w.c.rank - 1].size;
  for (int d = 0; d < w.c.rank - 2; d++) outer *= w.c.dim[d].size;
  w.part_rows = PART_ELEMENTS / cols / TILE * TILE;
  if (w.part_rows < TILE) w.part_rows = TILE;
  w.row_parts = (rows + w.part_rows - 1) / w.part_rows;
  pool_run(threads, outer * w.row_parts, copy_part, &w);
}
