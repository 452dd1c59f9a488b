/* Methods of strings, dicts, lists and loops. */
#include "jinja/jinja_format.h"
#include "jinja/jinja_strings.h"

#include "base/utf8.h"

#include <string.h>

#define METHOD(name)                                                                               \
  hp_status jinja_method_##name(jinja_run *r, const jinja_value *self, const jinja_args *a,        \
                                jinja_value *out);                                                 \
  hp_status jinja_method_##name(jinja_run *r, const jinja_value *self, const jinja_args *a,        \
                                jinja_value *out)

/* --- case and kind of letters ------------------------------------------------------------ */

METHOD(lower) {
  (void)a;
  return jinja_change_case(r, self, JINJA_LOWER, false, out);
}
METHOD(upper) {
  (void)a;
  return jinja_change_case(r, self, JINJA_UPPER, false, out);
}
METHOD(title) {
  (void)a;
  return jinja_change_case(r, self, JINJA_TITLE, true, out);
}
METHOD(capitalize) {
  (void)a;
  return jinja_change_case(r, self, JINJA_TITLE, false, out);
}

static bool is_letter_or_digit(uint32_t c) { return jinja_is_letter(c) || jinja_is_digit(c); }

static jinja_value all_are(const jinja_value *v, bool (*is)(uint32_t c)) {
  for (size_t at = 0, n; at < v->len; at += n) {
    uint32_t c;
    if (!(n = utf8_decode(v->text + at, v->len - at, &c)) || !is(c)) return jinja_bool(false);
  }
  return jinja_bool(v->len != 0);
}

METHOD(isalnum) {
  (void)r, (void)a;
  *out = all_are(self, is_letter_or_digit);
  return HP_OK;
}
METHOD(isalpha) {
  (void)r, (void)a;
  *out = all_are(self, jinja_is_letter);
  return HP_OK;
}
METHOD(isdigit) {
  (void)r, (void)a;
  *out = all_are(self, jinja_is_digit);
  return HP_OK;
}
METHOD(isspace) {
  (void)r, (void)a;
  *out = all_are(self, jinja_is_space);
  return HP_OK;
}

METHOD(isascii) {
  (void)r, (void)a;
  size_t i = 0;
  while (i < self->len && !((unsigned char)self->text[i] & 0x80)) i++;
  *out = jinja_bool(i == self->len);
  return HP_OK;
}

METHOD(swapcase) {
  size_t start = r->buffer.len;
  (void)a;
  for (size_t at = 0, n; at < self->len; at += n) {
    uint32_t c = 0;
    char text[8];
    if (!(n = utf8_decode(self->text + at, self->len - at, &c))) n = 1;
    bool lower = jinja_has_case(self->text + at, n, JINJA_LOWER);
    size_t len = jinja_map_case(c, lower ? JINJA_UPPER : JINJA_LOWER, text);
    HP_TRY(jinja_add(r, text, len));
  }
  return jinja_take(r, start, out);
}

METHOD(islower) {
  (void)r, (void)a;
  *out = jinja_bool(jinja_has_case(self->text, self->len, JINJA_LOWER));
  return HP_OK;
}
METHOD(isupper) {
  (void)r, (void)a;
  *out = jinja_bool(jinja_has_case(self->text, self->len, JINJA_UPPER));
  return HP_OK;
}

/* --- parts ------------------------------------------------------------------------------- */

METHOD(strip) { return jinja_strip(r, self, &a->at[0], true, true, out); }
METHOD(lstrip) { return jinja_strip(r, self, &a->at[0], true, false, out); }
METHOD(rstrip) { return jinja_strip(r, self, &a->at[0], false, true, out); }

METHOD(replace) {
  int64_t most;
  HP_TRY(jinja_need_string(r, &a->at[0], "replace"));
  HP_TRY(jinja_need_string(r, &a->at[1], "replace"));
  HP_TRY(jinja_opt_int(r, &a->at[2], -1, &most));
  return jinja_replace(r, self, &a->at[0], &a->at[1], most, out);
}

static hp_status split(jinja_run *r, const jinja_value *self, const jinja_args *a, bool right,
                       jinja_value *out) {
  int64_t most;
  HP_TRY(jinja_opt_int(r, &a->at[1], -1, &most));
  return jinja_split(r, self, &a->at[0], most, right, out);
}
METHOD(split) { return split(r, self, a, false, out); }
METHOD(rsplit) { return split(r, self, a, true, out); }
METHOD(splitlines) { return jinja_split_lines(r, self, jinja_truth(&a->at[0]), out); }

/* Searching from the right may compare all of `part` at every place. */
static hp_status charge_search(jinja_run *r, const jinja_value *v, const jinja_value *part) {
  return jinja_charge(r, (uint64_t)v->len / 32 * (1 + part->len / 32));
}

/* (before, sep, after); the string and two empty ones when sep is not in it. */
static hp_status partition(jinja_run *r, const jinja_value *self, const jinja_value *sep,
                           bool right, jinja_value *out) {
  jinja_value empty = jinja_string("", 0);
  empty.markup = self->markup;
  HP_TRY(jinja_need_string(r, sep, "partition"));
  if (!sep->len) JINJA_FAIL(r, "a string cannot be split at an empty one");
  if (right) HP_TRY(charge_search(r, self, sep));
  HP_TRY(jinja_new_seq(r, JINJA_TUPLE, 3, out));
  jinja_value *part = out->seq->at;
  size_t at = right ? jinja_find_last(self->text, self->len, sep->text, sep->len)
                    : jinja_find_text(self->text, self->len, sep->text, sep->len, 0);
  part[0] = right ? empty : *self;
  part[1] = empty;
  part[2] = right ? *self : empty;
  if (at == SIZE_MAX) return HP_OK;
  part[0] = jinja_string(self->text, at);
  part[1] = jinja_string(sep->text, sep->len);
  part[2] = jinja_string(self->text + at + sep->len, self->len - at - sep->len);
  for (int i = 0; i < 3; i++) part[i].markup = self->markup;
  return HP_OK;
}
METHOD(partition) { return partition(r, self, &a->at[0], false, out); }
METHOD(rpartition) { return partition(r, self, &a->at[0], true, out); }

static bool has_end(const jinja_value *v, const jinja_value *part, bool start) {
  return part->len <= v->len &&
         !memcmp(start ? v->text : v->text + v->len - part->len, part->text, part->len);
}

/* One string, or any of a tuple. */
static hp_status test_end(jinja_run *r, const jinja_value *self, const jinja_value *what,
                          bool start, jinja_value *out) {
  uint32_t n = what->kind == JINJA_TUPLE ? what->seq->len : 1;
  bool any = false;
  for (uint32_t i = 0; i < n && !any; i++) {
    const jinja_value *part = what->kind == JINJA_TUPLE ? &what->seq->at[i] : what;
    HP_TRY(jinja_need_string(r, part, start ? "startswith" : "endswith"));
    any = has_end(self, part, start);
  }
  *out = jinja_bool(any);
  return HP_OK;
}
METHOD(startswith) { return test_end(r, self, &a->at[0], true, out); }
METHOD(endswith) { return test_end(r, self, &a->at[0], false, out); }

METHOD(removeprefix) {
  const jinja_value *part = &a->at[0];
  HP_TRY(jinja_need_string(r, part, "removeprefix"));
  *out = *self;
  if (!has_end(self, part, true)) return HP_OK;
  out->text += part->len;
  out->len -= part->len;
  return HP_OK;
}
METHOD(removesuffix) {
  const jinja_value *part = &a->at[0];
  HP_TRY(jinja_need_string(r, part, "removesuffix"));
  *out = *self;
  if (has_end(self, part, false)) out->len -= part->len;
  return HP_OK;
}

METHOD(join) {
  const jinja_value *at;
  uint32_t n;
  size_t start = r->buffer.len;
  HP_TRY(jinja_iterate(r, &a->at[0], &at, &n));
  for (uint32_t i = 0; i < n; i++) {
    HP_TRY(jinja_charge(r, 1));
    HP_TRY(jinja_need_string(r, &at[i], "join"));
    if (i) HP_TRY(jinja_add(r, self->text, self->len));
    HP_TRY(jinja_add(r, at[i].text, at[i].len));
  }
  return jinja_take(r, start, out);
}

static hp_status pad(jinja_run *r, const jinja_value *self, const jinja_args *a, char align,
                     jinja_value *out) {
  int64_t width;
  jinja_value fill = jinja_string(" ", 1);
  if (a->at[1].kind != JINJA_MISSING) fill = a->at[1];
  HP_TRY(jinja_opt_int(r, &a->at[0], 0, &width));
  HP_TRY(jinja_need_string(r, &fill, "the fill character"));
  if (jinja_count_chars(fill.text, fill.len) != 1)
    JINJA_FAIL(r, "the fill character must be one character");
  int64_t missing = width - (int64_t)jinja_count_chars(self->text, self->len);
  size_t start = r->buffer.len;
  /* str.center puts the odd space to the left if the width is odd, format to the right */
  bool odd = align == '^' && missing > 0 && (missing & width & 1);
  if (odd) HP_TRY(jinja_add(r, fill.text, fill.len));
  HP_TRY(jinja_charge(r, missing > 0 ? (uint64_t)missing / 16 : 0));
  HP_TRY(jinja_add_padded(r, self->text, self->len, align, fill.text, fill.len, width - odd));
  return jinja_take(r, start, out);
}
METHOD(center) { return pad(r, self, a, '^', out); }
METHOD(ljust) { return pad(r, self, a, '<', out); }
METHOD(rjust) { return pad(r, self, a, '>', out); }

/* Zeros behind the sign. */
METHOD(zfill) {
  int64_t width;
  HP_TRY(jinja_opt_int(r, &a->at[0], 0, &width));
  size_t sign = self->len && (*self->text == '-' || *self->text == '+'), start = r->buffer.len;
  HP_TRY(jinja_charge(r, width > 0 ? (uint64_t)width / 16 : 0));
  HP_TRY(jinja_add(r, self->text, sign));
  HP_TRY(
      jinja_add_padded(r, self->text + sign, self->len - sign, '>', "0", 1, width - (int64_t)sign));
  return jinja_take(r, start, out);
}

METHOD(format) { return jinja_format_braces(r, self, a, out); }

/* --- places ------------------------------------------------------------------------------ */

/* The number of the character at a byte; -1 for none. */
static jinja_value place(const jinja_value *v, size_t at) {
  return jinja_int(at == SIZE_MAX ? -1 : (int64_t)jinja_count_chars(v->text, at));
}

METHOD(find) {
  int64_t from;
  HP_TRY(jinja_need_string(r, &a->at[0], "find"));
  HP_TRY(jinja_opt_int(r, &a->at[1], 0, &from));
  int64_t n = (int64_t)jinja_count_chars(self->text, self->len);
  if (from < 0) from = from + n < 0 ? 0 : from + n;
  size_t at = from > n ? SIZE_MAX : jinja_char_offset(self->text, self->len, (size_t)from);
  if (at != SIZE_MAX) at = jinja_find_text(self->text, self->len, a->at[0].text, a->at[0].len, at);
  *out = place(self, at);
  return HP_OK;
}
METHOD(rfind) {
  HP_TRY(jinja_need_string(r, &a->at[0], "rfind"));
  HP_TRY(charge_search(r, self, &a->at[0]));
  *out = place(self, jinja_find_last(self->text, self->len, a->at[0].text, a->at[0].len));
  return HP_OK;
}
METHOD(rindex) {
  HP_TRY(jinja_need_string(r, &a->at[0], "rindex"));
  HP_TRY(charge_search(r, self, &a->at[0]));
  size_t at = jinja_find_last(self->text, self->len, a->at[0].text, a->at[0].len);
  if (at == SIZE_MAX) JINJA_FAIL(r, "rindex: the string is not in the other one");
  *out = place(self, at);
  return HP_OK;
}
METHOD(index) {
  HP_TRY(jinja_need_string(r, &a->at[0], "index"));
  size_t at = jinja_find_text(self->text, self->len, a->at[0].text, a->at[0].len, 0);
  if (at == SIZE_MAX) JINJA_FAIL(r, "index: the string is not in the other one");
  *out = place(self, at);
  return HP_OK;
}
METHOD(count) {
  int64_t n = 0;
  const jinja_value *part = &a->at[0];
  HP_TRY(jinja_need_string(r, part, "count"));
  if (!part->len) n = (int64_t)jinja_count_chars(self->text, self->len) + 1;
  for (size_t at = 0; part->len; at += part->len, n++)
    if ((at = jinja_find_text(self->text, self->len, part->text, part->len, at)) == SIZE_MAX) break;
  *out = jinja_int(n);
  return HP_OK;
}

/* --- dicts, lists, loops ----------------------------------------------------------------- */

METHOD(same) {
  (void)r, (void)a;
  *out = *self;
  return HP_OK;
}
METHOD(get) {
  const jinja_value *value;
  HP_TRY(jinja_dict_get(r, self->dict, &a->at[0], &value));
  *out = value ? *value : a->at[1].kind == JINJA_MISSING ? jinja_none() : a->at[1];
  return HP_OK;
}

static hp_status view(jinja_run *r, const jinja_dict *d, jinja_kind kind, jinja_value *out) {
  HP_TRY(jinja_new_seq(r, kind, d->len, out));
  for (uint32_t i = 0; i < d->len; i++) {
    jinja_value *v = &out->seq->at[i];
    if (kind == JINJA_ITEMS) {
      HP_TRY(jinja_new_seq(r, JINJA_TUPLE, 2, v));
      v->seq->at[0] = d->at[i].key;
      v->seq->at[1] = d->at[i].value;
    } else {
      *v = kind == JINJA_KEYS ? d->at[i].key : d->at[i].value;
    }
  }
  return HP_OK;
}
METHOD(items) {
  (void)a;
  return view(r, self->dict, JINJA_ITEMS, out);
}
METHOD(keys) {
  (void)a;
  return view(r, self->dict, JINJA_KEYS, out);
}
METHOD(values) {
  (void)a;
  return view(r, self->dict, JINJA_VALUES, out);
}

METHOD(count_items) {
  int64_t n = 0;
  for (uint32_t i = 0; i < self->seq->len; i++) {
    bool same;
    HP_TRY(jinja_equal(r, &self->seq->at[i], &a->at[0], &same));
    n += same;
  }
  *out = jinja_int(n);
  return HP_OK;
}
METHOD(index_of) {
  for (uint32_t i = 0; i < self->seq->len; i++) {
    bool same;
    HP_TRY(jinja_equal(r, &self->seq->at[i], &a->at[0], &same));
    if (!same) continue;
    *out = jinja_int(i);
    return HP_OK;
  }
  JINJA_FAIL(r, "index: the value is not in the list");
}

METHOD(cycle) {
  if (!a->n) JINJA_FAIL(r, "loop.cycle needs values");
  *out = a->at[self->loop->index % a->n];
  return HP_OK;
}
/* Whether the values are not those of the last call. */
METHOD(changed) {
  jinja_value now;
  bool same = false;
  HP_TRY(jinja_new_seq(r, JINJA_TUPLE, a->n, &now));
  if (a->n) memcpy(now.seq->at, a->at, a->n * sizeof *a->at);
  if (self->loop->changed.kind == JINJA_TUPLE)
    HP_TRY(jinja_equal(r, &self->loop->changed, &now, &same));
  self->loop->changed = now;
  *out = jinja_bool(!same);
  return HP_OK;
}
