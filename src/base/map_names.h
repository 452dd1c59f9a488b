/* The mapped file at an address.  Reading a truncated file, or one whose disk fails, raises
 * SIGBUS with only an address; its handler can find the name here.  file_map_open and
 * file_map_close maintain the list. */
#ifndef BASE_MAP_NAMES_H
#define BASE_MAP_NAMES_H

#include "base/status.h"

/* A mapping of len bytes, which exists until it is removed. */
hp_status map_names_add(const void *at, size_t len, const char *path);
void map_names_remove(const void *at);

/* The file's path and its length when it was mapped; NULL: no mapped file.  Safe in a signal
 * handler, for an address that the thread was reading. */
const char *map_names_find(const void *address, size_t *len);

#endif
