/* Sizes and memory limits as users write them: bytes of a device, or a share of the bytes that it
 * would hold without a limit (params, state and work memory), such as 50%.  A share is kept in the
 * same number until the resident bytes are known. */
#ifndef TRAIN_MEMORY_LIMIT_H
#define TRAIN_MEMORY_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

/* Bytes of "16GiB", "512MB", "1.5G", "1048576"; false for other forms. */
bool memory_size_parse(const char *text, uint64_t *out);
/* The same, or 1% to 100%, also with a fraction.  False: *out is as it was. */
bool memory_limit_parse(const char *text, uint64_t *out);
bool memory_limit_is_share(uint64_t limit);
/* Bytes for a device that is opened before its share is known: none. */
uint64_t memory_limit_bytes(uint64_t limit);
/* The share in percent. */
double memory_limit_percent(uint64_t limit);
/* Bytes of the share, which are told. */
uint64_t memory_limit_resolve(uint64_t limit, uint64_t resident);

#endif
