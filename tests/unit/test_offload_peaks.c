#include "mem/offload_peaks.h"
#include "test.h"

enum { STEPS = 50, CAP = 100, CHANGES = 200 };

typedef struct {
  uint64_t need[STEPS];
  double step_s[STEPS];
  bool given_up[STEPS];
} peaks_case;

static uint32_t scan_peak(const peaks_case *c) {
  uint32_t at = STEPS;
  for (uint32_t i = 0; i < STEPS; i++)
    if (!c->given_up[i] && c->need[i] > (at < STEPS ? c->need[at] : CAP)) at = i;
  return at;
}

/* To the same bits. */
static double scan_seconds(const peaks_case *c, uint32_t until) {
  double sum = 0;
  for (uint32_t i = 0; i < until; i++)
    if (c->need[i] > CAP) sum += c->step_s[i] + 1e-12;
  return sum;
}

static void change(peaks_case *c, offload_peaks *p, uint32_t x) {
  uint32_t from = (x >> 8) % STEPS, until = from + (x >> 20) % (STEPS - from + 1);
  uint64_t bytes = x >> 4 & 15;
  for (uint32_t i = from; i < until; i++)
    if (c->need[i] < bytes) bytes = c->need[i];
  for (uint32_t i = from; i < until; i++) c->need[i] -= bytes;
  offload_peaks_drop(p, from, until, bytes);
  if (x >> 31) {
    c->step_s[from] += 0.1;
    offload_peaks_longer(p, from);
  }
  uint32_t at = offload_peaks_find(p);
  if ((x >> 28 & 7) || at == STEPS) return;
  c->given_up[at] = true;
  offload_peaks_give_up(p, at);
}

TEST(the_step_that_needs_most_is_that_of_a_scan) {
  for (uint32_t seed = 0; seed < 20; seed++) {
    peaks_case c = {.given_up = {false}};
    offload_peaks p;
    uint32_t x = seed;
    for (uint32_t i = 0; i < STEPS; i++) {
      x = x * 1664525 + 1013904223;
      c.need[i] = (x >> 8) % (3 * CAP);
      c.step_s[i] = (double)(x >> 4 & 7) / 3;
    }
    CHECK_OK(offload_peaks_create(c.need, c.step_s, STEPS, CAP, &p));
    for (int k = 0; k < CHANGES; k++) {
      x = x * 1664525 + 1013904223;
      uint32_t at = scan_peak(&c), until = (x >> 12) % (STEPS + 1);
      CHECK_EQ(offload_peaks_find(&p), at);
      if (at < STEPS) CHECK(offload_peaks_excess(&p, at) == (int64_t)c.need[at] - CAP);
      CHECK(offload_peaks_over_s(&p, until) == scan_seconds(&c, until));
      CHECK(offload_peaks_over_s(&p, STEPS) == scan_seconds(&c, STEPS));
      change(&c, &p, x);
    }
    offload_peaks_free(&p);
  }
}

TEST(under_a_cap_that_nothing_reaches_no_step_needs_too_much) {
  const uint64_t need[] = {UINT64_C(1) << 60, 7};
  const double step_s[] = {1, 1};
  offload_peaks p;
  CHECK_OK(offload_peaks_create(need, step_s, 2, UINT64_MAX, &p));
  CHECK_EQ(offload_peaks_find(&p), 2);
  offload_peaks_drop(&p, 0, 1, UINT64_C(1) << 60);
  CHECK_EQ(offload_peaks_find(&p), 2);
  CHECK(offload_peaks_over_s(&p, 2) == 0);
  offload_peaks_free(&p);
}
