/* A fuzzer is one file tests/fuzz/fuzz_NAME.c with this function, and a folder
 * tests/fuzz/corpus/NAME of small inputs, good and bad (each under 4 KiB).
 *
 * The bytes are hostile: whatever they are, the function returns 0, frees all it took (leaks are
 * failures), clears the failure with err_clear, uses no more than 1 GiB and a second, and writes
 * no file but in a folder of its own in memory, which it removes.  An input that was accepted must
 * be usable: print it, parse that, and HP_ASSERT that the two agree.  `make fuzz-smoke` runs every
 * fuzzer for 20 s, `make test` replays the corpus; an input that failed once is added to the corpus
 * with its fix. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

#endif
