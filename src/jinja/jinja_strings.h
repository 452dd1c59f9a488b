/* Operations on strings that filters and methods share, by Python's rules. */
#ifndef JINJA_JINJA_STRINGS_H
#define JINJA_JINJA_STRINGS_H

#include "jinja/jinja_ops.h"
#include "jinja/jinja_text.h"

/* Letters' case changed.  words: what follows the first letter of each word is lower case, words
 * being those of str.title; else JINJA_TITLE changes the first letter only (str.capitalize). */
hp_status jinja_change_case(jinja_run *r, const jinja_value *v, jinja_case to, bool words,
                            jinja_value *out);
/* Without white space, or without the characters of a string, at its ends.  chars: MISSING or NONE
 * for white space. */
hp_status jinja_strip(jinja_run *r, const jinja_value *v, const jinja_value *chars, bool left,
                      bool right, jinja_value *out);
/* At most `most` times; all if it is negative. */
hp_status jinja_replace(jinja_run *r, const jinja_value *v, const jinja_value *from,
                        const jinja_value *to, int64_t most, jinja_value *out);
/* A list; sep: MISSING or NONE for runs of white space.  At most `most` cuts, from the end if
 * `right`. */
hp_status jinja_split(jinja_run *r, const jinja_value *v, const jinja_value *sep, int64_t most,
                      bool right, jinja_value *out);
hp_status jinja_split_lines(jinja_run *r, const jinja_value *v, bool keep_ends, jinja_value *out);
/* Fails unless an argument is a string. */
hp_status jinja_need_string(jinja_run *r, const jinja_value *v, const char *who);
/* An argument that may be missing: an integer. */
hp_status jinja_opt_int(jinja_run *r, const jinja_value *v, int64_t absent, int64_t *out);

#endif
