/* SHA-256 (FIPS 180-4) and HMAC-SHA256 (RFC 2104): message authentication codes (MAC) between
 * two processes with a common key.  For integrity alone base/hash.h is faster. */
#ifndef BASE_SHA256_H
#define BASE_SHA256_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SHA256_BYTES = 32, SHA256_BLOCK = 64 };

typedef struct {
  uint32_t h[8];
  uint64_t bytes; /* added so far */
  unsigned char block[SHA256_BLOCK];
} sha256;
void sha256_begin(sha256 *s);
void sha256_add(sha256 *s, const void *data, size_t n);
void sha256_end(sha256 *s, unsigned char out[SHA256_BYTES]);

/* The same three steps under a key of any length. */
typedef struct {
  sha256 inner;
  unsigned char outer[SHA256_BLOCK]; /* the padded key of the outer hash */
} hmac;
void hmac_begin(hmac *m, const void *key, size_t n);
void hmac_add(hmac *m, const void *data, size_t n);
void hmac_end(hmac *m, unsigned char out[SHA256_BYTES]);

/* Compares two MACs in constant time. */
bool mac_is_equal(const unsigned char a[SHA256_BYTES], const unsigned char b[SHA256_BYTES]);

#endif
