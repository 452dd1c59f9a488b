/* Texts with a hash of themselves, so that a changed byte is detected: the last line of the file
 * is the XXH3-128, as 32 hex digits, of all bytes before it. */
#ifndef BASE_SEALED_H
#define BASE_SEALED_H

#include "base/str.h"

/* Appends the line with the hash. */
void sealed_close(str *text);
/* The bytes of text before that line; HP_ERR_INPUT if it is missing or the hash differs.  path:
 * for messages. */
hp_status sealed_check(const char *path, const char *text, size_t len, size_t *body);

#endif
