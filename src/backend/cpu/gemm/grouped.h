/* Linear layers whose weight each row chooses, and their gradient.
 *
 * Rows are sorted by their choice (stably, in the work memory), and each expert's rows are gathered
 * into the panels of the packed GEMM; experts that nobody chooses cost nothing.  Every element is
 * one chain of fused multiply-adds, over k, or in the gradient over rows in order of position: the
 * bits depend on no tile, thread, instruction set or on which other rows are there. */
#ifndef GROUPED_H
#define GROUPED_H

#include "backend/cpu/cpu_features.h"
#include "base/thread.h"

typedef struct {
  int64_t rows, slots;   /* ids are [rows, slots] */
  int64_t experts, n, k; /* weights [experts, n, k] */
  bool shared;           /* x is [rows, k] and serves all slots, else [rows, slots, k] */
  bool transposed;       /* weights are stored [experts, k, n] */
  hp_dtype type;         /* of the operands: f32, bf16 or f16 */
  hp_dtype out_type;
} grouped_spec;

/* y [rows, slots, n] = w[id] x; zeros where the id is not in 0..experts-1.  `work` has
 * grouped_work bytes for this spec and number of threads, GEMM_ALIGN aligned. */
hp_status grouped_work(cpu_isa isa, const grouped_spec *s, int threads, size_t *bytes);
void grouped_run(cpu_isa isa, pool *threads, const grouped_spec *s, const void *x, const void *w,
                 const int32_t *ids, void *y, void *work);

/* dw [experts, n, k] = for each expert the sum of dy x^T over the rows that chose it, zeros where
 * none did; dy is [rows, slots, n].  `transposed` is not looked at. */
hp_status grouped_grad_work(cpu_isa isa, const grouped_spec *s, int threads, size_t *bytes);
void grouped_grad_run(cpu_isa isa, pool *threads, const grouped_spec *s, const void *dy,
                      const void *x, const int32_t *ids, void *dw, void *work);

#endif
