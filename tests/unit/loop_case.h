/* Running a loop kernel in tests: buffers of exactly its extent, an independent evaluation in
 * double, and comparison to the bit. */
#ifndef LOOP_CASE_H
#define LOOP_CASE_H

#include "test.h"

#include "base/thread.h"
#include "codegen/loop.h"

enum { LOOP_CASE_OPERANDS = 8 };

typedef struct {
  void *in[LOOP_CASE_OPERANDS], *out[LOOP_CASE_OPERANDS];
  size_t n_in[LOOP_CASE_OPERANDS], n_out[LOOP_CASE_OPERANDS]; /* elements */
  hp_dtype in_type[LOOP_CASE_OPERANDS], out_type[LOOP_CASE_OPERANDS];
} loop_case;

uint32_t loop_case_random(uint32_t *seed);
void loop_case_parse(const char *text, loop *l);
/* Buffers end where the extent ends, so that sanitizers see an access beyond it; outputs start as a
 * pattern that no kernel may touch outside its elements.  wild: inputs hold NaN, infinities, ... */
void loop_case_make(const loop *l, uint32_t seed, bool wild, loop_case *d);
void loop_case_free(loop_case *d);
/* With the cache of the tests: what one run has compiled, with this compiler and its flags, the
 * next one loads.  Skips the test when the CPU has no such instructions. */
loop_module *loop_case_module(loop_isa isa, bool interpret);
void loop_case_run(const loop_kernel *k, loop_case *d, pool *p);
/* In pieces of random size, in random order within a phase. */
void loop_case_run_chunks(const loop_kernel *k, loop_case *d, uint32_t seed);
/* Outputs against the evaluation in double, each within tol of its size. */
void loop_case_check(const loop *l, const loop_case *d, double tol);
/* Equal to the bit; any NaN is any other.  `text` is for the message. */
void loop_case_same(const char *text, const loop_case *a, const loop_case *b);
/* n kernels compiled for an instruction set against the interpreter. */
void loop_case_check_isa(loop_isa isa, const char *const *text, int n, bool wild);

#endif
