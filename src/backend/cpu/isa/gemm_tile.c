/* The packed GEMM in f32, a step of a chain one fused multiply-add, and the table of this
 * instruction set's kernels. */
#include "backend/cpu/gemm/gemm_vec.h"

GEMM_INLINE vf load_tile_columns(const float *p, bool direct) {
  (void)direct;
  return vf_load(p);
}
GEMM_INLINE vf tile_step(vf a, vf b, vf sum) { return vf_fma(a, b, sum); }

#include "backend/cpu/isa/gemm_tile.h"

/* AVX-512: a block of A takes half of 1 MiB of L2, B's panel streams from there.  Others:
 * processors with 512 KiB of L2 and 32 KiB of L1, half of the one for A, most of the other for B's
 * panel. */
#if defined(__AVX512F__)
enum { STEPS = GEMM_STEPS_MAX, A_LANES = 128 * 1024, MC = 112 };
#else
enum { STEPS = 384, A_LANES = 64 * 1024, MC = 168 };
#endif

const gemm_kernels ISA_NAME(gemm_kernels) = {
    .mr = TILE_ROWS,
    .nr = TILE_COLS,
    .per_lane = 1,
    .steps = STEPS,
    .a_lanes = A_LANES,
    .mc = MC,
    .own = HP_F32,
    .ends = HP_F32,
    .pack_rows = ISA_NAME(gemm_pack_rows),
    .pack_panels = ISA_NAME(gemm_pack_panels),
    .block = block,
    .rows = ISA_NAME(gemm_rows),
    .rows_packed = ISA_NAME(gemm_rows_packed),
    .finish = ISA_NAME(gemm_finish),
    .start = ISA_NAME(gemm_start),
};
