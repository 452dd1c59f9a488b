/* Translation of Oniguruma's Ruby syntax to PCRE2's. */
#include "tok/tok_regex.h"
#include "tok/unicode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* \w of Oniguruma, inside a class.  (Its Latin-1 fractions and superscripts are no mistake here.)
 */
#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\xB2\\xB3\\xB9\\xBC-\\xBE"

/* PCRE2 refuses more than 250 inside each other; of `?`, so many multiply work at most 256 times.
 */
enum { GROUPS_MAX = 256, FREE_CHOICES = 8, MANY_REPEATS = 16 };

typedef struct {
  const char *at, *end;
  const char *start;
  const char *where;
  str *out;
  size_t atom; /* where in `out` the last atom begins, for {n,m}+ */
  struct {
    size_t at; /* where in `out` it begins */
    bool choice;
  } group[GROUPS_MAX];
  size_t groups; /* that are open */
  bool counted, loops;
  int optional; /* items with a ? so far */
} translator;

static hp_status refuse_pattern(const translator *t, const char *what) {
  HP_FAIL(HP_ERR_UNSUPPORTED,
          "%s: the regular expression has %s at byte %zu, which is not supported", t->where, what,
          (size_t)(t->at - t->start));
}

static bool is_looking_at(const translator *t, const char *text) {
  size_t n = strlen(text);
  return (size_t)(t->end - t->at) >= n && !memcmp(t->at, text, n);
}

static void copy_bytes(translator *t, size_t n) {
  if (n > (size_t)(t->end - t->at)) n = (size_t)(t->end - t->at);
  str_add_n(t->out, t->at, n);
  t->at += n;
}

static bool is_hex(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* Bytes from an opening bracket at p to its close; 0 when there is none. */
static size_t measure_to(const char *p, const char *end, char open, char close) {
  if (p == end || *p != open) return 0;
  const char *q = memchr(p, close, (size_t)(end - p));
  return q ? (size_t)(q + 1 - p) : 0;
}

/* An escape, the backslash at t->at. */
static hp_status translate_escape(translator *t, bool in_class) {
  if (t->end - t->at < 2) return refuse_pattern(t, "a lone backslash");
  char c = t->at[1];
  switch (c) {
  case 'h': str_add(t->out, in_class ? "0-9a-fA-F" : "[0-9a-fA-F]"); break;
  case 'w': str_add(t->out, in_class ? WORD : "[" WORD "]"); break;
  case 'v': str_add(t->out, "\\x0B"); break;
  case 'H':
  case 'W':
    if (in_class) return refuse_pattern(t, "\\H or \\W in a class");
    str_add(t->out, c == 'H' ? "[^0-9a-fA-F]" : "[^" WORD "]");
    break;
  case 'u':
    if (t->end - t->at < 6 || !is_hex(t->at[2]) || !is_hex(t->at[3]) || !is_hex(t->at[4]) ||
        !is_hex(t->at[5]))
      return refuse_pattern(t, "\\u without four hexadecimal digits");
    str_printf(t->out, "\\x{%.4s}", t->at + 2);
    t->at += 4;
    break;
  case 'Q': /* a letter in Ruby; in PCRE2 the begin and the end of a quotation */
  case 'E': str_add_char(t->out, c); break;
  case 'k':
  case 'g': copy_bytes(t, 2 + measure_to(t->at + 2, t->end, '<', '>')); return HP_OK;
  case 'p':
  case 'P': {
    size_t n = measure_to(t->at + 2, t->end, '{', '}');
    copy_bytes(t, 2 + (n ? n : 1));
    return HP_OK;
  }
  case 'x': {
    size_t n = measure_to(t->at + 2, t->end, '{', '}');
    while (n < 2 && t->at + 2 + n < t->end && is_hex(t->at[2 + n])) n++;
    copy_bytes(t, 2 + n);
    return HP_OK;
  }
  default: copy_bytes(t, 1 + utf8_len(t->at + 1)); return HP_OK;
  }
  t->at += 2;
  return HP_OK;
}

static hp_status translate_posix_class(translator *t) {
  static const struct {
    const char *name, *set;
  } row[] = {{"[:alpha:]", "\\p{Alphabetic}"}, {"[:alnum:]", "\\p{Alphabetic}\\p{Nd}"},
             {"[:punct:]", "\\p{P}\\p{S}"},    {"[:word:]", WORD},
             {"[:digit:]", "\\p{Nd}"},         {"[:upper:]", "\\p{Uppercase}"},
             {"[:lower:]", "\\p{Lowercase}"},  {"[:space:]", "\\s"},
             {"[:cntrl:]", "\\p{Cc}"},         {"[:xdigit:]", "0-9a-fA-F"}};
  for (size_t i = 0; i < sizeof row / sizeof *row; i++)
    if (is_looking_at(t, row[i].name)) {
      str_add(t->out, row[i].set);
      t->at += strlen(row[i].name);
      return HP_OK;
    }
  return refuse_pattern(t, "a class inside a class");
}

static hp_status translate_class(translator *t) {
  copy_bytes(t, 1);
  if (is_looking_at(t, "^")) copy_bytes(t, 1);
  if (is_looking_at(t, "]")) { /* first in the class: itself */
    str_add(t->out, "\\]");
    t->at++;
  }
  while (t->at < t->end && *t->at != ']') {
    if (*t->at == '\\') HP_TRY(translate_escape(t, true));
    else if (*t->at == '[') HP_TRY(translate_posix_class(t));
    else if (is_looking_at(t, "&&")) return refuse_pattern(t, "an intersection (&&)");
    else copy_bytes(t, utf8_len(t->at));
  }
  if (t->at == t->end) return refuse_pattern(t, "a class without ']'");
  copy_bytes(t, 1);
  return HP_OK;
}

/* --- counting --------------------------------------------------------------------------------- */

static void count_group(const translator *t, int what) {
  if (t->counted) str_printf(t->out, "(?C%d)", what);
}

/* (?R), (?1), (?-1), (?&name), (?P>name): a group is matched again. */
static bool is_call(const translator *t) {
  if (is_looking_at(t, "(?R)") || is_looking_at(t, "(?&") || is_looking_at(t, "(?P>")) return true;
  const char *p = t->at + 2;
  if (!is_looking_at(t, "(?") || p == t->end) return false;
  if (*p == '+' || *p == '-') p++;
  return p < t->end && *p >= '0' && *p <= '9';
}

static bool is_quantifier(const translator *t) {
  return t->at < t->end && strchr("*+?{", *t->at) != NULL;
}

/* Can a repetition stand within a loop, or are there many?  Seen in the text, so it may be true of
 * some in which it is not so. */
static bool has_loops(const char *s, size_t n) {
  int repeats = 0;
  for (size_t i = 0; i < n; i++) {
    bool again = s[i] == '*' || s[i] == '+' || s[i] == '{';
    repeats += again;
    if (again && i && s[i - 1] == ')') return true;
    if (s[i] == '\\' && i + 1 < n && s[i + 1] == 'g') return true;
    if (s[i] != '(' || i + 2 >= n || s[i + 1] != '?') continue;
    if (strchr("R&P+-0123456789", s[i + 2])) return true;
  }
  return repeats > MANY_REPEATS;
}

/* "(" and what follows up to the group's content; (?m) is Ruby's name of (?s). */
static hp_status open_group(translator *t) {
  if (is_looking_at(t, "(?#")) {
    const char *close = memchr(t->at, ')', (size_t)(t->end - t->at));
    if (!close) return refuse_pattern(t, "a comment without ')'");
    t->at = close + 1;
    return HP_OK;
  }
  if (t->groups == GROUPS_MAX) return refuse_pattern(t, "too many groups inside each other");
  bool call = is_call(t);
  if (call) count_group(t, TOK_COUNT_AFTER);
  if (is_looking_at(t, "(?P=")) count_group(t, TOK_COUNT_REFERENCE);
  t->group[t->groups].at = t->out->len;
  t->group[t->groups++].choice = call;
  if (is_looking_at(t, "(?~")) return refuse_pattern(t, "an absence operator (?~)");
  if (is_looking_at(t, "(*")) return refuse_pattern(t, "a verb (*...)");
  copy_bytes(t, 1);
  if (!is_looking_at(t, "?")) return HP_OK;
  copy_bytes(t, 1);
  const char *p = t->at;
  while (p < t->end && (*p == 'i' || *p == 'm' || *p == 'x' || *p == '-')) p++;
  if (p == t->end || (*p != ':' && *p != ')')) return HP_OK; /* a look-around, a name, ... */
  for (; t->at < p; t->at++) {
    if (*t->at == 'x') return refuse_pattern(t, "extended syntax (?x)");
    str_add_char(t->out, *t->at == 'm' ? 's' : *t->at);
  }
  return HP_OK;
}

/* {n}, {n,}, {,m}, {n,m} at t->at: its length, or 0 when the brace is an ordinary character. */
static size_t measure_interval(const translator *t) {
  const char *p = t->at + 1;
  size_t digits = 0;
  for (; p < t->end && *p >= '0' && *p <= '9'; p++) digits++;
  if (p < t->end && *p == ',')
    for (p++; p < t->end && *p >= '0' && *p <= '9'; p++) digits++;
  return digits && p < t->end && *p == '}' ? (size_t)(p + 1 - t->at) : 0;
}

static void insert_text(str *s, size_t at, const char *text) {
  size_t n = strlen(text);
  str_add(s, text);
  if (s->failed) return;
  memmove(s->at + at + n, s->at + at, s->len - n - at);
  memcpy(s->at + at, text, n);
}

/* Counts before the last atom, which is to be repeated at least so many times. */
static void count_before(translator *t, size_t times) {
  char text[16];
  int k = 0;
  while (times >> (k + 1)) k++;
  if (!t->counted || (!t->loops && times <= MANY_REPEATS)) return;
  snprintf(text, sizeof text, "(?C%d)",
           times > MANY_REPEATS ? TOK_COUNT_TIMES + k : TOK_COUNT_BEFORE);
  insert_text(t->out, t->atom, text);
  t->atom += strlen(text);
}

static bool is_fixed(const char *interval_text, size_t n) { return !memchr(interval_text, ',', n); }

/* In Ruby + after an interval repeats it again (it is not possessive), and ? after {n} makes it
 * optional. */
static void translate_quantifier(translator *t, size_t n) {
  char after = t->at + n < t->end ? t->at[n] : 0;
  bool again = after == '+' || (after == '?' && is_fixed(t->at, n));
  size_t times = strtoul(t->at + 1, NULL, 10);
  count_before(t, times < UINT16_MAX ? times : UINT16_MAX);
  if (again) insert_text(t->out, t->atom, "(?:");
  if (t->at[1] == ',') {
    str_add(t->out, "{0");
    t->at++;
    n--;
  }
  copy_bytes(t, n);
  if (again) {
    str_printf(t->out, ")%c", after);
    t->at++;
  } else if (after == '?') {
    copy_bytes(t, 1);
  }
  count_group(t, TOK_COUNT_AFTER);
}

/* *, + and ?, greedy, lazy or possessive. */
static void translate_repeat(translator *t) {
  bool optional = *t->at == '?';
  t->optional += optional;
  if (!optional) count_before(t, 0);
  copy_bytes(t, 1);
  if (is_looking_at(t, "?") || is_looking_at(t, "+")) copy_bytes(t, 1);
  if (!optional || t->optional > FREE_CHOICES) count_group(t, TOK_COUNT_AFTER);
}

/* Counts behind an item, or behind what repeats it. */
static void count_behind(translator *t) {
  if (!is_quantifier(t)) count_group(t, TOK_COUNT_AFTER);
  else t->optional += FREE_CHOICES;
}

/* Every way through alternatives, and every return from a call, may lead to all that follows. */
static void close_group(translator *t) {
  bool choice = false;
  if (t->groups) {
    t->atom = t->group[--t->groups].at;
    choice = t->group[t->groups].choice;
  }
  copy_bytes(t, 1);
  if (choice) count_behind(t);
}

static void translate_alternative(translator *t) {
  if (t->groups) t->group[t->groups - 1].choice = true;
  copy_bytes(t, 1);
}

/* A call or a reference is counted before it. */
static void count_escape(const translator *t) {
  char c = t->end - t->at > 1 ? t->at[1] : 0;
  if (is_looking_at(t, "\\g<")) count_group(t, TOK_COUNT_AFTER);
  else if (c == 'k' || c == 'g' || (c >= '1' && c <= '9')) count_group(t, TOK_COUNT_REFERENCE);
}

static hp_status translate_atom(translator *t) {
  char c = *t->at;
  if (c == '\\') count_escape(t);
  bool unbounded = is_looking_at(t, "\\X") || is_looking_at(t, "\\g<");
  t->atom = t->out->len;
  if (c == '\\') HP_TRY(translate_escape(t, false));
  else if (c == '[') HP_TRY(translate_class(t));
  else copy_bytes(t, utf8_len(t->at));
  if (unbounded) count_behind(t);
  return HP_OK;
}

static hp_status translate_pattern(translator *t) {
  while (t->at < t->end) {
    char c = *t->at;
    size_t n;
    if (c == ')') close_group(t);
    else if (c == '{' && (n = measure_interval(t))) translate_quantifier(t, n);
    else if (c == '*' || c == '+' || c == '?') translate_repeat(t);
    else if (c == '|') translate_alternative(t);
    else if (c == '(') HP_TRY(open_group(t));
    else HP_TRY(translate_atom(t));
  }
  return str_status(t->out);
}

hp_status tok_regex_translate(const char *pattern, size_t n, const char *where, bool counted,
                              str *out) {
  translator t = {.at = pattern, .end = pattern + n, .start = pattern, .where = where, .out = out};
  t.counted = counted;
  t.loops = counted && has_loops(pattern, n);
  str_add(out, ""); /* never NULL, also for an empty pattern */
  return translate_pattern(&t);
}
