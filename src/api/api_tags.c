/* Tags of graphs, which tell their ids apart: one of 1,023 for each that is alive. */
#include "api/api_call.h"

#include <stdatomic.h>

enum { WORD = 64 };

static atomic_uint_least64_t taken[API_GRAPHS_MAX / WORD + 1];
static atomic_uint next;

static uint64_t bit_of(uint32_t tag) { return (uint64_t)1 << tag % WORD; }

uint32_t api_tag_take(void) {
  for (int i = 0; i < API_GRAPHS_MAX; i++) {
    uint32_t tag = 1 + atomic_fetch_add(&next, 1) % API_GRAPHS_MAX;
    if (!(atomic_fetch_or(&taken[tag / WORD], bit_of(tag)) & bit_of(tag)))
      return tag << API_VALUE_BITS;
  }
  return 0;
}

void api_tag_give_back(uint32_t tag) {
  tag >>= API_VALUE_BITS;
  atomic_fetch_and(&taken[tag / WORD], ~bit_of(tag));
}

bool api_tag_is_taken(uint32_t tag) {
  tag >>= API_VALUE_BITS;
  return (atomic_load(&taken[tag / WORD]) & bit_of(tag)) != 0;
}
