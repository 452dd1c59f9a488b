/* Values as Python's str() and repr() write them. */
#include "jinja/jinja_node.h"
#include "jinja/jinja_text.h"
#include "jinja/jinja_value.h"

#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

static hp_status add(jinja_run *r, const char *text) { return jinja_add(r, text, strlen(text)); }

static hp_status add_escape(jinja_run *r, uint32_t c) {
  char text[16];
  if (c == '\n' || c == '\r' || c == '\t')
    snprintf(text, sizeof text, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
  else
    snprintf(text, sizeof text,
             c < 0x100     ? "\\x%02x"
             : c < 0x10000 ? "\\u%04x"
                           : "\\U%08x",
             (unsigned)c);
  return add(r, text);
}

static hp_status add_quoted(jinja_run *r, const jinja_value *v) {
  bool single = v->len && memchr(v->text, '\'', v->len),
       twice = v->len && memchr(v->text, '"', v->len);
  char quote = single && !twice ? '"' : '\'';
  HP_TRY(jinja_add(r, &quote, 1));
  for (size_t at = 0, n; at < v->len; at += n) {
    uint32_t c;
    n = utf8_decode(v->text + at, v->len - at, &c);
    if (!n) HP_TRY(jinja_add(r, v->text + at, n = 1));
    else if (c == (uint32_t)quote || c == '\\') {
      const char two[] = {'\\', (char)c};
      HP_TRY(jinja_add(r, two, 2));
    } else if (jinja_is_printable(c)) HP_TRY(jinja_add(r, v->text + at, n));
    else HP_TRY(add_escape(r, c));
  }
  return jinja_add(r, &quote, 1);
}

static hp_status add_values(jinja_run *r, const jinja_seq *seq) {
  for (uint32_t i = 0; i < seq->len; i++) {
    if (i) HP_TRY(add(r, ", "));
    HP_TRY(jinja_add_repr(r, &seq->at[i]));
  }
  return HP_OK;
}

static hp_status add_seq(jinja_run *r, const jinja_value *v) {
  char text[80];
  switch (v->kind) {
  case JINJA_LIST:
    HP_TRY(add(r, "["));
    HP_TRY(add_values(r, v->seq));
    return add(r, "]");
  case JINJA_TUPLE:
    HP_TRY(add(r, "("));
    HP_TRY(add_values(r, v->seq));
    return add(r, v->seq->len == 1 ? ",)" : ")");
  case JINJA_RANGE:
    snprintf(text, sizeof text, v->seq->step == 1 ? "range(%lld, %lld)" : "range(%lld, %lld, %lld)",
             (long long)v->seq->start, (long long)v->seq->stop, (long long)v->seq->step);
    return add(r, text);
  default:
    HP_TRY(add(r, jinja_type(v)));
    HP_TRY(add(r, "(["));
    HP_TRY(add_values(r, v->seq));
    return add(r, "])");
  }
}

static hp_status add_dict(jinja_run *r, const jinja_dict *d) {
  HP_TRY(add(r, "{"));
  for (uint32_t i = 0; i < d->len; i++) {
    if (i) HP_TRY(add(r, ", "));
    HP_TRY(jinja_add_repr(r, &d->at[i].key));
    HP_TRY(add(r, ": "));
    HP_TRY(jinja_add_repr(r, &d->at[i].value));
  }
  return add(r, "}");
}

static hp_status add_float(jinja_run *r, double x) {
  str s = {0};
  str_add_double(&s, x);
  hp_status st = str_status(&s);
  if (!st) st = jinja_add(r, s.at, s.len);
  str_free(&s);
  return st;
}

static hp_status add_other(jinja_run *r, const jinja_value *v) {
  char text[32];
  switch (v->kind) {
  case JINJA_NONE: return add(r, "None");
  case JINJA_BOOL: return add(r, v->boolean ? "True" : "False");
  case JINJA_INT: snprintf(text, sizeof text, "%lld", (long long)v->integer); return add(r, text);
  case JINJA_FLOAT: return add_float(r, v->number);
  case JINJA_DICT: return add_dict(r, v->dict);
  case JINJA_NAMESPACE:
    HP_TRY(add(r, "<Namespace "));
    HP_TRY(add_dict(r, v->dict));
    return add(r, ">");
  default:
    JINJA_FAIL(r,
               "a %s has no text: Python would print its address; was it to be called, or made "
               "a list?",
               jinja_type(v));
  }
}

hp_status jinja_add_repr(jinja_run *r, const jinja_value *v) {
  HP_TRY(jinja_enter(r));
  if (v->kind == JINJA_STRING) {
    if (v->markup) HP_TRY(add(r, "Markup("));
    HP_TRY(add_quoted(r, v));
    if (v->markup) HP_TRY(add(r, ")"));
  } else if (v->kind == JINJA_UNDEFINED) HP_TRY(add(r, "Undefined"));
  else if (jinja_is_seq(v) && v->kind != JINJA_ITERATOR) HP_TRY(add_seq(r, v));
  else HP_TRY(add_other(r, v));
  r->depth--;
  return HP_OK;
}

hp_status jinja_add_str(jinja_run *r, const jinja_value *v) {
  if (v->kind == JINJA_STRING) return jinja_add(r, v->text, v->len);
  if (v->kind == JINJA_UNDEFINED) return HP_OK;
  return jinja_add_repr(r, v);
}

hp_status jinja_to_string(jinja_run *r, const jinja_value *v, jinja_value *out) {
  if (v->kind == JINJA_STRING) {
    *out = *v;
    return HP_OK;
  }
  size_t start = r->buffer.len;
  HP_TRY(jinja_add_str(r, v));
  return jinja_take(r, start, out);
}
