/* Rotary embedding: each pair (a, b) becomes (a c - b s, b c + a s), rounded after every operation,
 * as frameworks compute it. */
#include "backend/cpu/rows/rows_isa.h"
#include "backend/cpu/simd.h"

/* One head in the form of halves: i goes with i + R/2. */
SIMD void turn_halves(const hp_dtype t, const void *x, void *y, int64_t at, int64_t half,
                      const float *c, const float *s, float sign) {
  for (int64_t i = 0; i < half; i += 16) {
    int n = v16_left(half, i);
    v16f cv = v16_load_n(c + i, n), sv = v16_mul(v16_load_n(s + i, n), v16_set1(sign));
    v16f a = v16_load_as(t, x, at + i, n), b = v16_load_as(t, x, at + half + i, n);
    v16_store_as(t, y, at + i, v16_sub(v16_mul(a, cv), v16_mul(b, sv)), n);
    v16_store_as(t, y, at + half + i, v16_add(v16_mul(b, cv), v16_mul(a, sv)), n);
  }
}

/* One head in the interleaved form: 2 i goes with 2 i + 1; 8 pairs at a time. */
SIMD void turn_pairs(const hp_dtype t, const void *x, void *y, int64_t at, int64_t half,
                     const float *c, const float *s, float sign) {
  for (int64_t i = 0; i < half; i += 8) {
    int pairs = half - i < 8 ? (int)(half - i) : 8;
    float v[16], w[16];
    v16_store(v, v16_load_as(t, x, at + 2 * i, 2 * pairs));
    for (int k = 0; k < pairs; k++) {
      float ck = c[i + k], sk = s[i + k] * sign;
      w[2 * k] = v[2 * k] * ck - v[2 * k + 1] * sk;
      w[2 * k + 1] = v[2 * k + 1] * ck + v[2 * k] * sk;
    }
    v16_store_as(t, y, at + 2 * i, v16_load_n(w, 2 * pairs), 2 * pairs);
  }
}

SIMD void rotate_rows(const hp_dtype t, rows_job *j, int64_t from, int64_t to) {
  const row_rope_spec *r = j->rope;
  int64_t half = r->R / 2;
  float sign = r->inverse ? -1.0f : 1.0f;
  for (int64_t i = from; i < to; i++) {
    const float *c = r->cos + r->position[i] * half, *s = r->sin + r->position[i] * half;
    for (int64_t h = 0; h < r->H; h++) {
      int64_t at = (i * r->H + h) * r->D;
      if (r->interleaved) turn_pairs(t, j->x, j->y, at, half, c, s, sign);
      else turn_halves(t, j->x, j->y, at, half, c, s, sign);
      if (j->y != j->x && r->D > r->R)
        memcpy((char *)j->y + (size_t)(at + r->R) * dtype_size(t),
               (const char *)j->x + (size_t)(at + r->R) * dtype_size(t),
               (size_t)(r->D - r->R) * dtype_size(t));
    }
  }
}

void ISA_NAME(rows_rope)(rows_job *j, int64_t from, int64_t to) {
  if (j->dtype == HP_F32) rotate_rows(HP_F32, j, from, to);
  else if (j->dtype == HP_BF16) rotate_rows(HP_BF16, j, from, to);
  else rotate_rows(HP_F16, j, from, to);
}
