#include "base/str.h"

#include "base/escape.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool reserve(str *s, size_t more) {
  size_t need;
  if (s->failed) return false;
  if (!size_add(s->len, more, &need) || !size_add(need, 1, &need)) need = SIZE_MAX;
  if (need <= s->cap) return true;
  size_t want = s->cap ? s->cap : 64;
  while (want < need && want <= SIZE_MAX / 2) want *= 2;
  char *p = mem_realloc(s->at, want < need ? need : want, 1);
  if (!p) {
    s->failed = true;
    return false;
  }
  s->at = p;
  s->cap = want < need ? need : want;
  return true;
}

void str_add_n(str *s, const char *bytes, size_t n) {
  if (!reserve(s, n)) return;
  if (n) memcpy(s->at + s->len, bytes, n);
  s->len += n;
  s->at[s->len] = 0;
}

void str_add(str *s, const char *text) { str_add_n(s, text, strlen(text)); }

void str_add_char(str *s, char c) { str_add_n(s, &c, 1); }

void str_add_xml(str *s, const char *text) {
  for (size_t i = 0, n = strlen(text), len; i < n;) {
    char one[ESCAPE_MAX];
    i += escape_next(text + i, n - i, true, one, &len);
    if (*one == '&') str_add(s, "&amp;");
    else if (*one == '<') str_add(s, "&lt;");
    else if (*one == '>') str_add(s, "&gt;");
    else if (*one == '"') str_add(s, "&quot;");
    else str_add_n(s, one, len);
  }
}

void str_vprintf(str *s, const char *fmt, va_list ap) {
  va_list again;
  va_copy(again, ap);
  int n = vsnprintf(NULL, 0, fmt, ap);
  if (n >= 0 && reserve(s, (size_t)n)) {
    vsnprintf(s->at + s->len, (size_t)n + 1, fmt, again);
    s->len += (size_t)n;
  }
  va_end(again);
}

void str_printf(str *s, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  str_vprintf(s, fmt, ap);
  va_end(ap);
}

/* Python's repr form: shortest digits, ".0" on whole numbers, exponent from 1e16 and 1e-5 on. */
static void add_shortest(str *s, double x, int max_digits, bool single) {
  if (isnan(x) || isinf(x)) {
    str_add(s, isnan(x) ? "nan" : x > 0 ? "inf" : "-inf");
    return;
  }
  char buf[40];
  int digits = 1;
  for (; digits <= max_digits; digits++) {
    snprintf(buf, sizeof buf, "%.*e", digits - 1, x);
    if (single ? strtof(buf, NULL) == (float)x : strtod(buf, NULL) == x) break;
  }
  int exponent = (int)strtol(strchr(buf, 'e') + 1, NULL, 10);
  if (exponent < -4 || exponent >= 16) {
    str_printf(s, "%.*e", digits - 1 < max_digits ? digits - 1 : max_digits - 1, x);
    return;
  }
  int decimals = digits - 1 - exponent;
  str_printf(s, "%.*f", decimals > 1 ? decimals : 1, x);
}

void str_add_double(str *s, double x) { add_shortest(s, x, 17, false); }
void str_add_float(str *s, float x) { add_shortest(s, (double)x, 9, true); }

void str_clear(str *s) {
  s->len = 0;
  s->failed = false;
  if (s->at) s->at[0] = 0;
}

void str_free(str *s) {
  mem_free(s->at);
  *s = (str){0};
}

hp_status str_status(const str *s) { return s->failed ? HP_ERR_OOM : HP_OK; }

char *str_take(str *s) {
  str_add_n(s, "", 0); /* an empty text is "" and not NULL */
  if (s->failed) {
    str_free(s);
    return NULL;
  }
  char *p = s->at;
  *s = (str){0};
  return p;
}

enum { WORD_MAX = 64 };

int str_distance(const char *a, const char *b, int limit) {
  size_t n = strlen(a), m = strlen(b);
  if (n > WORD_MAX || m > WORD_MAX) return limit;
  int d[3][WORD_MAX + 1];
  int *before = d[0], *prev = d[1], *row = d[2];
  int least = 0, least_before = limit; /* of the last two rows */
  for (size_t j = 0; j <= m; j++) prev[j] = (int)j;
  for (size_t i = 1; i <= n; i++) {
    if (least >= limit && least_before + 1 >= limit) return limit;
    least_before = least;
    row[0] = least = (int)i;
    for (size_t j = 1; j <= m; j++) {
      int best = prev[j - 1] + (a[i - 1] != b[j - 1]);
      if (prev[j] + 1 < best) best = prev[j] + 1;
      if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
          before[j - 2] + 1 < best)
        best = before[j - 2] + 1;
      row[j] = best;
      if (best < least) least = best;
    }
    int *t = before;
    before = prev;
    prev = row;
    row = t;
  }
  return prev[m] < limit ? prev[m] : limit;
}

const char *str_nearest(const char *s, const char *const *candidate, size_t n) {
  const char *best = NULL;
  int limit = (int)strlen(s) / 3 + 1;
  for (size_t i = 0; i < n; i++) {
    int d = str_distance(s, candidate[i], limit + 1);
    if (d <= limit) {
      limit = d - 1;
      best = candidate[i];
    }
  }
  return best;
}

bool str_to_i64(const char *s, int64_t *out) {
  char *end;
  if (!*s) return false;
  errno = 0;
  long long v = strtoll(s, &end, 10);
  if (errno || *end) return false;
  *out = v;
  return true;
}

bool str_to_f64(const char *s, double *out) {
  char *end;
  if (!*s) return false;
  double v = strtod(s, &end);
  if (*end) return false;
  *out = v;
  return true;
}
