/* Python's two ways to put values into a text: "%s" % value and "{}".format(value). */
#ifndef JINJA_JINJA_FORMAT_H
#define JINJA_JINJA_FORMAT_H

#include "jinja/jinja_ops.h"

/* text % values: a tuple of them, a dict for %(name)s, or one value. */
hp_status jinja_format_percent(jinja_run *r, const jinja_value *text, const jinja_value *values,
                               jinja_value *out);
/* text.format(values). */
hp_status jinja_format_braces(jinja_run *r, const jinja_value *text, const jinja_args *values,
                              jinja_value *out);
/* Appends a text with spaces, or fill, around it to a width: align is '<', '>' or '^'. */
hp_status jinja_add_padded(jinja_run *r, const char *text, size_t n, char align, const char *fill,
                           size_t fill_len, int64_t width);

#endif
