/* What plain scalars mean: the resolver of YAML 1.1 as PyYAML has it, with OmegaConf's floats.
 *
 * Matching is separate from conversion, as it is there: first the form decides the type, then the
 * underscores are dropped and the value is computed. */
#include "base/yaml.h"

#include "base/str.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool digit(char c) { return c >= '0' && c <= '9'; }

/* Length of the longest run of the given characters. */
static size_t run(const char *s, const char *set) { return strspn(s, set); }

#define DIGITS "0123456789"

static const char *skip_sign(const char *s) { return *s == '-' || *s == '+' ? s + 1 : s; }

/* [0-9][0-9_]*, at most one underscore between digits when strict; NULL when it is not there. */
static const char *skip_digits(const char *s, bool *strict) {
  if (!digit(*s)) return NULL;
  size_t n = run(s, DIGITS "_");
  *strict = s[n - 1] != '_';
  for (size_t i = 1; i < n; i++)
    if (s[i] == '_' && s[i - 1] == '_') *strict = false;
  return s + n;
}

/* (:[0-5]?[0-9])+ ; NULL when it is not there. */
static const char *skip_sixties(const char *s) {
  if (*s != ':') return NULL;
  while (*s == ':') {
    if (!digit(s[1])) return NULL;
    bool two = digit(s[2]);
    if (two && s[1] > '5') return NULL;
    s += two ? 3 : 2;
  }
  return s;
}

/* [eE][-+]?[0-9]+ to the end of the text. */
static bool is_exponent(const char *s, bool sign_needed) {
  if (*s != 'e' && *s != 'E') return false;
  const char *p = skip_sign(s + 1);
  if (sign_needed && p == s + 1) return false;
  return *p && !p[run(p, DIGITS)];
}

static bool is_float(const char *s) {
  const char *p = skip_sign(s);
  bool strict = false;
  if (!strcmp(p, ".inf") || !strcmp(p, ".Inf") || !strcmp(p, ".INF")) return true;
  if (!strcmp(s, ".nan") || !strcmp(s, ".NaN") || !strcmp(s, ".NAN")) return true;
  if (*s == '.') { /* no sign here: -.5 is a string */
    p = skip_digits(s + 1, &strict);
    return p && (!*p || is_exponent(p, true));
  }
  const char *end = skip_digits(p, &strict);
  if (!end) return false;
  if (*end == '.') {
    end += 1 + run(end + 1, DIGITS "_");
    return !*end || is_exponent(end, !strict);
  }
  if (*end == ':') {
    end = skip_sixties(end);
    return end && *end == '.' && !end[1 + run(end + 1, DIGITS "_")];
  }
  return strict && is_exponent(end, false);
}

static bool is_int(const char *s) {
  const char *p = skip_sign(s);
  if (p[0] == '0' && p[1] == 'b') return p[2] && !p[2 + run(p + 2, "01_")];
  if (p[0] == '0' && p[1] == 'x') return p[2] && !p[2 + run(p + 2, DIGITS "abcdefABCDEF_")];
  if (p[0] == '0') return !p[1 + run(p + 1, "01234567_")];
  if (!digit(*p)) return false;
  const char *end = p + run(p, DIGITS "_");
  if (*end == ':') end = skip_sixties(end);
  return end && !*end;
}

enum { NUMBER_MAX = 400 };

/* The text without underscores and sign, in lower case; false when it is too long for a number. */
static bool clean(const char *s, char out[NUMBER_MAX], double *sign) {
  size_t n = 0;
  *sign = *s == '-' ? -1 : 1;
  for (s = skip_sign(s); *s; s++) {
    if (*s == '_') continue;
    if (n + 1 == NUMBER_MAX) return false;
    out[n++] = *s >= 'A' && *s <= 'Z' ? (char)(*s | 32) : *s;
  }
  out[n] = 0;
  return true;
}

bool yaml_to_float(const char *text, double *out) {
  char s[NUMBER_MAX];
  double sign, value = 0;
  if ((!is_float(text) && !is_int(text)) || !clean(text, s, &sign)) return false;
  if (!strcmp(s, ".inf") || !strcmp(s, ".nan")) {
    *out = s[1] == 'i' ? sign * (double)INFINITY : (double)NAN;
    return true;
  }
  /* base 60 from the left; each part is exact, as are the sums a person would write */
  char *part = s;
  for (char *colon; (colon = strchr(part, ':')); part = colon + 1) {
    *colon = 0;
    value = (value + strtod(part, NULL)) * 60;
  }
  *out = sign * (value + strtod(part, NULL));
  return true;
}

/* Digits of a base, each below it, into *out; false when they do not fit 63 bits, or one more for
 * the lowest integer. */
static bool add_digits(const char *s, unsigned base, uint64_t *out) {
  uint64_t limit = (uint64_t)1 << 63;
  for (; *s; s++) {
    unsigned d = digit(*s) ? (unsigned)(*s - '0') : (unsigned)(*s - 'a') + 10;
    if (*out > limit / base || (*out *= base) > limit - d) return false;
    *out += d;
  }
  return true;
}

static bool to_int(const char *text, int64_t *out, const char **why) {
  char s[NUMBER_MAX];
  double sign;
  uint64_t value = 0;
  *why = "this integer does not fit in 64 bits; quote it if it is meant as text";
  if (!clean(text, s, &sign)) return false;
  if (s[0] == '0' && (s[1] == 'b' || s[1] == 'x')) {
    if (!s[2]) {
      *why = "this number has no digits; quote it if it is meant as text";
      return false;
    }
    if (!add_digits(s + 2, s[1] == 'b' ? 2 : 16, &value)) return false;
  } else if (s[0] == '0') {
    if (!add_digits(s, 8, &value)) return false;
  } else {
    char *part = s;
    for (char *colon; (colon = strchr(part, ':')); part = colon + 1) {
      uint64_t piece = 0;
      *colon = 0;
      if (!add_digits(part, 10, &piece)) return false;
      if (__builtin_add_overflow(value, piece, &value) ||
          __builtin_mul_overflow(value, 60u, &value))
        return false;
    }
    uint64_t last = 0;
    if (!add_digits(part, 10, &last) || __builtin_add_overflow(value, last, &value)) return false;
  }
  if (value > (uint64_t)INT64_MAX + (sign < 0)) return false;
  *out = sign < 0 ? (int64_t)(0 - value) : (int64_t)value;
  return true;
}

static bool is_word(const char *s, const char *const *word) {
  for (; *word; word++)
    if (!strcmp(s, *word)) return true;
  return false;
}

bool yaml_resolve(const char *text, tree_node *n, const char **why) {
  static const char *const no_word[] = {"", "~", "null", "Null", "NULL", NULL};
  static const char *const true_word[] = {"yes",  "Yes", "YES", "true", "True",
                                          "TRUE", "on",  "On",  "ON",   NULL};
  static const char *const false_word[] = {"no",    "No",  "NO",  "false", "False",
                                           "FALSE", "off", "Off", "OFF",   NULL};
  n->kind = TREE_STRING;
  if (is_word(text, no_word)) {
    n->kind = TREE_NULL;
  } else if (is_word(text, true_word) || is_word(text, false_word)) {
    n->kind = TREE_BOOL;
    n->boolean = is_word(text, true_word);
  } else if (is_float(text)) {
    n->kind = TREE_FLOAT;
    *why = "this number has too many digits; quote it if it is meant as text";
    return yaml_to_float(text, &n->number);
  } else if (is_int(text)) {
    n->kind = TREE_INT;
    return to_int(text, &n->integer, why);
  } else if (!strcmp(text, "=") || !strcmp(text, "<<")) {
    *why = "this sign has a meaning of its own in YAML; put it in quotes";
    return false;
  }
  return true;
}
