/* Filters, tests, methods and functions: tables of them, and calls. */
#ifndef JINJA_JINJA_CALL_H
#define JINJA_JINJA_CALL_H

#include "jinja/jinja_value.h"

/* The tables (jinja_tables.c), each with a row without a name at its end. */
extern const jinja_row jinja_filters[], jinja_tests[], jinja_methods[], jinja_functions[];

/* params of a method that changes its value. */
#define JINJA_CHANGES "!"

/* NULL: there is none.  kind: of a method's value, else 0. */
const jinja_row *jinja_find_row(const jinja_row *table, jinja_kind kind, const char *name,
                                size_t n);
/* Calls the function of a row.  sort: "filter", for messages. */
hp_status jinja_call_row(jinja_run *r, const jinja_row *row, const char *sort,
                         const jinja_value *self, const jinja_args *a, jinja_value *out);
/* Arguments put in the order of params, a list of names with spaces; slot: JINJA_PARAMS_MAX. */
hp_status jinja_bind(jinja_run *r, const char *who, const char *params, unsigned least,
                     const jinja_args *a, jinja_value *slot, uint32_t *n);

/* v.name: a method, a member of a namespace or loop, or the value of a dict's key. */
hp_status jinja_get_attribute(jinja_run *r, const jinja_value *v, const char *name, size_t n,
                              jinja_value *out);
/* v[key]: an item, else an attribute of this name, else undefined. */
hp_status jinja_get_item(jinja_run *r, const jinja_value *v, const jinja_value *key,
                         jinja_value *out);

#endif
