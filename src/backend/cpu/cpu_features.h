/* What this CPU can do, and the dispatch of kernels that are compiled once per instruction set.
 *
 * A file in backend/cpu/isa is compiled three times; ISA_NAME(f) gives its functions the suffix of
 * the set, and ISA_TABLE(f) is the table of them for the caller to index with a cpu_isa.  All three
 * give the same bits in f32, so the choice is one of speed alone.  The few files with kernels of
 * dot instructions of bf16 are compiled a fourth time, and chosen by who has a use for those. */
#ifndef CPU_FEATURES_H
#define CPU_FEATURES_H

#include "base/status.h"

/* Each has the ones before it; the last is AVX-512 with dot instructions of bf16. */
typedef enum { ISA_PLAIN, ISA_AVX2, ISA_AVX512, ISA_AVX512_BF16, ISA_COUNT } cpu_isa;

/* The best set that this CPU has, lowered to HYPER_ISA=plain|avx2|avx512|avx512bf16 where that
 * is set. */
cpu_isa cpu_best_isa(void);
/* HP_ERR_ARG when HYPER_ISA holds another word: to be asked once, when a device is made. */
hp_status cpu_isa_check(void);
const char *cpu_isa_name(cpu_isa isa);
/* True when this CPU runs the set, whatever HYPER_ISA says. */
bool cpu_has_isa(cpu_isa isa);
/* What the processor calls itself; "unknown" where it does not. */
void cpu_model_name(char out[96]);

#define ISA_PASTE_(name, isa) name##_##isa
#define ISA_PASTE(name, isa)  ISA_PASTE_(name, isa)
#define ISA_NAME(name)        ISA_PASTE(name, ISA)
#define ISA_TABLE(name)                                                                            \
  { name##_plain, name##_avx2, name##_avx512, name##_avx512 }

#endif
