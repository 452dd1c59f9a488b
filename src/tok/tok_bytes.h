/* GPT-2's byte-level alphabet: every byte as one printable character. */
#ifndef TOK_TOK_BYTES_H
#define TOK_TOK_BYTES_H

#include "base/str.h"

/* Appends text in the alphabet; byte escapes (unicode.h) become the byte they stand for. */
void tok_bytes_add(str *out, const char *text, size_t n);
/* The byte of a character of the alphabet, or -1. */
int tok_byte_of(uint32_t cp);

#endif
