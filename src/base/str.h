/* Growable text.  Always NUL-terminated; may contain NULs (len counts).  A failed append records
 * the failure and leaves the text poisoned: later appends do nothing and str_ok is false, so
 * printers need only one check at the end. */
#ifndef BASE_STR_H
#define BASE_STR_H

#include "base/mem.h"

typedef struct {
  char *at;
  size_t len, cap;
  bool failed;
} str;

void str_add(str *s, const char *text);
void str_add_n(str *s, const char *bytes, size_t n);
void str_add_char(str *s, char c);
void str_printf(str *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void str_vprintf(str *s, const char *fmt, va_list ap);
/* As text or an attribute of XML and HTML, with control characters escaped (escape.h). */
void str_add_xml(str *s, const char *text);
/* Shortest decimal that reads back as the same double; inf and nan as words. */
void str_add_double(str *s, double x);
void str_add_float(str *s, float x); /* the same for float */
void str_clear(str *s);              /* keeps the memory, forgets poison */
void str_free(str *s);
hp_status str_status(const str *s); /* HP_OK or HP_ERR_OOM */
char *str_take(str *s);             /* the text, owned by the caller (mem_free); NULL if poisoned */

/* Edit distance (insert, delete, replace, swap of neighbours) for "did you mean"; `limit` if it is
 * that or more, which is found out sooner. */
int str_distance(const char *a, const char *b, int limit);
/* The candidate nearest to s, if it is near enough for a misspelling; else NULL. */
const char *str_nearest(const char *s, const char *const *candidate, size_t n);
/* Numbers from complete strings: true if all of s is a number that fits. */
bool str_to_i64(const char *s, int64_t *out);
bool str_to_f64(const char *s, double *out);

#endif
