#include "base/sealed.h"

#include "base/hash.h"

#include <string.h>

enum { LINE = 33 }; /* 32 digits and the end of the line */

void sealed_close(str *text) {
  char hex[33];
  if (text->failed) return;
  hash_hex(hash_bytes128(text->at ? text->at : "", text->len), hex);
  str_printf(text, "%s\n", hex);
}

hp_status sealed_check(const char *path, const char *text, size_t len, size_t *body) {
  char hex[33];
  if (len <= LINE || text[len - 1] != '\n') HP_FAIL(HP_ERR_INPUT, "%s: is truncated", path);
  hash_hex(hash_bytes128(text, len - LINE), hex);
  if (memcmp(hex, text + len - LINE, 32))
    HP_FAIL(HP_ERR_INPUT, "%s: its hash does not match; it is damaged", path);
  *body = len - LINE;
  return HP_OK;
}
