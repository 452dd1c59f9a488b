#include "base/arena.h"

#include <stdio.h>
#include <string.h>

enum { BLOCK_MIN = 64 << 10, ALIGN = 16 };

struct arena_block {
  arena_block *next;
  size_t used, size;
  _Alignas(16) char data[];
};

void *arena_alloc(arena *a, size_t n, size_t size) {
  size_t bytes;
  if (!size_mul(n, size, &bytes) || !size_add(bytes, ALIGN - 1, &bytes)) {
    (void)err_set(HP_ERR_OOM, __FILE__, __LINE__, "cannot allocate %zu x %zu bytes", n, size);
    return NULL;
  }
  bytes &= ~(size_t)(ALIGN - 1);
  arena_block *b = a->head;
  if (!b || b->size - b->used < bytes) {
    size_t room = bytes > BLOCK_MIN ? bytes : BLOCK_MIN;
    b = mem_calloc(1, sizeof *b + room);
    if (!b) return NULL;
    b->size = room;
    b->next = a->head;
    a->head = b;
  }
  void *p = b->data + b->used;
  b->used += bytes;
  a->used += bytes;
  return p;
}

char *arena_strndup(arena *a, const char *s, size_t n) {
  char *p = arena_alloc(a, n + 1, 1);
  if (p) memcpy(p, s, n);
  return p;
}

char *arena_strdup(arena *a, const char *s) { return arena_strndup(a, s, strlen(s)); }

char *arena_printf(arena *a, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  int n = vsnprintf(NULL, 0, fmt, ap);
  va_end(ap);
  char *p = arena_alloc(a, (size_t)n + 1, 1);
  if (!p) return NULL;
  va_start(ap, fmt);
  vsnprintf(p, (size_t)n + 1, fmt, ap);
  va_end(ap);
  return p;
}

void arena_free(arena *a) {
  for (arena_block *b = a->head, *next; b; b = next) {
    next = b->next;
    mem_free(b);
  }
  *a = (arena){0};
}
