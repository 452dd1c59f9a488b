/* Which mapped file an address belongs to.  Reading one that has become shorter, or whose disk
 * fails, raises SIGBUS with an address alone; the program that handles it can say the name.
 * file_map_open and file_map_close keep the list. */
#ifndef BASE_MAP_NAMES_H
#define BASE_MAP_NAMES_H

#include "base/status.h"

/* A mapping of len bytes, which is there until it is removed. */
hp_status map_names_add(const void *at, size_t len, const char *path);
void map_names_remove(const void *at);

/* The file's path and the length it was mapped with; NULL: no mapped file.  A signal handler may
 * call it, for an address that the thread was reading. */
const char *map_names_find(const void *address, size_t *len);

#endif
