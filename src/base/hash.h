/* Hashing (XXH3) and two tables on it: text -> number, and an interner of byte strings. */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include "base/arena.h"

uint64_t hash_bytes(const void *p, size_t n);
typedef struct {
  uint64_t lo, hi;
} hash128;
hash128 hash_bytes128(const void *p, size_t n);
void hash_hex(hash128 h, char out[33]);

/* The same hash, of bytes in several calls. */
typedef struct hash_stream hash_stream;
hp_status hash_stream_create(hash_stream **out);
void hash_stream_free(hash_stream *s);
void hash_stream_reset(hash_stream *s); /* as created */
void hash_stream_add(hash_stream *s, const void *p, size_t n);
hash128 hash_stream_get(const hash_stream *s); /* of all so far; more may follow */

/* Map from byte strings to uint32; a zeroed map is ready.  Keys are copied. */
typedef struct {
  struct map_slot *slot;
  size_t len, cap;
  arena keys;
} map;
bool map_get(const map *m, const void *key, size_t n, uint32_t *out);
/* Removes the key, if it exists; its bytes stay in memory until map_free. */
void map_remove(map *m, const void *key, size_t n);
hp_status map_set(map *m, const void *key, size_t n, uint32_t value);
void map_free(map *m);

/* Interner: equal byte strings get equal ids, 1, 2, 3 ...; id 0 means failure.  Zeroed = ready. */
typedef struct {
  map ids;
  struct interned {
    const void *at;
    size_t n;
  } * item;
  size_t len, cap;
} interner;
/* The id of the bytes, added when new; 0 with a failure recorded when out of memory. */
uint32_t intern(interner *t, const void *p, size_t n);
/* The bytes of an id, NUL-terminated, and their number; lives as long as the interner. */
const void *intern_get(const interner *t, uint32_t id, size_t *n);
void intern_free(interner *t);

#endif
