/* The bytes that a file is to hold, remembered as hashes while they are given to the system, and
 * compared afterwards with those that it gives back. */
#ifndef BASE_WRITTEN_H
#define BASE_WRITTEN_H

#include "base/hash.h"

typedef struct written written;
hp_status written_create(written **out);
void written_free(written *w);
/* The next bytes. */
hp_status written_add(written *w, const void *bytes, size_t n);
hash128 written_hash(const written *w);
/* Reads the file, from the disk where the system can be told to, and compares; HP_ERR_IO names the
 * first block that differs. */
hp_status written_compare(const written *w, int fd, const char *path);

#endif
