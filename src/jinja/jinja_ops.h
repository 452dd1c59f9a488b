/* Operators on values, and values as sequences. */
#ifndef JINJA_JINJA_OPS_H
#define JINJA_JINJA_OPS_H

#include "jinja/jinja_node.h"

hp_status jinja_binary(jinja_run *r, jinja_op op, const jinja_value *a, const jinja_value *b,
                       jinja_value *out);
hp_status jinja_negate(jinja_run *r, const jinja_value *v, bool minus, jinja_value *out);
/* One comparison, `in` included. */
hp_status jinja_relation(jinja_run *r, jinja_op op, const jinja_value *a, const jinja_value *b,
                         bool *out);

/* The values that iterating over v gives: characters of a string, keys of a dict.  What is left of
 * an iterator is read. */
hp_status jinja_iterate(jinja_run *r, const jinja_value *v, const jinja_value **at, uint32_t *n);
/* The same as a new sequence. */
hp_status jinja_make_seq(jinja_run *r, jinja_kind kind, const jinja_value *v, jinja_value *out);
hp_status jinja_length(jinja_run *r, const jinja_value *v, int64_t *out);
/* v[i] of a list or string; *found is false when i is out of range or v has no items by number. */
hp_status jinja_item_at(jinja_run *r, const jinja_value *v, int64_t i, bool *found,
                        jinja_value *out);
/* v[part[0]:part[1]:part[2]]; none: not given. */
hp_status jinja_slice(jinja_run *r, const jinja_value *v, const jinja_value part[3],
                      jinja_value *out);
/* As Markup: & < > ' and " escaped. */
hp_status jinja_escape(jinja_run *r, const jinja_value *v, jinja_value *out);
/* The range of range(start, stop, step), of at most JINJA_RANGE_MAX values. */
hp_status jinja_make_range(jinja_run *r, int64_t start, int64_t stop, int64_t step,
                           jinja_value *out);

#endif
