#include "backend/cpu/simd_probe.h"

simd_probe_fn *const simd_probe[ISA_COUNT] = ISA_TABLE(probe_array);
simd_probe_narrow_fn *const simd_probe_narrow[ISA_COUNT] = ISA_TABLE(probe_narrow);
