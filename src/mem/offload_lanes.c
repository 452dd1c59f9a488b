#include "mem/offload_lanes.h"

#include "base/mem.h"

#include <string.h>

static void link_all(offload_lane *lane) {
  for (uint32_t i = 0; i < lane->n; i++) {
    lane->next[i] = lane->free_s[i] > 0 ? i : i + 1;
    lane->last[i + 1] = lane->free_s[i] > 0 ? i + 1 : i;
  }
  lane->next[lane->n] = lane->n;
  lane->last[0] = 0;
}

hp_status offload_lane_create(const double *duration_s, size_t n, offload_lane *lane) {
  *lane = (offload_lane){.n = (uint32_t)n,
                         .free_s = mem_calloc(n, sizeof *lane->free_s),
                         .next = mem_calloc(n + 1, sizeof *lane->next),
                         .last = mem_calloc(n + 1, sizeof *lane->last)};
  HP_TRY_MEM(lane->free_s && lane->next && lane->last);
  if (n) memcpy(lane->free_s, duration_s, n * sizeof *lane->free_s);
  link_all(lane);
  return HP_OK;
}

void offload_lane_free(offload_lane *lane) {
  mem_free(lane->free_s);
  mem_free(lane->next);
  mem_free(lane->last);
}

static uint32_t find(uint32_t *to, uint32_t i) {
  while (to[i] != i) i = to[i] = to[to[i]];
  return i;
}

/* Takes as much of *left_s as step i has left. */
static void use(offload_lane *lane, uint32_t i, bool take, double *left_s) {
  double s = lane->free_s[i] < *left_s ? lane->free_s[i] : *left_s;
  *left_s -= s;
  if (!take) return;
  lane->free_s[i] -= s;
  if (lane->free_s[i] > 0) return;
  lane->next[i] = i + 1;
  lane->last[i + 1] = i;
}

uint32_t offload_lane_forward(offload_lane *lane, uint32_t from, uint32_t until, bool take,
                              double *left_s) {
  for (uint32_t i = find(lane->next, from); i < until; i = find(lane->next, i + 1)) {
    use(lane, i, take, left_s);
    if (*left_s <= 0) return i;
  }
  return until;
}

uint32_t offload_lane_back(offload_lane *lane, uint32_t from, uint32_t until, bool take,
                           double *left_s) {
  for (uint32_t i = find(lane->last, until); i > from; i = find(lane->last, i - 1)) {
    use(lane, i - 1, take, left_s);
    if (*left_s <= 0) return i - 1;
  }
  return from;
}

void offload_lane_add(offload_lane *lane, uint32_t i, double seconds) {
  bool had = lane->free_s[i] > 0;
  lane->free_s[i] += seconds;
  if (!had) link_all(lane);
}
