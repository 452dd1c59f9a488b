/* What the machine's limits are measured with: work that is counted is work that is done. */
#include "backend/cpu/machine_limits.h"
#include "hyperparallel.h"
#include "test.h"

#include <math.h>
#include <stdio.h>

/* Every lane of every chain reaches the result; half of AVX2's were once left out by the compiler,
 * and the peak told was 1.25 times the real one. */
TEST(a_peak_counts_multiply_adds_of_all_lanes) {
  static limits_fma_fn *const fn[ISA_COUNT] = ISA_TABLE(limits_fma);
  for (cpu_isa isa = ISA_AVX2; isa <= ISA_AVX512; isa++) {
    if (!cpu_has_isa(isa)) continue;
    enum { ROUNDS = 3 };
    int64_t flops;
    float got = fn[isa](ROUNDS, &flops);
    int64_t values = flops / (2 * ROUNDS);
    CHECK(values % 16 == 0 && values >= 5 * 16);
    double expected = 0;
    for (int64_t i = 0; i < values; i++) {
      float x = (float)i;
      for (int r = 0; r < ROUNDS; r++) x = fmaf(x, 1.0000001f, 0.9999999f);
      expected += (double)x;
    }
    CHECK_NEAR(got, expected, 1e-5 * expected);
  }
}

TEST(a_bandwidth_counts_bytes_that_are_read) {
  static limits_read_fn *const fn[ISA_COUNT] = ISA_TABLE(limits_read);
  enum { N = 256 };
  float x[N], sum = 0;
  for (int i = 0; i < N; i++) sum += x[i] = (float)(i % 13);
  for (cpu_isa isa = ISA_PLAIN; isa <= ISA_AVX512; isa++)
    if (cpu_has_isa(isa)) CHECK_NEAR(fn[isa](x, N), sum, 0);
}

/* The most memory that this process has had, in KB; 0: not known here. */
static long peak_kb(void) {
  char line[256];
  long kb = 0;
  FILE *f = fopen("/proc/self/status", "re");
  while (f && fgets(line, sizeof line, f))
    if (sscanf(line, "VmHWM: %ld", &kb) == 1) break;
  if (f) fclose(f);
  return kb;
}

TEST(a_measurement_keeps_to_the_memory_limit) {
  enum { LIMIT = 16 << 20, ROOM_KB = 24 << 10 };
  hp_device *d;
  hp_limits l = {0};
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 1, .memory_limit = LIMIT}, &d));
  long before = peak_kb();
  CHECK_OK(hp_device_measure(d, &l));
  CHECK(l.flops > 0 && l.bytes > 0);
  CHECK(peak_kb() - before < ROOM_KB);
  hp_device_set_memory_limit(d, 0);
  CHECK_OK(hp_device_measure(d, &l));
  CHECK(!before || peak_kb() - before > ROOM_KB); /* larger than caches, where nothing forbids it */
  hp_device_close(d);
}
