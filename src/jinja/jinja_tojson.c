/* The filter tojson as Transformers has it: json.dumps with ensure_ascii=False. */
#include "jinja/jinja_ops.h"

#include "base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  bool ascii, sort;
  bool lines; /* each value on a line of its own, with the indentation of its level */
  jinja_value indent, comma, colon;
} json_form;

static hp_status add(jinja_run *r, const char *text) { return jinja_add(r, text, strlen(text)); }
static hp_status add_string(jinja_run *r, const jinja_value *v) {
  return jinja_add(r, v->text, v->len);
}

static hp_status add_escape(jinja_run *r, uint32_t c) {
  static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
  const char *plain = c && c < 0x80 ? strchr(from, (int)c) : NULL;
  char text[16];
  if (plain) snprintf(text, sizeof text, "\\%c", to[plain - from]);
  else if (c < 0x10000) snprintf(text, sizeof text, "\\u%04x", (unsigned)c);
  else
    snprintf(text, sizeof text, "\\u%04x\\u%04x", (unsigned)(0xd800 + ((c - 0x10000) >> 10)),
             (unsigned)(0xdc00 + (c & 0x3ff)));
  return add(r, text);
}

static hp_status add_quoted(jinja_run *r, const jinja_value *v, bool ascii) {
  size_t plain = 0; /* what has no escape is added at once */
  HP_TRY(add(r, "\""));
  for (size_t at = 0, n; at < v->len; at += n) {
    uint32_t c;
    n = utf8_decode(v->text + at, v->len - at, &c);
    if (!n) n = 1;
    else if (c < 0x20 || c == '"' || c == '\\' || (c > 0x7e && ascii && c != 0x7f)) {
      HP_TRY(jinja_add(r, v->text + plain, at - plain));
      HP_TRY(add_escape(r, c));
      plain = at + n;
    }
  }
  HP_TRY(jinja_add(r, v->text + plain, v->len - plain));
  return add(r, "\"");
}

static hp_status add_number(jinja_run *r, const jinja_value *v) {
  if (v->kind == JINJA_BOOL) return add(r, v->boolean ? "true" : "false");
  if (v->kind == JINJA_NONE) return add(r, "null");
  if (v->kind == JINJA_FLOAT && !isfinite(v->number))
    return add(r, isnan(v->number) ? "NaN" : v->number > 0 ? "Infinity" : "-Infinity");
  return jinja_add_repr(r, v);
}

static hp_status add_break(jinja_run *r, const json_form *f, int level) {
  if (!f->lines) return HP_OK;
  HP_TRY(add(r, "\n"));
  for (int i = 0; i < level; i++) HP_TRY(add_string(r, &f->indent));
  return HP_OK;
}

static hp_status add_value(jinja_run *r, const json_form *f, const jinja_value *v, int level);

static hp_status add_list(jinja_run *r, const json_form *f, const jinja_seq *seq, int level) {
  if (!seq->len) return add(r, "[]");
  HP_TRY(add(r, "["));
  for (uint32_t i = 0; i < seq->len; i++) {
    if (i) HP_TRY(add_string(r, &f->comma));
    HP_TRY(add_break(r, f, level + 1));
    HP_TRY(add_value(r, f, &seq->at[i], level + 1));
  }
  HP_TRY(add_break(r, f, level));
  return add(r, "]");
}

static hp_status add_key(jinja_run *r, const json_form *f, const jinja_value *key) {
  if (key->kind == JINJA_STRING) return add_quoted(r, key, f->ascii);
  if (!jinja_is_number(key) && key->kind != JINJA_NONE)
    JINJA_FAIL(r, "tojson: a %s cannot be a key", jinja_type(key));
  HP_TRY(add(r, "\""));
  HP_TRY(add_number(r, key));
  return add(r, "\"");
}

/* The pairs by their keys; few, so insertion. */
static hp_status sort_pairs(jinja_run *r, const jinja_dict *d, jinja_dict *out) {
  JINJA_NEW(r, out->at, d->len);
  for (out->len = 0; out->len < d->len; out->len++) {
    uint32_t k = out->len;
    for (int order; k > 0; k--) {
      HP_TRY(jinja_compare(r, &out->at[k - 1].key, &d->at[out->len].key, &order));
      if (order <= 0) break;
      out->at[k] = out->at[k - 1];
    }
    out->at[k] = d->at[out->len];
  }
  return HP_OK;
}

static hp_status add_dict(jinja_run *r, const json_form *f, const jinja_dict *d, int level) {
  jinja_dict sorted = *d;
  if (!d->len) return add(r, "{}");
  if (f->sort) HP_TRY(sort_pairs(r, d, &sorted));
  HP_TRY(add(r, "{"));
  for (uint32_t i = 0; i < sorted.len; i++) {
    if (i) HP_TRY(add_string(r, &f->comma));
    HP_TRY(add_break(r, f, level + 1));
    HP_TRY(add_key(r, f, &sorted.at[i].key));
    HP_TRY(add_string(r, &f->colon));
    HP_TRY(add_value(r, f, &sorted.at[i].value, level + 1));
  }
  HP_TRY(add_break(r, f, level));
  return add(r, "}");
}

static hp_status add_value(jinja_run *r, const json_form *f, const jinja_value *v, int level) {
  HP_TRY(jinja_enter(r));
  if (v->kind == JINJA_STRING) HP_TRY(add_quoted(r, v, f->ascii));
  else if (v->kind == JINJA_NONE || jinja_is_number(v)) HP_TRY(add_number(r, v));
  else if (v->kind == JINJA_LIST || v->kind == JINJA_TUPLE) HP_TRY(add_list(r, f, v->seq, level));
  else if (v->kind == JINJA_DICT) HP_TRY(add_dict(r, f, v->dict, level));
  else if (v->kind == JINJA_UNDEFINED) return jinja_undefined_error(r, v);
  else JINJA_FAIL(r, "tojson: a %s has no JSON", jinja_type(v));
  r->depth--;
  return HP_OK;
}

static hp_status read_indent(jinja_run *r, const jinja_value *v, json_form *f) {
  if (v->kind == JINJA_MISSING || v->kind == JINJA_NONE) return HP_OK;
  f->lines = true;
  if (v->kind == JINJA_STRING) {
    f->indent = *v;
  } else if (v->kind == JINJA_INT || v->kind == JINJA_BOOL) {
    size_t start = r->buffer.len;
    for (int64_t i = 0; i < jinja_as_int(v); i++) HP_TRY(add(r, " "));
    HP_TRY(jinja_take(r, start, &f->indent));
  } else {
    JINJA_FAIL(r, "tojson: indent must be a number or a string, not a %s", jinja_type(v));
  }
  return HP_OK;
}

static hp_status read_separators(jinja_run *r, const jinja_value *v, json_form *f) {
  if (v->kind == JINJA_MISSING || v->kind == JINJA_NONE) return HP_OK;
  if ((v->kind != JINJA_TUPLE && v->kind != JINJA_LIST) || v->seq->len != 2 ||
      v->seq->at[0].kind != JINJA_STRING || v->seq->at[1].kind != JINJA_STRING)
    JINJA_FAIL(r, "tojson: separators must be two strings");
  f->comma = v->seq->at[0];
  f->colon = v->seq->at[1];
  return HP_OK;
}

hp_status jinja_filter_tojson(jinja_run *r, const jinja_value *self, const jinja_args *a,
                              jinja_value *out);
hp_status jinja_filter_tojson(jinja_run *r, const jinja_value *self, const jinja_args *a,
                              jinja_value *out) {
  json_form f = {.ascii = jinja_truth(&a->at[0]), .sort = jinja_truth(&a->at[3])};
  HP_TRY(read_indent(r, &a->at[1], &f));
  f.comma = jinja_string(f.lines ? "," : ", ", f.lines ? 1 : 2);
  f.colon = jinja_string(": ", 2);
  HP_TRY(read_separators(r, &a->at[2], &f));
  size_t start = r->buffer.len;
  HP_TRY(add_value(r, &f, self, 0));
  return jinja_take(r, start, out);
}
