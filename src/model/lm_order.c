/* Converts parameters from the layout of the checkpoint to that of the device. */
#include "base/dtype.h"
#include "base/milestone.h"
#include "model/lm.h"

#include <string.h>

typedef struct {
  const model_param *p;
  const lm_tensor *t; /* its tensors */
  lm_source *source;
  void *ctx;
} filling;

/* Copies elements of a tensor to `to`. */
static hp_status read_elements(const filling *f, const lm_tensor *t, size_t first, size_t n,
                               char *to) {
  const void *at;
  HP_TRY(f->source(f->ctx, t, first, n, to, &at));
  if (at != to) memcpy(to, at, n * dtype_size(f->p->dtype));
  return HP_OK;
}

static hp_status fill_stored(void *ctx, int64_t first, int64_t n, void *to) {
  const filling *f = ctx;
  size_t part = model_param_elements(f->p) / (size_t)model_param_parts(f->p);
  size_t end = (size_t)(first + n), size = dtype_size(f->p->dtype);
  char *out = to;
  for (size_t i = (size_t)first, some; i < end; i += some, out += some * size) {
    size_t left = part - i % part;
    some = left < end - i ? left : end - i;
    HP_TRY(read_elements(f, &f->t[i / part], i % part, some, out));
  }
  return HP_OK;
}

/* --- packed ----------------------------------------------------------------------------------- */

enum { STEP = 512 }; /* k's at a time: converted rows stay in L1 */

static inline uint64_t load_u64(const char *at) {
  uint64_t x;
  memcpy(&x, at, sizeof x);
  return x;
}

/* Four k's of four rows of 16-bit elements, as 64-bit words: a row of the result is 2 *
 * PARAM_PACK bytes. */
static inline void interleave_four_rows(char *to, const char *const row[4], int64_t k) {
  const uint64_t even = 0x0000ffff0000ffff, low = 0xffffffff;
  uint64_t a = load_u64(row[0] + 2 * k), b = load_u64(row[1] + 2 * k);
  uint64_t c = load_u64(row[2] + 2 * k), d = load_u64(row[3] + 2 * k);
  uint64_t ab0 = (a & even) | (b & even) << 16, ab1 = (a >> 16 & even) | (b & ~even);
  uint64_t cd0 = (c & even) | (d & even) << 16, cd1 = (c >> 16 & even) | (d & ~even);
  const uint64_t out[4] = {(ab0 & low) | cd0 << 32, (ab1 & low) | cd1 << 32,
                           ab0 >> 32 | (cd0 & ~low), ab1 >> 32 | (cd1 & ~low)};
  for (int i = 0; i < 4; i++) memcpy(to + i * 2 * PARAM_PACK, &out[i], sizeof *out);
}

/* n k's of PARAM_PACK rows: to[n][PARAM_PACK]; size, of an element, is a constant in each call.
 * The distance of rows may be a power of two, so that few of them fit in one set of a cache:
 * four at a time. */
static inline void interleave_rows(char *to, const char *const row[PARAM_PACK], int64_t n,
                                   const size_t size) {
  int64_t done = size == 2 ? n - n % 4 : 0;
  for (int r = 0; r < PARAM_PACK && done; r += 4)
    for (int64_t k = 0; k < done; k += 4)
      interleave_four_rows(to + (k * PARAM_PACK + r) * 2, row + r, k);
  for (int64_t k = done; k < n; k++)
    for (int64_t r = 0; r < PARAM_PACK; r++)
      memcpy(to + (size_t)(k * PARAM_PACK + r) * size, row[r] + (size_t)k * size, size);
}

/* PARAM_PACK outputs of a tensor [out,in]. */
static hp_status fill_from_rows(const filling *f, int64_t pack, char *to) {
  int64_t in = f->p->shape.dim[1];
  size_t size = dtype_size(f->p->dtype);
  char room[PARAM_PACK][STEP * sizeof(float)];
  const char *row[PARAM_PACK];
  for (int64_t k = 0, n; k < in; k += n, to += (size_t)(n * PARAM_PACK) * size) {
    n = in - k < STEP ? in - k : STEP;
    for (int r = 0; r < PARAM_PACK; r++) {
      const void *at;
      size_t first = (size_t)((pack * PARAM_PACK + r) * in + k);
      HP_TRY(f->source(f->ctx, f->t, first, (size_t)n, room[r], &at));
      row[r] = at;
    }
    if (size == 2) interleave_rows(to, row, n, 2);
    else interleave_rows(to, row, n, 4);
  }
  return HP_OK;
}

/* The same of a tensor [in,out]. */
static hp_status fill_from_columns(const filling *f, int64_t pack, char *to) {
  int64_t in = f->p->shape.dim[1], out = f->p->shape.dim[0] * PARAM_PACK;
  size_t bytes = PARAM_PACK * dtype_size(f->p->dtype);
  for (int64_t k = 0; k < in; k++, to += bytes)
    HP_TRY(read_elements(f, f->t, (size_t)(k * out + pack * PARAM_PACK), PARAM_PACK, to));
  return HP_OK;
}

static hp_status fill_packed(void *ctx, int64_t first, int64_t n, void *to) {
  const filling *f = ctx;
  int64_t pack = f->p->shape.dim[1] * PARAM_PACK;
  size_t bytes = (size_t)pack * dtype_size(f->p->dtype);
  char *out = to;
  bool rows = f->p->order == ORDER_PACKED_ROWS;
  for (int64_t i = first / pack; i < (first + n) / pack; i++, out += bytes)
    HP_TRY(rows ? fill_from_rows(f, i, out) : fill_from_columns(f, i, out));
  return HP_OK;
}

hp_status lm_fill_param(const lm *m, const lm_tensor *t, lm_source *source, void *ctx) {
  const model_param *p = &m->params.at[t->param];
  filling f = {p, t, source, ctx};
  milestone_count_work();
  return hp_fill(m->d, p->name, p->order == ORDER_STORED ? fill_stored : fill_packed, &f);
}
