/* Translation of Oniguruma's Ruby syntax to PCRE2's. */
#include "data/tok_regex.h"
#include "data/unicode.h"

#include <stdio.h>
#include <string.h>

/* \w of Oniguruma, inside a class.  (Its Latin-1 fractions and superscripts are no mistake here.)
 */
#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\xB2\\xB3\\xB9\\xBC-\\xBE"

typedef struct {
  const char *at, *end;
  const char *start;
  const char *where;
  str *out;
  size_t atom;       /* where in `out` the last atom begins, for {n,m}+ */
  VEC(size_t) group; /* where in `out` the open groups begin */
} translator;

static hp_status refuse(const translator *t, const char *what) {
  HP_FAIL(HP_ERR_UNSUPPORTED,
          "%s: the regular expression has %s at byte %zu, which is not supported", t->where, what,
          (size_t)(t->at - t->start));
}

static bool looking_at(const translator *t, const char *text) {
  size_t n = strlen(text);
  return (size_t)(t->end - t->at) >= n && !memcmp(t->at, text, n);
}

static void copy(translator *t, size_t n) {
  if (n > (size_t)(t->end - t->at)) n = (size_t)(t->end - t->at);
  str_add_n(t->out, t->at, n);
  t->at += n;
}

static bool is_hex(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* Bytes from an opening bracket at p to its close; 0 when there is none. */
static size_t length_to(const char *p, const char *end, char open, char close) {
  if (p == end || *p != open) return 0;
  const char *q = memchr(p, close, (size_t)(end - p));
  return q ? (size_t)(q + 1 - p) : 0;
}

/* An escape, the backslash at t->at. */
static hp_status escape(translator *t, bool in_class) {
  if (t->end - t->at < 2) return refuse(t, "a lone backslash");
  char c = t->at[1];
  switch (c) {
  case 'h': str_add(t->out, in_class ? "0-9a-fA-F" : "[0-9a-fA-F]"); break;
  case 'w': str_add(t->out, in_class ? WORD : "[" WORD "]"); break;
  case 'v': str_add(t->out, "\\x0B"); break;
  case 'H':
  case 'W':
    if (in_class) return refuse(t, "\\H or \\W in a class");
    str_add(t->out, c == 'H' ? "[^0-9a-fA-F]" : "[^" WORD "]");
    break;
  case 'u':
    if (t->end - t->at < 6 || !is_hex(t->at[2]) || !is_hex(t->at[3]) || !is_hex(t->at[4]) ||
        !is_hex(t->at[5]))
      return refuse(t, "\\u without four hexadecimal digits");
    str_printf(t->out, "\\x{%.4s}", t->at + 2);
    t->at += 4;
    break;
  case 'k':
  case 'g': copy(t, 2 + length_to(t->at + 2, t->end, '<', '>')); return HP_OK;
  case 'p':
  case 'P': {
    size_t n = length_to(t->at + 2, t->end, '{', '}');
    copy(t, 2 + (n ? n : 1));
    return HP_OK;
  }
  case 'x': {
    size_t n = length_to(t->at + 2, t->end, '{', '}');
    while (n < 2 && t->at + 2 + n < t->end && is_hex(t->at[2 + n])) n++;
    copy(t, 2 + n);
    return HP_OK;
  }
  default: copy(t, 1 + utf8_len(t->at + 1)); return HP_OK;
  }
  t->at += 2;
  return HP_OK;
}

static hp_status posix_class(translator *t) {
  static const struct {
    const char *name, *set;
  } row[] = {{"[:alpha:]", "\\p{Alphabetic}"}, {"[:alnum:]", "\\p{Alphabetic}\\p{Nd}"},
             {"[:punct:]", "\\p{P}\\p{S}"},    {"[:word:]", WORD},
             {"[:digit:]", "\\p{Nd}"},         {"[:upper:]", "\\p{Uppercase}"},
             {"[:lower:]", "\\p{Lowercase}"},  {"[:space:]", "\\s"},
             {"[:cntrl:]", "\\p{Cc}"},         {"[:xdigit:]", "0-9a-fA-F"}};
  for (size_t i = 0; i < sizeof row / sizeof *row; i++)
    if (looking_at(t, row[i].name)) {
      str_add(t->out, row[i].set);
      t->at += strlen(row[i].name);
      return HP_OK;
    }
  return refuse(t, "a class inside a class");
}

static hp_status char_class(translator *t) {
  copy(t, 1);
  if (looking_at(t, "^")) copy(t, 1);
  if (looking_at(t, "]")) { /* first in the class: itself */
    str_add(t->out, "\\]");
    t->at++;
  }
  while (t->at < t->end && *t->at != ']') {
    if (*t->at == '\\') HP_TRY(escape(t, true));
    else if (*t->at == '[') HP_TRY(posix_class(t));
    else if (looking_at(t, "&&")) return refuse(t, "an intersection (&&)");
    else copy(t, utf8_len(t->at));
  }
  if (t->at == t->end) return refuse(t, "a class without ']'");
  copy(t, 1);
  return HP_OK;
}

/* "(" and what follows up to the group's content; (?m) is Ruby's name of (?s). */
static hp_status open_group(translator *t) {
  if (!vec_push(&t->group, t->out->len)) return HP_ERR_OOM;
  if (looking_at(t, "(?#")) {
    const char *close = memchr(t->at, ')', (size_t)(t->end - t->at));
    if (!close) return refuse(t, "a comment without ')'");
    t->group.len--;
    t->at = close + 1;
    return HP_OK;
  }
  if (looking_at(t, "(?~")) return refuse(t, "an absence operator (?~)");
  if (looking_at(t, "(*")) return refuse(t, "a verb (*...)");
  copy(t, 1);
  if (!looking_at(t, "?")) return HP_OK;
  copy(t, 1);
  const char *p = t->at;
  while (p < t->end && (*p == 'i' || *p == 'm' || *p == 'x' || *p == '-')) p++;
  if (p == t->end || (*p != ':' && *p != ')')) return HP_OK; /* a look-around, a name, ... */
  for (; t->at < p; t->at++) {
    if (*t->at == 'x') return refuse(t, "extended syntax (?x)");
    str_add_char(t->out, *t->at == 'm' ? 's' : *t->at);
  }
  return HP_OK;
}

/* {n}, {n,}, {,m}, {n,m} at t->at: its length, or 0 when the brace is an ordinary character. */
static size_t interval(const translator *t) {
  const char *p = t->at + 1;
  size_t digits = 0;
  for (; p < t->end && *p >= '0' && *p <= '9'; p++) digits++;
  if (p < t->end && *p == ',')
    for (p++; p < t->end && *p >= '0' && *p <= '9'; p++) digits++;
  return digits && p < t->end && *p == '}' ? (size_t)(p + 1 - t->at) : 0;
}

static void insert(str *s, size_t at, const char *text) {
  size_t n = strlen(text);
  str_add(s, text);
  if (s->failed) return;
  memmove(s->at + at + n, s->at + at, s->len - n - at);
  memcpy(s->at + at, text, n);
}

static bool is_fixed(const char *interval_text, size_t n) { return !memchr(interval_text, ',', n); }

/* In Ruby + after an interval repeats it again (it is not possessive), and ? after {n} makes it
 * optional. */
static void quantifier(translator *t, size_t n) {
  char after = t->at + n < t->end ? t->at[n] : 0;
  bool again = after == '+' || (after == '?' && is_fixed(t->at, n));
  if (again) insert(t->out, t->atom, "(?:");
  if (t->at[1] == ',') {
    str_add(t->out, "{0");
    t->at++;
    n--;
  }
  copy(t, n);
  if (!again) return;
  str_printf(t->out, ")%c", after);
  t->at++;
}

static hp_status translate(translator *t) {
  while (t->at < t->end) {
    char c = *t->at;
    size_t here = t->out->len, n;
    if (c == ')') {
      if (t->group.len) t->atom = t->group.at[--t->group.len];
      copy(t, 1);
    } else if (c == '{' && (n = interval(t))) {
      quantifier(t, n);
    } else if (c == '*' || c == '+' || c == '?' || c == '|') {
      copy(t, 1);
    } else if (c == '(') {
      HP_TRY(open_group(t));
    } else {
      t->atom = here;
      if (c == '\\') HP_TRY(escape(t, false));
      else if (c == '[') HP_TRY(char_class(t));
      else copy(t, utf8_len(t->at));
    }
  }
  return str_status(t->out);
}

hp_status tok_regex_translate(const char *pattern, size_t n, const char *where, str *out) {
  translator t = {.at = pattern, .end = pattern + n, .start = pattern, .where = where, .out = out};
  str_add(out, ""); /* never NULL, also for an empty pattern */
  hp_status st = translate(&t);
  vec_free(&t.group);
  return st;
}
