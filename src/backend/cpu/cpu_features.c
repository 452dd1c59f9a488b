#include "backend/cpu/cpu_features.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const isa_word[ISA_COUNT] = {"plain", "avx2", "avx512", "avx512bf16"};

const char *cpu_isa_name(cpu_isa isa) { return isa_word[isa]; }

bool cpu_has_isa(cpu_isa isa) {
  if (isa == ISA_PLAIN) return true;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (isa == ISA_AVX2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("fma") &&
         (isa == ISA_AVX512 || __builtin_cpu_supports("avx512bf16"));
#else
  return false;
#endif
}

/* The set named by HYPER_ISA; ISA_COUNT if it is unset, empty or unknown. */
static cpu_isa read_isa_limit(void) {
  const char *s = getenv("HYPER_ISA");
  cpu_isa i = ISA_PLAIN;
  while (i < ISA_COUNT && (!s || strcmp(s, isa_word[i]))) i++;
  return i;
}

cpu_isa cpu_best_isa(void) {
  cpu_isa best = read_isa_limit();
  if (best == ISA_COUNT) best = ISA_AVX512_BF16;
  while (!cpu_has_isa(best)) best--;
  return best;
}

hp_status cpu_isa_check(void) {
  const char *s = getenv("HYPER_ISA");
  if (s && *s && read_isa_limit() == ISA_COUNT)
    HP_FAIL(
        HP_ERR_ARG,
        "environment variable HYPER_ISA is \"%.40s\"; expected plain, avx2, avx512 or avx512bf16: "
        "set one of them, or unset it for the best that this CPU has",
        s);
  return HP_OK;
}

void cpu_model_name(char out[96]) {
  char line[256], *colon;
  snprintf(out, 96, "unknown");
  FILE *f = fopen("/proc/cpuinfo", "re");
  while (f && fgets(line, sizeof line, f)) {
    if (strncmp(line, "model name", 10) || !(colon = strchr(line, ':'))) continue;
    line[strcspn(line, "\n")] = 0;
    snprintf(out, 96, "%.95s", colon + 1 + strspn(colon + 1, " \t"));
    break;
  }
  if (f) fclose(f);
}
