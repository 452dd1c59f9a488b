/* Functions that every template has. */
#include "jinja/jinja_strings.h"

#include <string.h>
#include <time.h>

#define FUNCTION(name)                                                                             \
  hp_status jinja_function_##name(jinja_run *r, const jinja_value *self, const jinja_args *a,      \
                                  jinja_value *out);                                               \
  hp_status jinja_function_##name(jinja_run *r, const jinja_value *self, const jinja_args *a,      \
                                  jinja_value *out)

FUNCTION(range) {
  int64_t start = 0, stop, step;
  (void)self;
  bool one = a->at[1].kind == JINJA_MISSING;
  if (!one) HP_TRY(jinja_opt_int(r, &a->at[0], 0, &start));
  HP_TRY(jinja_opt_int(r, &a->at[one ? 0 : 1], 0, &stop));
  HP_TRY(jinja_opt_int(r, &a->at[2], 1, &step));
  return jinja_make_range(r, start, stop, step, out);
}

/* A dict or namespace of keywords, after the pairs of a first argument. */
static hp_status make_dict(jinja_run *r, const jinja_args *a, jinja_kind kind, jinja_value *out) {
  if (a->n > 1) JINJA_FAIL(r, "dict and namespace take one argument and keywords");
  if (a->n && a->at[0].kind != JINJA_DICT)
    JINJA_FAIL(r, "dict and namespace take a dict, not a %s", jinja_type(&a->at[0]));
  const jinja_dict *from = a->n ? a->at[0].dict : NULL;
  HP_TRY(jinja_new_dict(r, kind, (from ? from->len : 0) + (size_t)a->n_named, out));
  for (uint32_t i = 0; from && i < from->len; i++)
    HP_TRY(jinja_dict_set(r, out->dict, &from->at[i].key, &from->at[i].value));
  for (uint32_t i = 0; i < a->n_named; i++)
    HP_TRY(jinja_dict_set(r, out->dict, &a->name[i], &a->named[i]));
  return HP_OK;
}
FUNCTION(dict) {
  (void)self;
  return make_dict(r, a, JINJA_DICT, out);
}
FUNCTION(namespace) {
  (void)self;
  return make_dict(r, a, JINJA_NAMESPACE, out);
}

FUNCTION(raise_exception) {
  jinja_value text;
  (void)self, (void)out;
  HP_TRY(jinja_to_string(r, &a->at[0], &text));
  JINJA_FAIL(r, "the template refuses the conversation: %.*s",
             text.len > 1000 ? 1000 : (int)text.len, text.text);
}

FUNCTION(strftime_now) {
  char format[200], text[1000];
  struct tm tm;
  time_t now = r->now ? (time_t)r->now : time(NULL);
  const jinja_value *v = &a->at[0];
  (void)self;
  HP_TRY(jinja_need_string(r, v, "strftime_now"));
  if (v->len + 2 > sizeof format)
    JINJA_FAIL(r, "strftime_now: a format of %u bytes", (unsigned)v->len);
  if (!localtime_r(&now, &tm)) JINJA_FAIL(r, "strftime_now: the clock has no date");
  *format = '.'; /* tells an empty result from one that is too long */
  memcpy(format + 1, v->text, v->len);
  format[v->len + 1] = 0;
  size_t len = strftime(text, sizeof text, format, &tm);
  if (!len) JINJA_FAIL(r, "strftime_now: the date is too long");
  size_t start = r->buffer.len;
  HP_TRY(jinja_add(r, text + 1, len - 1));
  return jinja_take(r, start, out);
}
