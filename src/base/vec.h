/* Growable array of any type: `VEC(int) v = {0}; if (!vec_push(&v, 3)) ...; vec_free(&v);`
 * Elements move when it grows: hold indices, not pointers. */
#ifndef BASE_VEC_H
#define BASE_VEC_H

#include "base/mem.h"

#define VEC(type)                                                                                  \
  struct {                                                                                         \
    type *at;                                                                                      \
    size_t len, cap;                                                                               \
  }

/* Makes room for n more elements; false with a failure recorded. */
#define vec_reserve(v, n)                                                                          \
  vec_grow((void **)&(v)->at, (v)->len, &(v)->cap, (size_t)(n), sizeof *(v)->at)
/* Appends x; false with a failure recorded. */
#define vec_push(v, x) (vec_reserve(v, 1) ? ((v)->at[(v)->len++] = (x), true) : false)
#define vec_free(v)    (mem_free((v)->at), (v)->at = NULL, (v)->len = (v)->cap = 0)

static inline bool vec_grow(void **at, size_t len, size_t *cap, size_t more, size_t size) {
  size_t need;
  if (!size_add(len, more, &need)) need = SIZE_MAX; /* refused by mem_realloc */
  if (need <= *cap) return true;
  size_t want = *cap ? *cap : 8;
  while (want < need && want <= SIZE_MAX / 2) want *= 2;
  void *p = mem_realloc(*at, want < need ? need : want, size);
  if (!p) return false;
  *at = p;
  *cap = want < need ? need : want;
  return true;
}

#endif
