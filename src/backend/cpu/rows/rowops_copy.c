/* Strided copies.  Dims are first made few: those of size 1 go, neighbours that are one run in both
 * tensors join.  Then, with the last dim innermost: runs that are contiguous on both sides are
 * memcpy, a value that repeats is a fill, and the rest goes by squares of 16 x 16 (a transposition,
 * where one tensor is contiguous in one dim and the other in the other). */
#include "backend/cpu/rows/rowops.h"
#include "base/dtype.h"

#include <stdatomic.h>
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

enum {
  SIDE = 16,
  CHUNK = 1 << 15,       /* elements of an item, about */
  STREAM_RUN = 4096,     /* bytes of a run that may go past the caches */
  STREAM_ALL = 16 << 20, /* and of the whole copy, for it to do so */
};

typedef struct {
  row_layout l; /* joined; at least rank 2, the last dims are those of a block */
  size_t element;
  const char *from;
  char *to;
  bool large;
  int64_t rows; /* of dim rank - 2 in an item */
  int64_t items;
  atomic_llong next;
} copy_job;

/* Copies n bytes past the caches: a large copy would only evict their contents. */
static void copy_past_caches(char *to, const char *from, int64_t n) {
#if defined(__SSE2__)
  int64_t head = (int64_t)(-(uintptr_t)to & 15);
  if (n >= STREAM_RUN) {
    memcpy(to, from, (size_t)head);
    for (to += head, from += head, n -= head; n >= 64; to += 64, from += 64, n -= 64)
      for (int i = 0; i < 64; i += 16)
        _mm_stream_si128((void *)(to + i), _mm_loadu_si128((const void *)(from + i)));
    _mm_sfence();
  }
#endif
  memcpy(to, from, (size_t)n);
}

/* A block of rows x n for one type of element: runs, repeats, and by squares.  A square that is
 * transposed goes through a buffer, so that either tensor is touched by whole lines only: columns
 * of a tensor may all fall on the same places of a cache. */
#define COPY_BLOCK(T)                                                                              \
  static void square_##T(const T *from, int64_t fr, int64_t fc, T *to, int64_t tr, int64_t tc,     \
                         int64_t rows, int64_t n) {                                                \
    T x[SIDE * SIDE];                                                                              \
    if (fr == 1 && tc == 1 && rows == SIDE && n == SIDE) {                                         \
      for (int c = 0; c < SIDE; c++) memcpy(x + c * SIDE, from + c * fc, sizeof(T) * SIDE);        \
      for (int r = 0; r < SIDE; r++)                                                               \
        for (int c = 0; c < SIDE; c++) to[r * tr + c] = x[c * SIDE + r];                           \
      return;                                                                                      \
    }                                                                                              \
    for (int64_t c = 0; c < n; c++)                                                                \
      for (int64_t r = 0; r < rows; r++) x[c * SIDE + r] = from[c * fc + r * fr];                  \
    for (int64_t r = 0; r < rows; r++)                                                             \
      for (int64_t c = 0; c < n; c++) to[r * tr + c * tc] = x[c * SIDE + r];                       \
  }                                                                                                \
  static void block_##T(const T *from, int64_t fr, int64_t fc, T *to, int64_t tr, int64_t tc,      \
                        int64_t rows, int64_t n, bool large) {                                     \
    if (tc == 1 && fc == 1) {                                                                      \
      int64_t bytes = n * (int64_t)sizeof(T);                                                      \
      for (int64_t r = 0; r < rows; r++)                                                           \
        if (large) copy_past_caches((char *)(to + r * tr), (const char *)(from + r * fr), bytes);  \
        else memcpy(to + r * tr, from + r * fr, (size_t)bytes);                                    \
    } else if (tc == 1 && fc == 0) {                                                               \
      for (int64_t r = 0; r < rows; r++) {                                                         \
        const T x = from[r * fr];                                                                  \
        for (int64_t c = 0; c < n; c++) to[r * tr + c] = x;                                        \
      }                                                                                            \
    } else {                                                                                       \
      for (int64_t c = 0; c < n; c += SIDE)                                                        \
        for (int64_t r = 0; r < rows; r += SIDE)                                                   \
          square_##T(from + r * fr + c * fc, fr, fc, to + r * tr + c * tc, tr, tc,                 \
                     r + SIDE < rows ? SIDE : rows - r, c + SIDE < n ? SIDE : n - c);              \
    }                                                                                              \
  }
COPY_BLOCK(uint8_t)
COPY_BLOCK(uint16_t)
COPY_BLOCK(uint32_t)
COPY_BLOCK(uint64_t)

static int64_t size_of(int64_t x) { return x < 0 ? -x : x; }

/* Removes dims of 1 and joins neighbours; false when there is nothing to copy. */
static bool merge_dims(const row_layout *in, row_layout *out) {
  out->rank = 0;
  for (int d = 0; d < in->rank; d++) {
    if (in->dim[d] == 0) return false;
    if (in->dim[d] == 1) continue;
    int o = out->rank;
    if (o && out->from[o - 1] == in->from[d] * in->dim[d] &&
        out->to[o - 1] == in->to[d] * in->dim[d]) {
      out->dim[o - 1] *= in->dim[d];
      out->from[o - 1] = in->from[d];
      out->to[o - 1] = in->to[d];
      continue;
    }
    out->dim[o] = in->dim[d], out->from[o] = in->from[d], out->to[o] = in->to[d];
    out->rank++;
  }
  return true;
}

static void move_last(row_layout *l, int d, int place) {
  int64_t dim = l->dim[d], from = l->from[d], to = l->to[d];
  for (; d < place; d++)
    l->dim[d] = l->dim[d + 1], l->from[d] = l->from[d + 1], l->to[d] = l->to[d + 1];
  l->dim[place] = dim, l->from[place] = from, l->to[place] = to;
}

/* The last dim of the least stride among the first n. */
static int find_least_stride(const int64_t *stride, int n) {
  int best = 0;
  for (int d = 1; d < n; d++)
    if (size_of(stride[d]) <= size_of(stride[best])) best = d;
  return best;
}

/* The dim with the least stride of `to` innermost; before it, the least of `from` in what is left
 * (a transposition), or any. */
static void order_dims(row_layout *l) {
  while (l->rank < 2) {
    for (int d = l->rank; d > 0; d--) move_last(l, d - 1, d);
    l->dim[0] = 1, l->from[0] = l->to[0] = INT64_MAX; /* never the innermost */
    l->rank++;
  }
  move_last(l, find_least_stride(l->to, l->rank), l->rank - 1);
  move_last(l, find_least_stride(l->from, l->rank - 1), l->rank - 2);
}

static void copy_item(copy_job *j, int64_t item) {
  const row_layout *l = &j->l;
  int last = l->rank - 1, mid = last - 1;
  int64_t parts = (l->dim[mid] + j->rows - 1) / j->rows, first = item % parts * j->rows;
  int64_t rows = l->dim[mid] - first < j->rows ? l->dim[mid] - first : j->rows;
  int64_t from = first * l->from[mid], to = first * l->to[mid];
  item /= parts;
  for (int d = mid - 1; d >= 0; d--) {
    from += item % l->dim[d] * l->from[d];
    to += item % l->dim[d] * l->to[d];
    item /= l->dim[d];
  }
  const char *f = j->from + from * (int64_t)j->element;
  char *t = j->to + to * (int64_t)j->element;
  int64_t fr = l->from[mid], fc = l->from[last], tr = l->to[mid], tc = l->to[last],
          n = l->dim[last];
  switch (j->element) {
  case 1: block_uint8_t((const void *)f, fr, fc, (void *)t, tr, tc, rows, n, j->large); break;
  case 2: block_uint16_t((const void *)f, fr, fc, (void *)t, tr, tc, rows, n, j->large); break;
  case 4: block_uint32_t((const void *)f, fr, fc, (void *)t, tr, tc, rows, n, j->large); break;
  default: block_uint64_t((const void *)f, fr, fc, (void *)t, tr, tc, rows, n, j->large);
  }
}

static void copy_thread(void *ctx, int64_t thread) {
  copy_job *j = ctx;
  (void)thread;
  for (int64_t i; (i = atomic_fetch_add(&j->next, 1)) < j->items;) copy_item(j, i);
}

/* One long run is cut in two dims, so that threads can share it. */
static void cut_run(row_layout *l) {
  int last = l->rank - 1, mid = last - 1;
  if (l->dim[mid] > 1 || l->dim[last] <= CHUNK || l->dim[last] % 2) return;
  int64_t n = l->dim[last], side = 2;
  while (n % (side * 2) == 0 && n / side > CHUNK) side *= 2;
  l->dim[mid] = side, l->dim[last] = n / side;
  l->from[mid] = l->from[last] * (n / side);
  l->to[mid] = l->to[last] * (n / side);
}

static hp_status check_copy(const row_layout *l, size_t element) {
  if (l->rank < 0 || l->rank > HP_MAX_RANK)
    HP_FAIL(HP_ERR_SHAPE, "copy of rank %d: expected 0..%d", l->rank, HP_MAX_RANK);
  for (int d = 0; d < l->rank; d++)
    if (l->dim[d] < 0) HP_FAIL(HP_ERR_SHAPE, "copy: dim %d is %lld", d, (long long)l->dim[d]);
  if (element != 1 && element != 2 && element != 4 && element != 8)
    HP_FAIL(HP_ERR_ARG, "copy of elements of %zu bytes: expected 1, 2, 4 or 8", element);
  return HP_OK;
}

hp_status row_copy(pool *p, const row_layout *l, size_t element, const void *from, void *to) {
  copy_job j = {.element = element, .from = from, .to = to};
  HP_TRY(check_copy(l, element));
  if (!merge_dims(l, &j.l)) return HP_OK;
  order_dims(&j.l);
  cut_run(&j.l);
  int64_t n = j.l.dim[j.l.rank - 1], rows = j.l.dim[j.l.rank - 2];
  bool runs = j.l.from[j.l.rank - 1] == 1 && j.l.to[j.l.rank - 1] == 1;
  j.rows = CHUNK / (n < CHUNK ? n : CHUNK);
  if (!runs && j.rows < 4 * SIDE) j.rows = 4 * SIDE; /* neighbouring lines, together */
  j.items = (rows + j.rows - 1) / j.rows;
  double bytes = (double)n * (double)rows * (double)element;
  for (int d = 0; d < j.l.rank - 2; d++) j.items *= j.l.dim[d], bytes *= (double)j.l.dim[d];
  j.large = bytes >= STREAM_ALL;
  int64_t threads = pool_size(p);
  pool_run(p, threads < j.items ? threads : j.items, copy_thread, &j);
  return HP_OK;
}

hp_status row_fill(pool *p, const row_layout *l, size_t element, const void *value, void *to) {
  row_layout all = *l;
  for (int d = 0; d < HP_MAX_RANK; d++) all.from[d] = 0;
  return row_copy(p, &all, element, value, to);
}
