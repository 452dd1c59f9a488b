#include "mem/offload_lanes.h"

#include "base/mem.h"

#include <string.h>

hp_status offload_lane_create(const double *duration_s, size_t n, offload_lane *lane) {
  *lane = (offload_lane){.free_s = mem_calloc(n, sizeof *lane->free_s)};
  HP_TRY_MEM(lane->free_s);
  HP_TRY(index_set_create((uint32_t)n, &lane->some));
  if (n) memcpy(lane->free_s, duration_s, n * sizeof *lane->free_s);
  for (uint32_t i = 0; i < n; i++)
    if (lane->free_s[i] > 0) index_set_add(&lane->some, i);
  return HP_OK;
}

void offload_lane_free(offload_lane *lane) {
  mem_free(lane->free_s);
  index_set_free(&lane->some);
}

/* Takes as much of *left_s as step i has left. */
static void use(offload_lane *lane, uint32_t i, bool take, double *left_s) {
  double s = lane->free_s[i] < *left_s ? lane->free_s[i] : *left_s;
  *left_s -= s;
  if (!take) return;
  lane->free_s[i] -= s;
  if (!(lane->free_s[i] > 0)) index_set_remove(&lane->some, i);
}

uint32_t offload_lane_forward(offload_lane *lane, uint32_t from, uint32_t until, bool take,
                              double *left_s) {
  uint32_t i = index_set_next(&lane->some, from);
  for (; i < until; i = index_set_next(&lane->some, i + 1)) {
    use(lane, i, take, left_s);
    if (*left_s <= 0) return i;
  }
  return until;
}

uint32_t offload_lane_back(offload_lane *lane, uint32_t from, uint32_t until, bool take,
                           double *left_s) {
  uint32_t i = index_set_last(&lane->some, until);
  for (; i != INDEX_SET_NONE && i >= from; i = index_set_last(&lane->some, i)) {
    use(lane, i, take, left_s);
    if (*left_s <= 0) return i;
  }
  return from;
}

void offload_lane_add(offload_lane *lane, uint32_t i, double seconds) {
  lane->free_s[i] += seconds;
  if (lane->free_s[i] > 0) index_set_add(&lane->some, i);
}
