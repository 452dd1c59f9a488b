#include "base/units.h"

#include <math.h>
#include <stdio.h>

static int find_unit(double *x, double base, int units) {
  int u = 0;
  while (fabs(*x) >= base && u + 1 < units) {
    *x /= base;
    u++;
  }
  return u;
}

static void add_scaled(str *s, double x, double base, const char *const *unit, int units) {
  int u = find_unit(&x, base, units);
  str_printf(s, x == floor(x) && fabs(x) < base ? "%.0f" : fabs(x) < 10 ? "%.2f" : "%.1f", x);
  str_printf(s, "%s%s", *unit[u] ? " " : "", unit[u]);
}

void units_add_bytes(str *s, double x) {
  static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  add_scaled(s, x, 1024, unit, 6);
}

void units_add_count(str *s, double x) {
  static const char *const unit[] = {"", "k", "M", "G", "T", "P"};
  add_scaled(s, x, 1000, unit, 6);
}

static void add_digits(str *s, double x) {
  double size = fabs(x);
  str_printf(s, "%.*f", size == 0 || size >= 100 ? 1 : size >= 10 ? 2 : 3, x);
}

void units_add_seconds(str *s, double x) {
  static const char *const unit[] = {"s", "ms", "us", "ns"};
  int u = 0;
  while (x != 0 && fabs(x) < 1 && u < 3) {
    x *= 1000;
    u++;
  }
  add_digits(s, x);
  str_printf(s, " %s", unit[u]);
}

void units_add_rate(str *s, double x, const char *what) {
  static const char *const unit[] = {"", "k", "M", "G", "T", "P"};
  int u = find_unit(&x, 1000, 6);
  str_printf(s, "%.1f %s%s", x, unit[u], what);
}

/* Moves what was appended since `from` to the right. */
static void align_right(str *s, size_t from, int width) {
  char text[64];
  if (s->failed) return;
  snprintf(text, sizeof text, "%s", s->at + from);
  s->len = from;
  s->at[from] = 0;
  str_printf(s, "%*s", width, text);
}

void units_put_bytes(str *s, int width, double x) {
  size_t from = s->len;
  units_add_bytes(s, x);
  align_right(s, from, width);
}

void units_put_seconds(str *s, int width, double x) {
  size_t from = s->len;
  units_add_seconds(s, x);
  align_right(s, from, width);
}
