/* Random numbers, 16 counter blocks (64 numbers) at a time: the numbers of base/philox.h, with the
 * same operations in vector form. */
#include "backend/cpu/isa/philox_vec.h"
#include "backend/cpu/rows/rows_isa.h"
#include "backend/cpu/simd.h"
#include "base/philox.h"

enum { BLOCKS = 16, NUMBERS = 4 * BLOCKS };

/* Blocks of the lanes: with these, `in_order` needs no more than swaps within quarters. */
static const int32_t step[BLOCKS] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};

/* Word w of blocks block + step[..] in u[w].  Adding to the low words in a vector is worth a case
 * of its own: a vector loaded from sixteen fresh scalars waits for all of them. */
static void draw_words(const row_random_spec *r, uint64_t block, v16i u[4]) {
  u[0] = v16i_add(v16i_set1((int32_t)(uint32_t)block), v16i_load(step));
  u[1] = v16i_set1((int32_t)(block >> 32));
  if ((uint32_t)block > UINT32_MAX - BLOCKS) { /* the high word changes on the way */
    int32_t high[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) high[i] = (int32_t)((block + (uint64_t)step[i]) >> 32);
    u[1] = v16i_load(high);
  }
  u[2] = v16i_set1((int32_t)r->stream), u[3] = v16i_set1((int32_t)(r->stream >> 32));
  philox_16(u, r->seed);
}

/* Words x[0..3] of the blocks of `step`, one number after the other. */
#if defined(__AVX512F__)
static void interleave_lanes(const v16f x[4], float *out) {
  __m512 a = _mm512_unpacklo_ps(x[0], x[1]), b = _mm512_unpackhi_ps(x[0], x[1]);
  __m512 c = _mm512_unpacklo_ps(x[2], x[3]), d = _mm512_unpackhi_ps(x[2], x[3]);
  __m512d low = _mm512_castps_pd(a), high = _mm512_castps_pd(b);
  v16_store(out, _mm512_castpd_ps(_mm512_unpacklo_pd(low, _mm512_castps_pd(c))));
  v16_store(out + 16, _mm512_castpd_ps(_mm512_unpackhi_pd(low, _mm512_castps_pd(c))));
  v16_store(out + 32, _mm512_castpd_ps(_mm512_unpacklo_pd(high, _mm512_castps_pd(d))));
  v16_store(out + 48, _mm512_castpd_ps(_mm512_unpackhi_pd(high, _mm512_castps_pd(d))));
}
#else
static void interleave_lanes(const v16f x[4], float *out) {
  float in[4][BLOCKS];
  for (int w = 0; w < 4; w++) v16_store(in[w], x[w]);
  for (int i = 0; i < BLOCKS; i++)
    for (int w = 0; w < 4; w++) out[4 * step[i] + w] = in[w][i];
}
#endif

/* philox_normals in 16 lanes */
static void compute_normals(const int32_t u[BLOCKS], const int32_t v[BLOCKS], v16f *first,
                            v16f *second) {
  float uf[BLOCKS], x[BLOCKS];
  int32_t swap[BLOCKS], sign_c[BLOCKS], sign_s[BLOCKS];
  for (int i = 0; i < BLOCKS; i++) {
    uint32_t turn = (uint32_t)v[i], q = (turn + 0x20000000u) >> 30;
    uf[i] = (float)(uint32_t)u[i];
    x[i] = (float)(int32_t)(turn - (q << 30)) * 0x1p-32f;
    swap[i] = (int32_t)(q & 1);
    sign_c[i] = (int32_t)((q + 1) << 30 & 0x80000000u);
    sign_s[i] = (int32_t)(q << 30 & 0x80000000u);
  }
  v16f one = v16_set1(1.0f), xv = v16_load(x), x2 = v16_mul(xv, xv), s, c;
  v16f r = v16_log(v16_mul(v16_add(v16_load(uf), one), v16_set1(0x1p-32f)));
  r = v16_sqrt(v16_mul(v16_set1(-2.0f), r));
  SIMD_POLY(s, x2, -0x1.2d9332p+6f, 0x1.465e94p+6f, -0x1.4abbbap+5f, 0x1.921fb6p+2f);
  s = v16_mul(s, xv);
  SIMD_POLY(c, x2, 0x1.d9d57ep+5f, -0x1.55c5e0p+6f, 0x1.03c1dep+6f, -0x1.3bd3ccp+4f, 1.0f);
  v16m odd = v16i_lt(v16i_set1(0), v16i_load(swap));
  v16i a = v16_as_i(v16_select(odd, s, c)), b = v16_as_i(v16_select(odd, c, s));
  *first = v16_mul(r, v16i_as_f(v16i_xor(a, v16i_load(sign_c))));
  *second = v16_mul(r, v16i_as_f(v16i_xor(b, v16i_load(sign_s))));
}

/* Numbers 4 * block .. 4 * block + 63 of the stream, in order. */
static void draw_numbers(const row_random_spec *r, uint64_t block, float *out) {
  v16i u[4];
  v16f x[4];
  draw_words(r, block, u);
  if (r->kind == ROW_NORMAL) {
    int32_t n[4][BLOCKS];
    for (int w = 0; w < 4; w++) v16i_store(n[w], u[w]);
    compute_normals(n[0], n[1], &x[0], &x[1]);
    compute_normals(n[2], n[3], &x[2], &x[3]);
  } else {
    for (int w = 0; w < 4; w++) x[w] = v16_mul(v16i_to_f(v16i_shr(u[w], 8)), v16_set1(0x1p-24f));
  }
  interleave_lanes(x, out);
}

static void store_numbers(hp_dtype t, void *y, int64_t at, const float *x, int64_t n) {
  for (int64_t i = 0; i < n; i += 16) {
    int left = v16_left(n, i);
    v16_store_as(t, y, at + i, v16_load_n(x + i, left), left);
  }
}

/* Index in the whole tensor of the first element of local run `run` of the last dim. */
static uint64_t global_index(const row_random_spec *r, int64_t run) {
  uint64_t at = 0, stride = 1;
  for (int d = r->local.rank - 1; d >= 0; d--) {
    int64_t i = 0;
    if (d < r->local.rank - 1) i = run % r->local.dim[d], run /= r->local.dim[d];
    at += stride * (uint64_t)(r->start[d] + i);
    stride *= (uint64_t)r->global.dim[d];
  }
  return at;
}

/* Items are chunks of ROWS_CHUNK elements of runs of the last dim, j->n chunks a run. */
void ISA_NAME(rows_random)(rows_job *j, int64_t from, int64_t to) {
  float x[NUMBERS];
  for (int64_t item = from; item < to; item++) {
    int64_t run = item / j->n, first = item % j->n * ROWS_CHUNK, y = run * j->width + first;
    int64_t left = j->width - first < ROWS_CHUNK ? j->width - first : ROWS_CHUNK;
    uint64_t at = global_index(j->random, run) + (uint64_t)first;
    while (left > 0) {
      int64_t skip = (int64_t)(at & 3), n = NUMBERS - skip < left ? NUMBERS - skip : left;
      draw_numbers(j->random, at >> 2, x);
      store_numbers(j->out_type, j->y, y, x + skip, n);
      at += (uint64_t)n, y += n, left -= n;
    }
  }
}
