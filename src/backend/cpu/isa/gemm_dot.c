/* The packed GEMM of bf16 with dot instructions: a lane holds two neighbours of k, and one
 * instruction makes two steps of its chain, twice the speed of widened operands.
 *
 * The instruction is s = fma(a.hi, b.hi, s), then s = fma(a.lo, b.lo, s), with numbers under 2^-126
 * taken as 0 and results under it made 0 (Intel's manual; AMD's processors do the same, as
 * tests/unit/test_gemm.c asks of the one it runs on).  Products of bf16 are exact in f32, so
 * with the earlier k in the upper half the chain is that of the widened operands. */
#undef ISA
#define ISA avx512 /* its other kernels are those of AVX-512 */
#include "backend/cpu/gemm/gemm_vec.h"

#if defined(__AVX512BF16__)
/* A step of a pack; direct: the rows of two k's, which become pairs. */
GEMM_INLINE vf load_tile_columns(const float *p, bool direct) {
  vf x = vf_load(p);
  return direct ? vf_pair_up(_mm512_castps_si512(x)) : x;
}
GEMM_INLINE vf tile_step(vf a, vf b, vf sum) { return vf_dot(a, b, sum); }
/* As gemm_finish_dot rounds them. */
GEMM_INLINE void tile_end(char *to, const int vecs, const vf *sum) {
  if (vecs == 2) _mm512_storeu_si512(to, (__m512i)_mm512_cvtne2ps_pbh(sum[1], sum[0]));
  else _mm256_storeu_si256((void *)to, (__m256i)_mm512_cvtneps_pbh(sum[0]));
}
#define TILE_END tile_end

#include "backend/cpu/isa/gemm_tile.h"

const gemm_kernels gemm_kernels_dot = {
    .mr = TILE_ROWS,
    .nr = TILE_COLS,
    .per_lane = 2,
    .steps = GEMM_STEPS_MAX,
    .a_lanes = 128 * 1024,
    .mc = 112,
    .own = HP_BF16,
    .ends = HP_BF16,
    .pack_rows = gemm_pack_rows_dot,
    .pack_panels = gemm_pack_panels_dot,
    .block = block,
    .rows = ISA_NAME(gemm_rows),
    .rows_packed = gemm_rows_packed_dot,
    .finish = gemm_finish_dot,
    .start = gemm_start_dot,
};
#endif
