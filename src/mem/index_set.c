#include "mem/index_set.h"

#include "base/mem.h"

enum { BITS = 6, MASK = 63 };

hp_status index_set_create(uint32_t n, index_set *s) {
  *s = (index_set){.n = n};
  size_t words = n;
  do {
    words = (words + MASK) >> BITS;
    s->word[s->levels] = mem_calloc(words ? words : 1, sizeof **s->word);
    HP_TRY_MEM(s->word[s->levels]);
    s->levels++;
  } while (words > 1);
  return HP_OK;
}

void index_set_free(index_set *s) {
  for (int l = 0; l < INDEX_SET_LEVELS; l++) mem_free(s->word[l]);
  *s = (index_set){0};
}

void index_set_add(index_set *s, uint32_t i) {
  for (int l = 0; l < s->levels; l++, i >>= BITS)
    s->word[l][i >> BITS] |= UINT64_C(1) << (i & MASK);
}

void index_set_remove(index_set *s, uint32_t i) {
  for (int l = 0; l < s->levels; l++, i >>= BITS)
    if (s->word[l][i >> BITS] &= ~(UINT64_C(1) << (i & MASK))) return;
}

bool index_set_has(const index_set *s, uint32_t i) {
  return s->word[0][i >> BITS] >> (i & MASK) & 1;
}

uint32_t index_set_next(const index_set *s, uint32_t i) {
  uint32_t n = s->n, at = i; /* of level l, the first that may be */
  for (int l = 0; l < s->levels; l++, n = (n + MASK) >> BITS) {
    if (at >= n) return s->n;
    uint64_t w = s->word[l][at >> BITS] >> (at & MASK);
    if (!w) {
      at = (at >> BITS) + 1;
      continue;
    }
    at += (uint32_t)__builtin_ctzll(w);
    while (l--) at = at << BITS | (uint32_t)__builtin_ctzll(s->word[l][at]);
    return at;
  }
  return s->n;
}

uint32_t index_set_last(const index_set *s, uint32_t i) {
  uint32_t at = i; /* of level l, behind the last that may be */
  for (int l = 0; l < s->levels && at; l++) {
    uint32_t last = at - 1;
    uint64_t w = s->word[l][last >> BITS] << (MASK - (last & MASK));
    if (!w) {
      at = last >> BITS;
      continue;
    }
    last -= (uint32_t)__builtin_clzll(w);
    while (l--) last = last << BITS | (MASK - (uint32_t)__builtin_clzll(s->word[l][last]));
    return last;
  }
  return INDEX_SET_NONE;
}
