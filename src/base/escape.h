/* Makes text from files safe for a terminal, a log or a message.
 *
 * Escaped are control characters (also C1 and DEL), bytes that are not valid UTF-8, and the marks
 * that change the direction of writing: a name cannot move the cursor, add a line or look like
 * another one.  They become
 * , \t, \r, \x1b, \u202e.  All other characters, including a backslash, stay unchanged.  JSON
 * has escapes of its own: its writers take unescaped text. */
#ifndef BASE_ESCAPE_H
#define BASE_ESCAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { ESCAPE_MAX = 8 }; /* bytes of one character or of its escape */

/* The character at from (n > 0 bytes are left), or its escape, to `to`, with its length in *len;
 * returns the number of bytes read.  lines: line breaks and tabs stay.  Safe in a signal
 * handler. */
size_t escape_next(const char *from, size_t n, bool lines, char to[ESCAPE_MAX], size_t *len);

/* The text to `to`, NUL-terminated, truncated before a character that does not fit; returns its
 * length. */
size_t escape_text(char *to, size_t room, const char *from, size_t n, bool lines);

/* A name, for use within one expression: escape_name(t->name).text */
typedef struct {
  char text[512];
} escaped_name;
escaped_name escape_name(const char *name);

/* Writes a text of several lines to a stream. */
void escape_print(const char *text, FILE *f);

#endif
