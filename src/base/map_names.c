#include "base/map_names.h"

#include "base/str.h"

#include <pthread.h>
#include <stdatomic.h>

/* A process has no more maps than this (vm.max_map_count); pages of the table that are not used
 * take no memory. */
enum { MAPS_MAX = 65536 };

typedef struct {
  _Atomic uintptr_t at; /* 0: free; set last, cleared first, for the handler takes no lock */
  size_t len;
  char *path;
} named_map;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static named_map maps[MAPS_MAX];
static _Atomic size_t used; /* behind it all are free */

hp_status map_names_add(const void *at, size_t len, const char *path) {
  str s = {0};
  size_t i = 0;
  str_add(&s, path);
  char *kept = str_take(&s);
  HP_TRY_MEM(kept);
  pthread_mutex_lock(&lock);
  while (i < MAPS_MAX && maps[i].at) i++;
  if (i < MAPS_MAX) {
    maps[i].len = len;
    maps[i].path = kept;
    atomic_store(&maps[i].at, (uintptr_t)at);
    if (i >= used) used = i + 1;
  }
  pthread_mutex_unlock(&lock);
  if (i == MAPS_MAX) mem_free(kept); /* the mapping is as good without a name */
  return HP_OK;
}

void map_names_remove(const void *at) {
  pthread_mutex_lock(&lock);
  for (size_t i = 0; i < used; i++) {
    if (maps[i].at != (uintptr_t)at) continue;
    atomic_store(&maps[i].at, 0);
    mem_free(maps[i].path);
    maps[i].path = NULL;
    if (i + 1 == used) used = i;
    break;
  }
  pthread_mutex_unlock(&lock);
}

const char *map_names_find(const void *address, size_t *len) {
  uintptr_t p = (uintptr_t)address;
  for (size_t i = 0; i < used; i++) {
    uintptr_t at = maps[i].at;
    if (!at || p < at || p - at >= maps[i].len) continue;
    *len = maps[i].len;
    return maps[i].path;
  }
  return NULL;
}
