/* Packing: a piece of A or B, of any strides and float type, into f32 panels of `width` lanes. */
#include "backend/cpu/gemm_vec.h"

typedef struct {
  const void *at;
  int64_t lanes, k, lane_stride, k_stride;
} source;

GEMM_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Neighbours in k are neighbours in memory: VL k-steps are read from VL lanes (n of them real) and
 * transposed in registers.  A store writes VL floats also where fewer are left of the panel: the
 * next k-step, and at its end the next panel, is written over the excess. */
GEMM_INLINE void pack_along_k(float *to, const void *from, hp_dtype type, const int width,
                              const int room, int64_t n, int64_t k, int64_t lane_stride) {
  for (int64_t k0 = 0; k0 < k; k0 += VL) {
    int64_t steps = least(k - k0, VL);
    vf r[VL];
    if (steps == VL && n == room) {
      GEMM_UNROLL for (int i = 0; i < room; i++) {
        r[i] = vf_load_as(elem_at(from, type, i * lane_stride + k0), type, VL);
      }
      GEMM_UNROLL for (int i = room; i < VL; i++) r[i] = vf_zero();
    } else {
      for (int i = 0; i < VL; i++)
        r[i] =
            i < n ? vf_load_as(elem_at(from, type, i * lane_stride + k0), type, steps) : vf_zero();
    }
    vf_transpose(r);
    if (steps == VL) {
      GEMM_UNROLL for (int j = 0; j < VL; j++) vf_store(to + (k0 + j) * width, r[j]);
    } else {
      for (int64_t j = 0; j < steps; j++) vf_store(to + (k0 + j) * width, r[j]);
    }
  }
}

GEMM_INLINE void panels_along_k(float *to, const source *s, hp_dtype type, const int width) {
  for (int64_t lane = 0; lane < s->lanes; lane += width, to += width * s->k)
    for (int at = 0; at < width; at += VL) {
      const int room = width - at < VL ? width - at : VL;
      int64_t n = least(s->lanes - lane - at, room);
      const void *from = elem_at(s->at, type, n > 0 ? (lane + at) * s->lane_stride : 0);
      pack_along_k(to + at, from, type, width, room, n, s->k, s->lane_stride);
    }
}

/* Neighbouring lanes are neighbours in memory: vectors are stored as they are read, STEPS k-steps
 * of all panels before the next, so that each row of the source is read in one run and each panel
 * is written in pieces of some size. */
enum { STEPS = 8 };

GEMM_INLINE void panels_along_lanes(float *to, const source *s, hp_dtype type, const int width) {
  for (int64_t k0 = 0; k0 < s->k; k0 += STEPS) {
    int64_t steps = least(s->k - k0, STEPS);
    for (int64_t lane = 0; lane < s->lanes; lane += width)
      for (int at = 0; at < width; at += VL) {
        const int room = width - at < VL ? width - at : VL;
        int64_t n = least(s->lanes - lane - at, room);
        const void *from = elem_at(s->at, type, k0 * s->k_stride + (n > 0 ? lane + at : 0));
        float *out = to + lane * s->k + k0 * width + at;
        if (n == room)
          for (int64_t j = 0; j < steps; j++)
            vf_store_n(out + j * width,
                       vf_load_as(elem_at(from, type, j * s->k_stride), type, room), room);
        else
          for (int64_t j = 0; j < steps; j++)
            vf_store_n(out + j * width,
                       vf_load_as(elem_at(from, type, j * s->k_stride), type, n > 0 ? n : 0), room);
      }
  }
}

/* No unit stride: one by one. */
GEMM_INLINE void panels_scattered(float *to, const source *s, hp_dtype type, const int width) {
  for (int64_t lane = 0; lane < s->lanes; lane += width, to += width * s->k)
    for (int64_t j = 0; j < s->k; j++)
      for (int64_t i = 0; i < width; i++)
        to[j * width + i] =
            lane + i < s->lanes
                ? elem_load(s->at, type, (lane + i) * s->lane_stride + j * s->k_stride)
                : 0.0f;
}

/* type and width are constants at each call. */
GEMM_INLINE void pack_panels(float *to, const source *s, hp_dtype type, const int width) {
  if (s->k_stride == 1) panels_along_k(to, s, type, width);
  else if (s->lane_stride == 1) panels_along_lanes(to, s, type, width);
  else panels_scattered(to, s, type, width);
}

GEMM_INLINE void pack_typed(float *to, const source *s, hp_dtype type, int width) {
  if (width == TILE_ROWS) pack_panels(to, s, type, TILE_ROWS);
  else if (width == TILE_COLS) pack_panels(to, s, type, TILE_COLS);
  else pack_panels(to, s, type, 1);
}

void ISA_NAME(gemm_pack)(float *to, const void *from, hp_dtype type, int width, int64_t lanes,
                         int64_t k, int64_t lane_stride, int64_t k_stride) {
  const source s = {from, lanes, k, lane_stride, k_stride};
  if (type == HP_F32) pack_typed(to, &s, HP_F32, width);
  else if (type == HP_BF16) pack_typed(to, &s, HP_BF16, width);
  else pack_typed(to, &s, HP_F16, width);
}
