/* Arena: memory that is freed all at once.  Objects never move; nothing is freed singly. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include "base/mem.h"

typedef struct arena_block arena_block;
typedef struct {
  arena_block *head; /* newest block; NULL when empty: a zeroed arena is ready for use */
  size_t used;       /* bytes handed out */
} arena;

/* n * size zeroed bytes, 16-byte aligned; NULL with a failure recorded. */
void *arena_alloc(arena *a, size_t n, size_t size);
char *arena_strdup(arena *a, const char *s);
char *arena_strndup(arena *a, const char *s, size_t n);
char *arena_printf(arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void arena_free(arena *a); /* frees all blocks; the arena may be used again */

#endif
