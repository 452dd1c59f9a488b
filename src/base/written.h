/* Hashes of the bytes that are written to a file, to compare them afterwards with the bytes read
 * back. */
#ifndef BASE_WRITTEN_H
#define BASE_WRITTEN_H

#include "base/hash.h"

typedef struct written written;
hp_status written_create(written **out);
void written_free(written *w);
/* Adds the next bytes. */
hp_status written_add(written *w, const void *bytes, size_t n);
hash128 written_hash(const written *w);
/* Reads the file, from the disk if possible, and compares; HP_ERR_IO names the first differing
 * block. */
hp_status written_compare(const written *w, int fd, const char *path);

#endif
