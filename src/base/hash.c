#define XXH_INLINE_ALL
#include "base/hash.h"

#include "base/milestone.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

uint64_t hash_bytes(const void *p, size_t n) { return XXH3_64bits(p, n); }

static hash128 hash_of(XXH128_hash_t h) { return (hash128){h.low64, h.high64}; }

hash128 hash_bytes128(const void *p, size_t n) { return hash_of(XXH3_128bits(p, n)); }

void hash_hex(hash128 h, char out[33]) {
  snprintf(out, 33, "%016llx%016llx", (unsigned long long)h.hi, (unsigned long long)h.lo);
}

/* COUNTED: bytes that count as work, base/milestone.h. */
enum { STATE_ALIGN = 64, COUNTED = 1 << 20 };

struct hash_stream {
  XXH3_state_t *state; /* in room, where it is aligned */
  unsigned char room[sizeof(XXH3_state_t) + STATE_ALIGN];
};

hp_status hash_stream_create(hash_stream **out) {
  hash_stream *s = mem_calloc(1, sizeof *s);
  HP_TRY_MEM(s);
  uintptr_t at = (uintptr_t)s->room + STATE_ALIGN - 1;
  s->state = (XXH3_state_t *)(at - at % STATE_ALIGN);
  XXH3_128bits_reset(s->state);
  *out = s;
  return HP_OK;
}

void hash_stream_free(hash_stream *s) { mem_free(s); }
void hash_stream_reset(hash_stream *s) { XXH3_128bits_reset(s->state); }

/* What takes long shows that it moves. */
void hash_stream_add(hash_stream *s, const void *p, size_t n) {
  const char *at = p;
  for (; n > COUNTED; at += COUNTED, n -= COUNTED) {
    XXH3_128bits_update(s->state, at, COUNTED);
    milestone_count_work();
  }
  XXH3_128bits_update(s->state, at, n);
}

hash128 hash_stream_get(const hash_stream *s) { return hash_of(XXH3_128bits_digest(s->state)); }

struct map_slot {
  const char *key; /* NULL = empty */
  size_t n;
  uint64_t hash;
  uint32_t value;
};

static struct map_slot *find(const map *m, const void *key, size_t n, uint64_t hash) {
  for (size_t i = hash & (m->cap - 1);; i = (i + 1) & (m->cap - 1)) {
    struct map_slot *s = &m->slot[i];
    if (!s->key || (s->hash == hash && s->n == n && !memcmp(s->key, key, n))) return s;
  }
}

bool map_get(const map *m, const void *key, size_t n, uint32_t *out) {
  if (!m->cap) return false;
  const struct map_slot *s = find(m, key, n, hash_bytes(key, n));
  if (!s->key) return false;
  *out = s->value;
  return true;
}

static hp_status grow(map *m) {
  map bigger = *m;
  bigger.cap = m->cap ? m->cap * 2 : 16;
  bigger.slot = mem_calloc(bigger.cap, sizeof *bigger.slot);
  HP_TRY_MEM(bigger.slot);
  for (size_t i = 0; i < m->cap; i++) {
    struct map_slot *s = &m->slot[i];
    if (s->key) *find(&bigger, s->key, s->n, s->hash) = *s;
  }
  mem_free(m->slot);
  *m = bigger;
  return HP_OK;
}

hp_status map_set(map *m, const void *key, size_t n, uint32_t value) {
  if (m->len * 2 >= m->cap) HP_TRY(grow(m));
  uint64_t hash = hash_bytes(key, n);
  struct map_slot *s = find(m, key, n, hash);
  if (!s->key) {
    const char *copy = arena_strndup(&m->keys, key, n);
    HP_TRY_MEM(copy);
    *s = (struct map_slot){copy, n, hash, 0};
    m->len++;
  }
  s->value = value;
  return HP_OK;
}

/* Those that follow in the row of full slots move up, unless they would come before their own. */
void map_remove(map *m, const void *key, size_t n) {
  if (!m->cap) return;
  struct map_slot *gap = find(m, key, n, hash_bytes(key, n));
  if (!gap->key) return;
  size_t mask = m->cap - 1, at = (size_t)(gap - m->slot);
  for (size_t i = (at + 1) & mask; m->slot[i].key; i = (i + 1) & mask) {
    size_t home = m->slot[i].hash & mask;
    if (((i - home) & mask) < ((i - at) & mask)) continue;
    m->slot[at] = m->slot[i];
    at = i;
  }
  m->slot[at] = (struct map_slot){0};
  m->len--;
}

void map_free(map *m) {
  mem_free(m->slot);
  arena_free(&m->keys);
  *m = (map){0};
}

uint32_t intern(interner *t, const void *p, size_t n) {
  uint32_t id;
  if (map_get(&t->ids, p, n, &id)) return id;
  if (t->len == t->cap) {
    size_t cap = t->cap ? t->cap * 2 : 64;
    void *more = mem_realloc(t->item, cap, sizeof *t->item);
    if (!more) return 0;
    t->item = more;
    t->cap = cap;
  }
  id = (uint32_t)t->len + 1;
  if (map_set(&t->ids, p, n, id)) return 0;
  const struct map_slot *s = find(&t->ids, p, n, hash_bytes(p, n));
  t->item[t->len++] = (struct interned){s->key, n};
  return id;
}

const void *intern_get(const interner *t, uint32_t id, size_t *n) {
  HP_ASSERT(id >= 1 && id <= t->len);
  if (n) *n = t->item[id - 1].n;
  return t->item[id - 1].at;
}

void intern_free(interner *t) {
  map_free(&t->ids);
  mem_free(t->item);
  *t = (interner){0};
}
