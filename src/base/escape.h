/* Text that comes from files, made harmless for a terminal, a log or a message.
 *
 * Escaped are control characters (also those of C1 and DEL), bytes that are no UTF-8, and the marks
 * that change the direction of writing: a name cannot move the cursor, add a line or look like
 * another one.  They become \n, \t, \r, \x1b, \u202e.  All other characters, a backslash too, stay
 * as they are.  JSON has escapes of its own: its writers take the text as it is. */
#ifndef BASE_ESCAPE_H
#define BASE_ESCAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { ESCAPE_MAX = 8 }; /* bytes of one character or of its escape */

/* The character at from (n > 0 bytes are left): itself or its escape to `to`, whose length goes to
 * *len; returns the bytes that were read.  lines: line breaks and tabs stay.  A signal handler may
 * call it. */
size_t escape_next(const char *from, size_t n, bool lines, char to[ESCAPE_MAX], size_t *len);

/* The text to `to`, NUL-terminated, cut before a character that has no room; returns its length. */
size_t escape_text(char *to, size_t room, const char *from, size_t n, bool lines);

/* A name, to be used within one expression: escape_name(t->name).text */
typedef struct {
  char text[512];
} escaped_name;
escaped_name escape_name(const char *name);

/* Writes a text of several lines to a stream. */
void escape_print(const char *text, FILE *f);

#endif
