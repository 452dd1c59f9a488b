/* Unicode for strings of templates: white space, upper and lower case, positions. */
#ifndef JINJA_JINJA_TEXT_H
#define JINJA_JINJA_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Texts are valid UTF-8. */
bool jinja_is_space(uint32_t c);
bool jinja_is_printable(uint32_t c);
bool jinja_is_letter(uint32_t c);
bool jinja_is_digit(uint32_t c);
bool jinja_is_cased(uint32_t c);

/* The character's other case, UTF-8 in out, and its length: "SS" for the upper case of sharp s. */
typedef enum { JINJA_LOWER, JINJA_UPPER, JINJA_TITLE } jinja_case;
size_t jinja_map_case(uint32_t c, jinja_case to, char out[8]);
/* str.islower, str.isupper: some letters have this case, none the other. */
bool jinja_has_case(const char *text, size_t n, jinja_case which);

/* Where text begins without white space, and where it ends. */
size_t jinja_skip_space(const char *text, size_t n);
size_t jinja_trim_space(const char *text, size_t n);
bool jinja_is_utf8(const char *text, size_t n);

size_t jinja_count_chars(const char *text, size_t n);
/* The offset in bytes of character k; n when there are fewer. */
size_t jinja_char_offset(const char *text, size_t n, size_t k);
/* The first place of part in text from byte `from` on; SIZE_MAX: none.  The last: the end of the
 * search is `to`. */
size_t jinja_find_text(const char *text, size_t n, const char *part, size_t m, size_t from);
size_t jinja_find_last(const char *text, size_t n, const char *part, size_t m);

#endif
