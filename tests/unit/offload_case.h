/* Problems of offloading that tests make from arrays of their own. */
#ifndef OFFLOAD_CASE_H
#define OFFLOAD_CASE_H

#include "mem/offload.h"

/* Of `steps` steps, which touch the items; the links, and all else, are left to the test. */
static inline offload_problem offload_case(const double *duration_s, uint32_t steps,
                                           const offload_item *item, uint32_t items,
                                           const offload_touch *touch, uint32_t touches,
                                           uint64_t cap) {
  return (offload_problem){.n = steps,
                           .duration_s = duration_s,
                           .items = items,
                           .item = item,
                           .touch = touch,
                           .touches = touches,
                           .cap = cap};
}

#endif
