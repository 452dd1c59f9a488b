/* Values as sequences: iterated over, measured, cut. */
#include "jinja/jinja_ops.h"
#include "jinja/jinja_text.h"

#include "base/utf8.h"

#include <string.h>

static size_t char_len(const char *text, size_t n) {
  uint32_t c;
  size_t len = utf8_decode(text, n, &c);
  return len ? len : 1;
}

static hp_status chars_of(jinja_run *r, const jinja_value *v, jinja_value *out) {
  HP_TRY(jinja_new_seq(r, JINJA_LIST, jinja_count_chars(v->text, v->len), out));
  for (size_t i = 0, at = 0; i < out->seq->len && at < v->len; i++) {
    size_t n = char_len(v->text + at, v->len - at);
    out->seq->at[i] = jinja_string(v->text + at, n);
    at += n;
  }
  return HP_OK;
}

static hp_status keys_of(jinja_run *r, const jinja_dict *d, jinja_value *out) {
  HP_TRY(jinja_new_seq(r, JINJA_LIST, d->len, out));
  for (uint32_t i = 0; i < d->len; i++) out->seq->at[i] = d->at[i].key;
  return HP_OK;
}

hp_status jinja_iterate(jinja_run *r, const jinja_value *v, const jinja_value **at, uint32_t *n) {
  jinja_value items;
  *at = NULL;
  *n = 0;
  if (v->kind == JINJA_UNDEFINED) return HP_OK;
  if (jinja_is_seq(v)) {
    *at = v->seq->at + v->seq->next;
    *n = v->seq->len - v->seq->next;
    if (v->kind == JINJA_ITERATOR) v->seq->next = v->seq->len;
    return HP_OK;
  }
  if (v->kind == JINJA_STRING) HP_TRY(chars_of(r, v, &items));
  else if (v->kind == JINJA_DICT) HP_TRY(keys_of(r, v->dict, &items));
  else JINJA_FAIL(r, "a %s cannot be looped over", jinja_type(v));
  *at = items.seq->at;
  *n = items.seq->len;
  return HP_OK;
}

hp_status jinja_make_seq(jinja_run *r, jinja_kind kind, const jinja_value *v, jinja_value *out) {
  const jinja_value *at;
  uint32_t n;
  jinja_value seq;
  HP_TRY(jinja_iterate(r, v, &at, &n));
  HP_TRY(jinja_new_seq(r, kind, n, &seq));
  if (n) memcpy(seq.seq->at, at, n * sizeof *at);
  *out = seq;
  return HP_OK;
}

hp_status jinja_length(jinja_run *r, const jinja_value *v, int64_t *out) {
  *out = 0;
  if (v->kind == JINJA_STRING) {
    HP_TRY(jinja_charge(r, v->len / 32));
    *out = (int64_t)jinja_count_chars(v->text, v->len);
  } else if (v->kind == JINJA_DICT) *out = v->dict->len;
  else if (jinja_is_seq(v) && v->kind != JINJA_ITERATOR) *out = v->seq->len;
  else if (v->kind == JINJA_LOOP) *out = v->loop->len;
  else if (v->kind != JINJA_UNDEFINED) JINJA_FAIL(r, "a %s has no length", jinja_type(v));
  return HP_OK;
}

hp_status jinja_item_at(jinja_run *r, const jinja_value *v, int64_t i, bool *found,
                        jinja_value *out) {
  int64_t n;
  bool text = v->kind == JINJA_STRING;
  *found = false;
  if (!text && v->kind != JINJA_LIST && v->kind != JINJA_TUPLE && v->kind != JINJA_RANGE)
    return HP_OK;
  HP_TRY(jinja_length(r, v, &n));
  if (i < 0) i += n;
  *found = i >= 0 && i < n;
  if (*found && text) {
    size_t at = jinja_char_offset(v->text, v->len, (size_t)i);
    *out = jinja_string(v->text + at, char_len(v->text + at, v->len - at));
  } else if (*found) {
    *out = v->seq->at[i];
  }
  return HP_OK;
}

/* --- slices ------------------------------------------------------------------------------ */

static bool is_bound(const jinja_value *v) {
  return v->kind == JINJA_NONE || v->kind == JINJA_INT || v->kind == JINJA_BOOL;
}

/* A bound of a slice over n values, as Python clips it. */
static int64_t slice_bound(const jinja_value *v, int64_t n, int64_t least, int64_t most,
                           int64_t absent) {
  if (v->kind == JINJA_NONE) return absent;
  int64_t i = jinja_as_int(v);
  if (i < 0) i += n;
  return i < least ? least : i > most ? most : i;
}

static hp_status slice_text(jinja_run *r, const jinja_value *v, int64_t start, int64_t step,
                            int64_t n, jinja_value *out) {
  if (step == 1 || n == 0) {
    size_t from = jinja_char_offset(v->text, v->len, (size_t)start);
    size_t len = n ? jinja_char_offset(v->text + from, v->len - from, (size_t)n) : 0;
    *out = jinja_string(v->text + from, len);
    out->markup = v->markup;
    return HP_OK;
  }
  jinja_value chars;
  HP_TRY(chars_of(r, v, &chars));
  size_t begin = r->buffer.len;
  for (int64_t k = 0; k < n; k++) {
    const jinja_value *c = &chars.seq->at[start + k * step];
    HP_TRY(jinja_add(r, c->text, c->len));
  }
  HP_TRY(jinja_take(r, begin, out));
  out->markup = v->markup;
  return HP_OK;
}

hp_status jinja_slice(jinja_run *r, const jinja_value *v, const jinja_value part[3],
                      jinja_value *out) {
  int64_t len;
  if (v->kind == JINJA_UNDEFINED) return jinja_undefined_error(r, v);
  bool text = v->kind == JINJA_STRING;
  bool whole = text || v->kind == JINJA_LIST || v->kind == JINJA_TUPLE || v->kind == JINJA_RANGE;
  if (!whole) JINJA_FAIL(r, "a %s cannot be cut by a slice", jinja_type(v));
  for (int i = 0; i < 3; i++)
    if (!is_bound(&part[i]))
      JINJA_FAIL(r, "a slice needs integers, not a %s", jinja_type(&part[i]));
  HP_TRY(jinja_length(r, v, &len));
  const int64_t step = slice_bound(&part[2], 0, INT64_MIN + 1, INT64_MAX, 1);
  if (!step) JINJA_FAIL(r, "the step of a slice is 0");
  const int64_t least = step > 0 ? 0 : -1, most = step > 0 ? len : len - 1;
  const int64_t start = slice_bound(&part[0], len, least, most, step > 0 ? 0 : len - 1);
  const int64_t stop = slice_bound(&part[1], len, least, most, step > 0 ? len : -1);
  int64_t span = step > 0 ? stop - start : start - stop, size = step > 0 ? step : -step;
  int64_t n = span > 0 ? (span - 1) / size + 1 : 0;
  if (text) return slice_text(r, v, start, step, n, out);
  jinja_value seq;
  HP_TRY(jinja_new_seq(r, (jinja_kind)v->kind, (size_t)n, &seq));
  for (int64_t k = 0; k < n; k++) seq.seq->at[k] = v->seq->at[start + k * step];
  if (v->kind == JINJA_RANGE) {
    const uint64_t first = (uint64_t)v->seq->start, each = (uint64_t)v->seq->step;
    seq.seq->start = (int64_t)(first + (uint64_t)start * each);
    seq.seq->stop = (int64_t)(first + (uint64_t)stop * each);
    seq.seq->step = (int64_t)(each * (uint64_t)step);
  }
  *out = seq;
  return HP_OK;
}

hp_status jinja_make_range(jinja_run *r, int64_t start, int64_t stop, int64_t step,
                           jinja_value *out) {
  if (!step) JINJA_FAIL(r, "the step of a range is 0");
  uint64_t span = step > 0 ? (uint64_t)stop - (uint64_t)start : (uint64_t)start - (uint64_t)stop;
  uint64_t size = step > 0 ? (uint64_t)step : -(uint64_t)step;
  bool any = step > 0 ? stop > start : stop < start;
  uint64_t n = any ? (span - 1) / size + 1 : 0;
  if (n > JINJA_RANGE_MAX)
    JINJA_FAIL(r, "a range of more than %d values, as Jinja's sandbox allows", JINJA_RANGE_MAX);
  HP_TRY(jinja_new_seq(r, JINJA_RANGE, n, out));
  for (uint64_t k = 0; k < n; k++)
    out->seq->at[k] = jinja_int((int64_t)((uint64_t)start + k * (uint64_t)step));
  out->seq->start = start;
  out->seq->stop = stop;
  out->seq->step = step;
  return HP_OK;
}
