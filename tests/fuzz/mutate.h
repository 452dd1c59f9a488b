/* Mutations of texts made of lines and words, for LLVMFuzzerCustomMutator: bytes changed at random
 * hardly ever make another text that is read. */
#ifndef MUTATE_H
#define MUTATE_H

#include "base/str.h"

typedef struct {
  uint64_t state;
} mutate_rng;
uint32_t mutate_next(mutate_rng *r);
int mutate_below(mutate_rng *r, int n); /* 0 .. n - 1 */

/* Changes the text of n bytes in place, within max: a line is dropped, repeated or moved, a number
 * or word is replaced by another, here or everywhere, or libFuzzer changes bytes.  Returns the new
 * size. */
size_t mutate_text(uint8_t *text, size_t n, size_t max, mutate_rng *r, const char *const *word,
                   int words);

/* libFuzzer's own; not there when a corpus is replayed. */
size_t LLVMFuzzerMutate(uint8_t *bytes, size_t n, size_t max) __attribute__((weak));
size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n, size_t max, unsigned seed);

#endif
