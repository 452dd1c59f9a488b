/* An einsum of two operands as a batched matrix product: the roles of the letters as rows, columns,
 * batch and inner steps, the copies into another order, and their work memory.
 *
 * Every element of the result is one FMA chain over the summed letters: those of the first
 * operand in its order, then those of the second operand only, in its order, the last fastest.
 * Copies and loops are chosen by cost and change no bit (with an exact engine). */
#ifndef EINSUM_PLAN_H
#define EINSUM_PLAN_H

#include "backend/cpu/engine/engine_table.h"
#include "backend/cpu/gemm/gemm_copy.h"
#include "base/str.h"
#include "ir/einsum_eq.h"

/* A tensor in memory; strides in elements, 0 or more (of the result: no two elements alike). */
typedef struct {
  hp_dtype type;
  hp_shape shape;
  int64_t stride[HP_MAX_RANK];
} einsum_tensor;
/* Dense and row-major. */
einsum_tensor einsum_dense(hp_dtype type, const hp_shape *shape);

typedef struct {
  bool rounded;    /* an f32 operand next to a bf16 one is rounded to bf16, else bf16 is widened */
  bool accumulate; /* chains start from the old result */
  float alpha;     /* the finished sum is scaled by it; 1 with accumulate */
} einsum_options;

typedef struct {
  einsum_eq eq;
  einsum_options options;
  gemm_query gemm; /* one product; its strides are those of the copies, if there are any */
  int n_loops;     /* outer summed letters: the product is repeated, accumulating */
  struct {
    int64_t size, a, b;
  } loop[EINSUM_LETTERS_MAX];
  bool copy_a, copy_b, copy_c; /* operands moved first; result computed in f32 and moved last */
  gemm_copy move_a, move_b, move_c; /* valid where copied */
  size_t a_bytes, b_bytes, c_bytes; /* work memory of the copies; 0 if there are none */
} einsum_plan;

/* Plans eq for these tensors.  HP_ERR_SHAPE, HP_ERR_ARG name the equation and the reason. */
hp_status einsum_plan_make(const einsum_eq *eq, const einsum_tensor *a, const einsum_tensor *b,
                           const einsum_tensor *out, const einsum_options *options,
                           einsum_plan *plan);
/* Can the engine run the plan's product and its loops? */
bool einsum_supports(const einsum_plan *p, const gemm_engine *engine);
/* Bytes of GEMM_ALIGN aligned work memory. */
size_t einsum_workspace(const einsum_plan *p, const gemm_engine *engine, int threads);
/* Runs a plan that the engine supports; fails only where the engine does. */
hp_status einsum_run(const einsum_plan *p, const gemm_engine *engine, const void *a, const void *b,
                     void *out, pool *threads, void *work);

#endif
