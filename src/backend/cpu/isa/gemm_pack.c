/* Packing: a piece of A or B, of any strides and float type, into f32 panels of `width` lanes. */
#include "backend/cpu/gemm_vec.h"

/* How the source lies.  ALONG_K: neighbours in k are neighbours in memory, so vectors of VL k-steps
 * are read from VL lanes and transposed in registers.  ALONG_LANES: vectors are read as they are
 * stored.  Otherwise elements are gathered one by one. */
typedef enum { ALONG_K, ALONG_LANES, SCATTERED } pack_kind;

/* VL lanes (n of them real) x all k of a panel, at lane offset 0 of `to`.  A store writes VL floats
 * also where fewer lanes are left in the panel: the next k-step writes over the excess. */
GEMM_INLINE void pack_along_k(float *to, const void *from, hp_dtype type, int width, int64_t n,
                              int64_t k, int64_t lane_stride) {
  for (int64_t k0 = 0; k0 < k; k0 += VL) {
    int64_t steps = k - k0 < VL ? k - k0 : VL;
    vf r[VL];
    if (steps == VL && n >= VL) {
      GEMM_UNROLL for (int i = 0; i < VL; i++) r[i] =
          vf_load_as(elem_at(from, type, i * lane_stride + k0), type, VL);
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

GEMM_INLINE void pack_along_lanes(float *to, const void *from, hp_dtype type, int width, int64_t n,
                                  int64_t k, int64_t k_stride) {
  if (n >= VL)
    for (int64_t j = 0; j < k; j++)
      vf_store(to + j * width, vf_load_as(elem_at(from, type, j * k_stride), type, VL));
  else
    for (int64_t j = 0; j < k; j++)
      vf_store(to + j * width, vf_load_as(elem_at(from, type, j * k_stride), type, n));
}

GEMM_INLINE void pack_scattered(float *to, const void *from, hp_dtype type, int width, int64_t n,
                                int64_t k, int64_t lane_stride, int64_t k_stride) {
  int64_t fill = width < VL ? width : VL;
  for (int64_t j = 0; j < k; j++)
    for (int64_t i = 0; i < fill; i++)
      to[j * width + i] = i < n ? elem_load(from, type, i * lane_stride + j * k_stride) : 0.0f;
}

GEMM_INLINE void pack_panels(pack_kind kind, float *to, const void *from, hp_dtype type, int width,
                             int64_t lanes, int64_t k, int64_t lane_stride, int64_t k_stride) {
  for (int64_t lane = 0; lane < lanes; lane += width, to += width * k) {
    for (int at = 0; at < width; at += VL) {
      int64_t left = lanes - lane - at, in_panel = width - at < VL ? width - at : VL;
      int64_t n = left < 0 ? 0 : left < in_panel ? left : in_panel;
      const void *src = n ? elem_at(from, type, (lane + at) * lane_stride) : from;
      if (kind == ALONG_K) pack_along_k(to + at, src, type, width, n, k, lane_stride);
      else if (kind == ALONG_LANES) pack_along_lanes(to + at, src, type, width, n, k, k_stride);
      else pack_scattered(to + at, src, type, width, n, k, lane_stride, k_stride);
    }
  }
}

GEMM_INLINE void pack_type(hp_dtype type, float *to, const void *from, int width, int64_t lanes,
                           int64_t k, int64_t lane_stride, int64_t k_stride) {
  if (k_stride == 1) pack_panels(ALONG_K, to, from, type, width, lanes, k, lane_stride, k_stride);
  else if (lane_stride == 1)
    pack_panels(ALONG_LANES, to, from, type, width, lanes, k, lane_stride, k_stride);
  else pack_panels(SCATTERED, to, from, type, width, lanes, k, lane_stride, k_stride);
}

void ISA_NAME(gemm_pack)(float *to, const void *from, hp_dtype type, int width, int64_t lanes,
                         int64_t k, int64_t lane_stride, int64_t k_stride) {
  if (type == HP_F32) pack_type(HP_F32, to, from, width, lanes, k, lane_stride, k_stride);
  else if (type == HP_BF16) pack_type(HP_BF16, to, from, width, lanes, k, lane_stride, k_stride);
  else pack_type(HP_F16, to, from, width, lanes, k, lane_stride, k_stride);
}
