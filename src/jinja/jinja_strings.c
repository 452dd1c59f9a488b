#include "jinja/jinja_strings.h"

#include "base/utf8.h"

#include <string.h>

hp_status jinja_need_string(jinja_run *r, const jinja_value *v, const char *who) {
  if (v->kind == JINJA_UNDEFINED) return jinja_undefined_error(r, v);
  if (v->kind != JINJA_STRING) JINJA_FAIL(r, "%s needs a string, not a %s", who, jinja_type(v));
  return HP_OK;
}

hp_status jinja_opt_int(jinja_run *r, const jinja_value *v, int64_t absent, int64_t *out) {
  *out = absent;
  if (v->kind == JINJA_MISSING) return HP_OK;
  if (v->kind != JINJA_INT && v->kind != JINJA_BOOL)
    JINJA_FAIL(r, "expected an integer, found a %s", jinja_type(v));
  *out = jinja_as_int(v);
  return HP_OK;
}

static jinja_value part_of(const jinja_value *v, size_t from, size_t to) {
  jinja_value out = jinja_string(v->text + from, to - from);
  out.markup = v->markup;
  return out;
}

hp_status jinja_change_case(jinja_run *r, const jinja_value *v, jinja_case to, bool words,
                            jinja_value *out) {
  size_t start = r->buffer.len;
  bool after = false; /* behind a letter of the word; else behind the first character */
  for (size_t at = 0, n; at < v->len; at += n) {
    uint32_t c;
    char text[8];
    n = utf8_decode(v->text + at, v->len - at, &c);
    if (!n) {
      HP_TRY(jinja_add(r, v->text + at, n = 1));
      continue;
    }
    jinja_case one = to == JINJA_TITLE && after ? JINJA_LOWER : to;
    size_t len = jinja_map_case(c, one, text);
    HP_TRY(jinja_add(r, text, len));
    after = !words || jinja_is_cased(c);
  }
  HP_TRY(jinja_take(r, start, out));
  out->markup = v->markup;
  return HP_OK;
}

static bool is_in_set(uint32_t c, const jinja_value *chars) {
  char text[4];
  size_t n = utf8_encode(c, text);
  return jinja_find_text(chars->text, chars->len, text, n, 0) != SIZE_MAX;
}

static size_t char_before(const jinja_value *v, size_t from, size_t end) {
  size_t at = end - 1;
  while (at > from && ((unsigned char)v->text[at] & 0xc0) == 0x80) at--;
  return at;
}

hp_status jinja_strip(jinja_run *r, const jinja_value *v, const jinja_value *chars, bool left,
                      bool right, jinja_value *out) {
  size_t from = 0, to = v->len;
  uint32_t c;
  if (chars->kind == JINJA_MISSING || chars->kind == JINJA_NONE) {
    if (left) from = jinja_skip_space(v->text, to);
    if (right) to = from + jinja_trim_space(v->text + from, to - from);
    *out = part_of(v, from, to);
    return HP_OK;
  }
  HP_TRY(jinja_need_string(r, chars, "strip"));
  HP_TRY(jinja_charge(r, (uint64_t)v->len * (1 + chars->len / 32) / 8));
  for (size_t n; left && from < to; from += n)
    if (!(n = utf8_decode(v->text + from, to - from, &c)) || !is_in_set(c, chars)) break;
  while (right && to > from) {
    size_t at = char_before(v, from, to);
    if (!utf8_decode(v->text + at, to - at, &c) || !is_in_set(c, chars)) break;
    to = at;
  }
  *out = part_of(v, from, to);
  return HP_OK;
}

/* Where the next replacement goes: an empty text is found before every character and at the end. */
static size_t next_match(const jinja_value *v, const jinja_value *from, size_t at) {
  return jinja_find_text(v->text, v->len, from->text, from->len, at);
}

hp_status jinja_replace(jinja_run *r, const jinja_value *v, const jinja_value *from,
                        const jinja_value *to, int64_t most, jinja_value *out) {
  size_t start = r->buffer.len, at = 0;
  while (most--) {
    size_t found = next_match(v, from, at), next;
    if (found == SIZE_MAX) break;
    HP_TRY(jinja_charge(r, 1));
    HP_TRY(jinja_add(r, v->text + at, found - at));
    HP_TRY(jinja_add(r, to->text, to->len));
    next = found + from->len;
    if (!from->len) {
      if (found == v->len) {
        at = found;
        break;
      }
      next = found + jinja_char_offset(v->text + found, v->len - found, 1);
      HP_TRY(jinja_add(r, v->text + found, next - found));
    }
    at = next;
  }
  HP_TRY(jinja_add(r, v->text + at, v->len - at));
  HP_TRY(jinja_take(r, start, out));
  out->markup = v->markup;
  return HP_OK;
}

/* --- splitting --------------------------------------------------------------------------- */

typedef struct {
  size_t from, to;
} piece;
typedef VEC(piece) pieces;

static hp_status take_pieces(jinja_run *r, const jinja_value *v, pieces *p, bool reversed,
                             hp_status st, jinja_value *out) {
  jinja_value list;
  if (!st) st = jinja_new_seq(r, JINJA_LIST, p->len, &list);
  for (size_t i = 0; !st && i < p->len; i++) {
    const piece *x = &p->at[reversed ? p->len - 1 - i : i];
    list.seq->at[i] = part_of(v, x->from, x->to);
  }
  if (!st) *out = list;
  vec_free(p);
  return st;
}

static hp_status push_piece(jinja_run *r, pieces *p, size_t from, size_t to) {
  HP_TRY(jinja_charge(r, 1));
  return vec_push(p, ((piece){from, to})) ? HP_OK : HP_ERR_OOM;
}

static hp_status cut_at_text(jinja_run *r, const jinja_value *v, const jinja_value *sep,
                             int64_t most, pieces *p) {
  size_t at = 0;
  for (size_t found; most-- && (found = next_match(v, sep, at)) != SIZE_MAX; at = found + sep->len)
    HP_TRY(push_piece(r, p, at, found));
  return push_piece(r, p, at, v->len);
}

static hp_status cut_at_text_from_right(jinja_run *r, const jinja_value *v, const jinja_value *sep,
                                        int64_t most, pieces *p) {
  size_t end = v->len, found;
  HP_TRY(jinja_charge(r, (uint64_t)v->len / 32 * (1 + sep->len / 32)));
  for (; most-- && (found = jinja_find_last(v->text, end, sep->text, sep->len)) != SIZE_MAX;
       end = found)
    HP_TRY(push_piece(r, p, found + sep->len, end));
  return push_piece(r, p, 0, end);
}

/* The first white space at or behind `at`. */
static size_t find_space(const jinja_value *v, size_t at) {
  for (uint32_t c; at < v->len;) {
    size_t n = utf8_decode(v->text + at, v->len - at, &c);
    if (n && jinja_is_space(c)) break;
    at += n ? n : 1;
  }
  return at;
}

static hp_status cut_at_space(jinja_run *r, const jinja_value *v, int64_t most, pieces *p) {
  size_t at = jinja_skip_space(v->text, v->len);
  while (at < v->len) {
    size_t end = most-- ? find_space(v, at) : v->len;
    HP_TRY(push_piece(r, p, at, end));
    at = end + jinja_skip_space(v->text + end, v->len - end);
  }
  return HP_OK;
}

static hp_status cut_at_space_from_right(jinja_run *r, const jinja_value *v, int64_t most,
                                         pieces *p) {
  size_t end = jinja_trim_space(v->text, v->len);
  while (end) {
    size_t from = end;
    uint32_t c;
    if (!most--) {
      from = 0;
    } else {
      for (size_t at; from; from = at) {
        at = char_before(v, 0, from);
        if (utf8_decode(v->text + at, from - at, &c) && jinja_is_space(c)) break;
      }
    }
    HP_TRY(push_piece(r, p, from, end));
    end = jinja_trim_space(v->text, from);
  }
  return HP_OK;
}

hp_status jinja_split(jinja_run *r, const jinja_value *v, const jinja_value *sep, int64_t most,
                      bool right, jinja_value *out) {
  pieces p = {0};
  hp_status st;
  if (sep->kind == JINJA_MISSING || sep->kind == JINJA_NONE) {
    st = right ? cut_at_space_from_right(r, v, most, &p) : cut_at_space(r, v, most, &p);
  } else {
    HP_TRY(jinja_need_string(r, sep, "split"));
    if (!sep->len) JINJA_FAIL(r, "a string cannot be split at an empty one");
    st = right ? cut_at_text_from_right(r, v, sep, most, &p) : cut_at_text(r, v, sep, most, &p);
  }
  return take_pieces(r, v, &p, right, st, out);
}

static bool ends_line(uint32_t c) {
  return (c >= '\n' && c <= '\r') || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

static hp_status cut_lines(jinja_run *r, const jinja_value *v, bool keep_ends, pieces *p) {
  size_t from = 0;
  for (size_t at = 0, n; at < v->len; at += n) {
    uint32_t c;
    n = utf8_decode(v->text + at, v->len - at, &c);
    if (!n) n = 1;
    else if (ends_line(c)) {
      if (c == '\r' && at + 1 < v->len && v->text[at + 1] == '\n') n = 2;
      HP_TRY(push_piece(r, p, from, keep_ends ? at + n : at));
      from = at + n;
    }
  }
  return from < v->len ? push_piece(r, p, from, v->len) : HP_OK;
}

hp_status jinja_split_lines(jinja_run *r, const jinja_value *v, bool keep_ends, jinja_value *out) {
  pieces p = {0};
  hp_status st = cut_lines(r, v, keep_ends, &p);
  return take_pieces(r, v, &p, false, st, out);
}
