/* Packing: a chunk of A or B, of any strides and float type, into panels of `width` lanes. */
#include "backend/cpu/gemm/gemm.h"
#include "backend/cpu/gemm/gemm_vec.h"

/* What becomes a lane: an element widened to f32, one of f32 rounded to bf16 before, or, for dot
 * instructions, two neighbours in k, of bf16 or of f32 that is rounded. */
typedef enum { WIDEN_F32, WIDEN_BF16, WIDEN_F16, ROUND_F32, PAIRS, ROUND_PAIRS } how;

#if defined(__AVX512BF16__)
GEMM_INLINE int get_elements_per_lane(how h) { return h == PAIRS || h == ROUND_PAIRS ? 2 : 1; }
#else
GEMM_INLINE int get_elements_per_lane(how h) {
  (void)h;
  return 1;
}
#endif
GEMM_INLINE hp_dtype get_element_type(how h) {
  return h == WIDEN_BF16 || h == PAIRS ? HP_BF16 : h == WIDEN_F16 ? HP_F16 : HP_F32;
}
GEMM_INLINE int64_t get_element_size(how h) { return get_element_type(h) == HP_F32 ? 4 : 2; }

/* Strides in bytes; k in elements. */
typedef struct {
  const char *at;
  int64_t lanes, k, lane_bytes, k_bytes, pack_bytes;
} source;

GEMM_INLINE int64_t min_i64(int64_t a, int64_t b) { return a < b ? a : b; }

/* n neighbours in k as lanes of VL steps, zeros after them. */
GEMM_INLINE vf load_along_k(const char *p, how h, int64_t n) {
#if defined(__AVX512BF16__)
  if (h == PAIRS) return vf_load_pairs((const uint16_t *)(const void *)p, n);
  if (h == ROUND_PAIRS) return vf_round_pairs((const float *)(const void *)p, n);
#endif
  vf v = vf_load_as(p, get_element_type(h), n);
  return h == ROUND_F32 ? vf_round_bf16(v) : v;
}

/* n neighbouring lanes of one step, at p and, for pairs, of the next k unless it is past the last.
 */
GEMM_INLINE vf load_along_lanes(const char *p, how h, int64_t n, int64_t k_bytes, bool both) {
#if defined(__AVX512BF16__)
  const void *next = both ? p + k_bytes : NULL;
  if (h == PAIRS) return vf_join_pairs((const uint16_t *)(const void *)p, next, n);
  if (h == ROUND_PAIRS) return vf_round_join((const float *)(const void *)p, next, n);
#endif
  (void)k_bytes, (void)both;
  return load_along_k(p, h, n);
}

GEMM_INLINE int64_t count_steps(const source *s, how h) {
  return (s->k + get_elements_per_lane(h) - 1) / get_elements_per_lane(h);
}

/* An element as its upper half, for pairs, or widened. */
GEMM_INLINE uint32_t load_lane_bits(const char *p, how h) {
  float x = elem_load(p, get_element_type(h), 0);
  uint32_t bits;
  if (h == ROUND_F32 || h == ROUND_PAIRS) return (uint32_t)f32_to_bf16(x) << 16;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

/* One lane of one step, by itself. */
GEMM_INLINE void pack_one(float *to, const source *s, how h, int64_t lane, int64_t step) {
  const char *p = s->at + lane * s->lane_bytes + step * get_elements_per_lane(h) * s->k_bytes;
  uint32_t bits = load_lane_bits(p, h);
  if (get_elements_per_lane(h) == 2 && 2 * step + 1 < s->k)
    bits |= load_lane_bits(p + s->k_bytes, h) >> 16;
  memcpy(to, &bits, sizeof bits);
}

/* --- rows: to[lane][step] --------------------------------------------------------------------- */

/* Neighbours in k are neighbours in memory: rows are copied. */
GEMM_INLINE void copy_rows_along_k(float *to, int64_t pitch, const source *s, how h) {
  const int64_t group = VL * get_elements_per_lane(h);
  for (int64_t lane = 0; lane < s->lanes; lane++, to += pitch) {
    const char *from = s->at + lane * s->lane_bytes;
    int64_t k0 = 0;
    for (; k0 + group <= s->k; k0 += group)
      vf_store(to + k0 / get_elements_per_lane(h),
               load_along_k(from + k0 * get_element_size(h), h, group));
    if (k0 < s->k)
      vf_store_n(to + k0 / get_elements_per_lane(h),
                 load_along_k(from + k0 * get_element_size(h), h, s->k - k0),
                 count_steps(s, h) - k0 / get_elements_per_lane(h));
  }
}

/* Neighbouring lanes are neighbours in memory: VL steps of STAGE_LANES lanes are read in runs,
 * those of the next VL steps prefetched meanwhile, and transposed from there in squares.  (Squares
 * read from the source itself would find its lines, of which they use a part, gone from the cache
 * each time.) */
enum { STAGE_LANES = 8 * VL };

GEMM_INLINE void stage_lanes(float stage[][STAGE_LANES], const char *from, how h, int64_t lanes,
                             int64_t k, int64_t k_bytes, bool more) {
  const int per = get_elements_per_lane(h);
  for (int64_t j = 0; j < VL; j++, from += per * k_bytes)
    for (int64_t lane = 0; lane < lanes; lane += VL) {
      const char *at = from + lane * get_element_size(h);
      int64_t n = min_i64(lanes - lane, VL);
      bool both = (j + 1) * per <= k;
      if (more) {
        __builtin_prefetch(at + VL * per * k_bytes);
        if (per == 2) __builtin_prefetch(at + (VL * per + 1) * k_bytes);
      }
      if (n == VL && both) vf_store(&stage[j][lane], load_along_lanes(at, h, VL, k_bytes, true));
      else if (j * per < k) vf_store(&stage[j][lane], load_along_lanes(at, h, n, k_bytes, both));
    }
}

/* Squares of the stage become `n` steps of rows. */
GEMM_INLINE void transpose_stage(float *to, int64_t pitch, float stage[][STAGE_LANES],
                                 int64_t lanes, int64_t n) {
  for (int64_t lane = 0; lane < lanes; lane += VL, to += VL * pitch) {
    vf r[VL];
    GEMM_UNROLL for (int j = 0; j < VL; j++) r[j] = vf_load(&stage[j][lane]);
    vf_transpose(r);
    if (n == VL && lanes - lane >= VL) {
      GEMM_UNROLL for (int i = 0; i < VL; i++) vf_store(to + i * pitch, r[i]);
    } else {
      for (int64_t i = 0; i < min_i64(lanes - lane, VL); i++) vf_store_n(to + i * pitch, r[i], n);
    }
  }
}

GEMM_INLINE void copy_rows_along_lanes(float *to, int64_t pitch, const source *s, how h) {
  const int64_t group = VL * get_elements_per_lane(h);
  float stage[VL][STAGE_LANES] = {{0}};
  for (int64_t lane = 0; lane < s->lanes; lane += STAGE_LANES)
    for (int64_t k0 = 0; k0 < s->k; k0 += group) {
      int64_t lanes = min_i64(s->lanes - lane, STAGE_LANES), k = min_i64(s->k - k0, group);
      const char *from = s->at + lane * get_element_size(h) + k0 * s->k_bytes;
      stage_lanes(stage, from, h, lanes, k, s->k_bytes, k0 + 2 * group <= s->k);
      transpose_stage(to + lane * pitch + k0 / get_elements_per_lane(h), pitch, stage, lanes,
                      (k + get_elements_per_lane(h) - 1) / get_elements_per_lane(h));
    }
}

GEMM_INLINE void pack_rows(float *to, int64_t pitch, const source *s, how h) {
  if (s->k_bytes == get_element_size(h)) copy_rows_along_k(to, pitch, s, h);
  else if (s->lane_bytes == get_element_size(h)) copy_rows_along_lanes(to, pitch, s, h);
  else
    for (int64_t lane = 0; lane < s->lanes; lane++)
      for (int64_t step = 0; step < count_steps(s, h); step++)
        pack_one(to + lane * pitch + step, s, h, lane, step);
}

/* --- columns: to[pack][step][GEMM_PACK], whole panels --------------------------------------- */

/* Where a lane's steps begin among `steps` of each pack. */
GEMM_INLINE int64_t find_packed_offset(int64_t lane, int64_t steps) {
  return lane / GEMM_PACK * GEMM_PACK * steps + lane % GEMM_PACK;
}

/* Neighbours in k are neighbours in memory: VL steps are read from VL lanes, n of them real, and
 * transposed in registers. */
GEMM_INLINE void pack_half_panel_along_k(float *to, const char *from, how h, int64_t n, int64_t k,
                                         int64_t lane_bytes) {
  const int64_t group = VL * get_elements_per_lane(h);
  for (int64_t k0 = 0; k0 < k;
       k0 += group, to += VL * GEMM_PACK, from += group * get_element_size(h)) {
    int64_t some = min_i64(k - k0, group);
    vf r[VL];
    if (some == group && n == VL) {
      GEMM_UNROLL for (int i = 0; i < VL; i++) r[i] = load_along_k(from + i * lane_bytes, h, group);
    } else {
      for (int i = 0; i < VL; i++)
        r[i] = i < n ? load_along_k(from + i * lane_bytes, h, some) : vf_zero();
    }
    vf_transpose(r);
    if (some == group) {
      GEMM_UNROLL for (int j = 0; j < VL; j++) vf_store(to + j * GEMM_PACK, r[j]);
    } else {
      for (int64_t j = 0; j * get_elements_per_lane(h) < some; j++)
        vf_store(to + j * GEMM_PACK, r[j]);
    }
  }
}

GEMM_INLINE void pack_panels_along_k(float *to, const source *s, how h) {
  for (int64_t lane = 0; lane < s->lanes; lane += TILE_COLS)
    for (int at = 0; at < TILE_COLS; at += VL) {
      int64_t n = min_i64(s->lanes - lane - at, VL);
      const char *from = s->at + (n > 0 ? (lane + at) * s->lane_bytes : 0);
      pack_half_panel_along_k(to + find_packed_offset(lane + at, count_steps(s, h)), from, h, n,
                              s->k, s->lane_bytes);
    }
}

/* Neighbouring lanes are neighbours in memory: vectors are stored as they are read, STEPS steps
 * of all panels before the next, so that each row of the source is read in one run and each panel
 * is written in chunks of some size. */
enum { STEPS = 8 };

GEMM_INLINE void pack_block_along_lanes(float *to, const char *from, how h, int64_t n, int64_t k,
                                        int64_t k_bytes) {
  const int per = get_elements_per_lane(h);
  for (int64_t j = 0; j * per < k; j++, to += GEMM_PACK, from += per * k_bytes) {
    bool both = j * per + 1 < k;
    if (n == VL && both) vf_store(to, load_along_lanes(from, h, VL, k_bytes, true));
    else vf_store(to, load_along_lanes(from, h, n, k_bytes, both));
  }
}

/* Bytes from the first lane of one k to another. */
GEMM_INLINE int64_t get_lane_offset(const source *s, int64_t lane, how h) {
  if (!s->pack_bytes) return lane * get_element_size(h);
  return lane / GEMM_PACK * s->pack_bytes + lane % GEMM_PACK * get_element_size(h);
}

GEMM_INLINE void pack_panels_along_lanes(float *to, const source *s, how h) {
  const int64_t group = STEPS * get_elements_per_lane(h);
  for (int64_t k0 = 0; k0 < s->k; k0 += group)
    for (int64_t lane = 0; lane < s->lanes; lane += TILE_COLS)
      for (int at = 0; at < TILE_COLS; at += VL) {
        int64_t n = min_i64(s->lanes - lane - at, VL);
        const char *from = s->at + k0 * s->k_bytes + (n > 0 ? get_lane_offset(s, lane + at, h) : 0);
        pack_block_along_lanes(to + find_packed_offset(lane + at, count_steps(s, h)) +
                                   k0 / get_elements_per_lane(h) * GEMM_PACK,
                               from, h, n > 0 ? n : 0, min_i64(s->k - k0, group), s->k_bytes);
      }
}

GEMM_INLINE void pack_scattered_panels(float *to, const source *s, how h) {
  for (int64_t lane = 0; lane < (s->lanes + TILE_COLS - 1) / TILE_COLS * TILE_COLS; lane++)
    for (int64_t step = 0; step < count_steps(s, h); step++) {
      float *one = to + find_packed_offset(lane, count_steps(s, h)) + step * GEMM_PACK;
      *one = 0;
      if (lane < s->lanes) pack_one(one, s, h, lane, step);
    }
}

GEMM_INLINE void pack_panels(float *to, const source *s, how h) {
  if (s->k_bytes == get_element_size(h)) pack_panels_along_k(to, s, h);
  else if (s->lane_bytes == get_element_size(h)) pack_panels_along_lanes(to, s, h);
  else pack_scattered_panels(to, s, h);
}

/* --- by type ---------------------------------------------------------------------------------- */

GEMM_INLINE source make_source(const gemm_source *x, how h) {
  return (source){.at = x->at,
                  .lanes = x->lanes,
                  .k = x->k,
                  .lane_bytes = x->lane_stride * get_element_size(h),
                  .k_bytes = x->k_stride * get_element_size(h),
                  .pack_bytes = x->pack * get_element_size(h)};
}

GEMM_INLINE void copy_rows_as(float *to, int64_t pitch, const gemm_source *x, how h) {
  const source s = make_source(x, h);
  pack_rows(to, pitch, &s, h);
}
GEMM_INLINE void pack_panels_as(float *to, const gemm_source *x, how h) {
  const source s = make_source(x, h);
  pack_panels(to, &s, h);
}

#if defined(__AVX512BF16__)
void ISA_NAME(gemm_pack_rows)(float *to, int64_t pitch, const gemm_source *x) {
  if (x->type == HP_F32) copy_rows_as(to, pitch, x, ROUND_PAIRS);
  else copy_rows_as(to, pitch, x, PAIRS);
}

void ISA_NAME(gemm_pack_panels)(float *to, const gemm_source *x) {
  if (x->type == HP_F32) pack_panels_as(to, x, ROUND_PAIRS);
  else pack_panels_as(to, x, PAIRS);
}
#else
void ISA_NAME(gemm_pack_rows)(float *to, int64_t pitch, const gemm_source *x) {
  if (x->type == HP_BF16) copy_rows_as(to, pitch, x, WIDEN_BF16);
  else if (x->type == HP_F16) copy_rows_as(to, pitch, x, WIDEN_F16);
  else if (x->rounded) copy_rows_as(to, pitch, x, ROUND_F32);
  else copy_rows_as(to, pitch, x, WIDEN_F32);
}

void ISA_NAME(gemm_pack_panels)(float *to, const gemm_source *x) {
  if (x->type == HP_BF16) pack_panels_as(to, x, WIDEN_BF16);
  else if (x->type == HP_F16) pack_panels_as(to, x, WIDEN_F16);
  else if (x->rounded) pack_panels_as(to, x, ROUND_F32);
  else pack_panels_as(to, x, WIDEN_F32);
}
#endif
