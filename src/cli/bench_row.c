/* Results of `hyper bench`: as JSON lines, and with units for people. */
#include "base/units.h"
#include "cli/bench.h"

#include <stdio.h>
#include <string.h>

enum { LABEL = 20, FIGURE = 14 }; /* least widths */

static void begin_row(bench_row *r, const bench_args *a, const char *what, bool in_table) {
  *r = (bench_row){.json = a->m.json, .in_table = in_table && !a->m.json, .table = a->table};
  r->w = (json_writer){.out = &r->text};
  if (r->json) {
    json_open_map(&r->w);
    bench_row_text(r, "bench", what);
  } else {
    str_printf(in_table ? &r->head : &r->text, in_table ? "%s" : "%s\n", what);
  }
}
void bench_row_begin(bench_row *r, const bench_args *a, const char *what) {
  begin_row(r, a, what, false);
}
void bench_line_begin(bench_row *r, const bench_args *a, const char *what) {
  begin_row(r, a, what, true);
}

/* --- units ------------------------------------------------------------------------------------ */

static bool ends_with(const char *key, const char *end) {
  size_t n = strlen(key), m = strlen(end);
  return n >= m && !strcmp(key + n - m, end);
}

static void put_percent(str *s, double x) { str_printf(s, "%.1f %%", 100 * x); }
static void put_times(str *s, double x) { str_printf(s, "%.3f x", x); }
static void put_flop(str *s, double x) { units_add_rate(s, x, "FLOP"); }

/* The same unit in every line, so that figures below one another compare: four digits of it. */
static void put_fixed(str *s, double x, const char *unit) {
  str_printf(s, "%.*f %s", x >= 1000 ? 0 : x >= 100 ? 1 : x >= 10 ? 2 : 3, x, unit);
}
static void put_seconds(str *s, double x) { put_fixed(s, x * 1e3, "ms"); }
static void put_microseconds(str *s, double x) { put_fixed(s, x, "us"); }
static void put_flops(str *s, double x) { put_fixed(s, x * 1e-9, "GFLOP/s"); }
static void put_bytes_per_s(str *s, double x) { put_fixed(s, x * 1e-9, "GB/s"); }
static void put_tokens_per_s(str *s, double x) { put_fixed(s, x, "tokens/s"); }

/* What a key's end, or its begin, says of its unit; the first row that fits counts.  `shown` stands
 * for the end in the label. */
static const struct {
  const char *end, *begin, *shown;
  void (*put)(str *, double);
} units[] = {{"tokens_per_s", NULL, "speed", put_tokens_per_s},
             {"read_bytes_per_s", NULL, "memory read", put_bytes_per_s},
             {"limit_bytes_per_s", NULL, "limit", put_bytes_per_s},
             {"bytes_per_s", NULL, "moved", put_bytes_per_s},
             {"matmul_s", NULL, "limit, products", put_seconds},
             {"bytes_s", NULL, "limit, bytes", put_seconds},
             {"_share", NULL, ", share", put_percent},
             {NULL, "of_", NULL, put_percent},
             {NULL, "over_", NULL, put_times},
             {"_s", NULL, "", put_seconds},
             {"_us", NULL, "", put_microseconds},
             {"_flops", NULL, "", put_flops},
             {"flops", NULL, "work", put_flop},
             {"received_bytes", NULL, "received", units_add_bytes},
             {"_bytes", NULL, " memory", units_add_bytes},
             {"bytes", NULL, "bytes", units_add_bytes},
             {"parameters", NULL, "parameters", units_add_count}};
enum { UNITS = sizeof units / sizeof *units };

static int find_unit(const char *key) {
  for (int i = 0; i < UNITS; i++)
    if (units[i].end ? ends_with(key, units[i].end)
                     : !strncmp(key, units[i].begin, strlen(units[i].begin)))
      return i;
  return -1;
}

/* The key in words, without its unit. */
static void put_label(const char *key, int unit, str *out) {
  size_t n = strlen(key);
  if (unit >= 0 && units[unit].end) n -= strlen(units[unit].end);
  for (size_t i = 0; i < n; i++) str_add_char(out, key[i] == '_' ? ' ' : key[i]);
  if (unit >= 0 && units[unit].shown) str_add(out, units[unit].shown);
}

/* --- for people ------------------------------------------------------------------------------- */

static bool is_machine(const char *key) {
  return !strcmp(key, "machine") || !strcmp(key, "isa") || !strcmp(key, "threads");
}

/* A figure below its label, or behind it. */
static void put_pair(bench_row *r, const char *key, int unit, const char *value, bool number) {
  str label = {0};
  put_label(key, unit, &label);
  if (!label.at || label.failed) r->text.failed = true;
  else if (r->in_table && is_machine(key)) {
    str_printf(&r->head, ", %s %s", label.at, value);
  } else if (r->in_table) {
    int width = (int)strlen(label.at) > FIGURE ? (int)strlen(label.at) : FIGURE;
    str_printf(&r->columns, number ? "  %*s" : "  %-*s", width, label.at);
    str_printf(&r->text, number ? "  %*s" : "  %-*s", width, value);
  } else {
    str_printf(&r->text, "  %-*s ", LABEL, label.at);
    str_printf(&r->text, "%*s\n", number ? FIGURE : 0, value);
  }
  str_free(&label);
}

/* --- figures ---------------------------------------------------------------------------------- */

static void put_figure(bench_row *r, const char *key, double x, bool whole) {
  str value = {0};
  int unit = find_unit(key);
  if (unit >= 0) units[unit].put(&value, x);
  else str_printf(&value, whole ? "%.0f" : "%.6g", x);
  if (value.failed) r->text.failed = true;
  else put_pair(r, key, unit, value.at, true);
  str_free(&value);
}

void bench_row_num(bench_row *r, const char *key, double x) {
  if (!r->json) {
    put_figure(r, key, x, false);
    return;
  }
  json_put_key(&r->w, key);
  json_put_double(&r->w, x);
}
void bench_row_int(bench_row *r, const char *key, int64_t x) {
  if (!r->json) {
    put_figure(r, key, (double)x, true);
    return;
  }
  json_put_key(&r->w, key);
  json_put_int(&r->w, x);
}
void bench_row_text(bench_row *r, const char *key, const char *x) {
  if (!r->json) {
    put_pair(r, key, -1, x, false);
    return;
  }
  json_put_key(&r->w, key);
  json_put_string(&r->w, x);
}

/* The head of a table, when it is another than that of the line before. */
static void print_head(bench_row *r) {
  str_printf(&r->head, "\n%s", r->columns.at ? r->columns.at : "");
  if (!r->head.at || (r->table->head.at && !strcmp(r->table->head.at, r->head.at))) return;
  printf("%s%s\n", r->table->head.len ? "\n" : "", r->head.at);
  str_free(&r->table->head);
  r->table->head = r->head;
  r->head = (str){0};
}

hp_status bench_row_end(bench_row *r) {
  if (r->json) json_close(&r->w);
  hp_status st = str_status(&r->text);
  if (!st) st = str_status(&r->head);
  if (!st) st = str_status(&r->columns);
  if (!st && r->in_table) print_head(r);
  if (!st) puts(r->text.at);
  str_free(&r->text);
  str_free(&r->head);
  str_free(&r->columns);
  fflush(stdout);
  return st;
}
