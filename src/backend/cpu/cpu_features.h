/* The instruction sets of this CPU, and the dispatch of kernels that are compiled once per set.
 *
 * A file in backend/cpu/isa is compiled three times; ISA_NAME(f) gives its functions the suffix
 * of the set, and ISA_TABLE(f) is the table of them, indexed by a cpu_isa.  All three give the
 * same bits in f32, so the choice only affects speed.  The few files with bf16 dot instructions
 * are compiled a fourth time, for callers that can use these. */
#ifndef CPU_FEATURES_H
#define CPU_FEATURES_H

#include "base/status.h"

/* Each includes the ones before it; the last is AVX-512 with bf16 dot instructions. */
typedef enum { ISA_PLAIN, ISA_AVX2, ISA_AVX512, ISA_AVX512_BF16, ISA_COUNT } cpu_isa;

/* The best set of this CPU, limited by HYPER_ISA=plain|avx2|avx512|avx512bf16 if that is set. */
cpu_isa cpu_best_isa(void);
/* HP_ERR_ARG if HYPER_ISA has another value; call it once, when a device is made. */
hp_status cpu_isa_check(void);
const char *cpu_isa_name(cpu_isa isa);
/* Can this CPU run the set, independent of HYPER_ISA? */
bool cpu_has_isa(cpu_isa isa);
/* The name of the processor; "unknown" if it reports none. */
void cpu_model_name(char out[96]);

#define ISA_PASTE_(name, isa) name##_##isa
#define ISA_PASTE(name, isa)  ISA_PASTE_(name, isa)
#define ISA_NAME(name)        ISA_PASTE(name, ISA)
#define ISA_TABLE(name)                                                                            \
  { name##_plain, name##_avx2, name##_avx512, name##_avx512 }

#endif
