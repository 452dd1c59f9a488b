/* The table of where time goes, as text and as JSON. */
#include "rt/op_times.h"

#include "base/units.h"
#include "rt/explain_memory.h"

#include <string.h>

typedef struct {
  double run_s, limit_s, predicted_s; /* without overlapped work */
} sums;

static sums sum_of(const hp_op_time *row, int n) {
  sums s = {0};
  for (int i = 0; i < n; i++) {
    if (row[i].overlapped) continue;
    s.run_s += row[i].seconds;
    s.limit_s += row[i].limit_s;
    s.predicted_s += row[i].predicted_s;
  }
  return s;
}

static double rate(double work, double seconds) { return seconds > 0 ? work / seconds : 0; }
/* --- text ------------------------------------------------------------------------------------- */

/* The time of a run if there was one, else the limit. */
static double time_of(const hp_op_time *r) { return r->seconds > 0 ? r->seconds : r->limit_s; }
static double total_of(const sums *s) { return s->run_s > 0 ? s->run_s : s->limit_s; }

static void put_gap(const hp_op_time *r, const sums *s, str *out) {
  (void)s;
  units_put_seconds(out, 10, r->gap_s);
  str_add_char(out, ' ');
}
static void put_time(const hp_op_time *r, const sums *s, str *out) {
  (void)s;
  units_put_seconds(out, 10, time_of(r));
  str_add_char(out, ' ');
}
static void put_predicted(const hp_op_time *r, const sums *s, str *out) {
  (void)s;
  units_put_seconds(out, 10, r->predicted_s);
  str_add_char(out, ' ');
}
static void put_share(const hp_op_time *r, const sums *s, str *out) {
  if (r->overlapped) str_add(out, "overlapped ");
  else str_printf(out, "%9.1f%% ", 100 * rate(time_of(r), total_of(s)));
}
static void put_of_limit(const hp_op_time *r, const sums *s, str *out) {
  (void)s;
  str_printf(out, "%7.1f%% ", 100 * rate(r->limit_s, time_of(r)));
}
static void put_limit(const hp_op_time *r, const sums *s, str *out) {
  (void)s;
  str_printf(out, "%-6s", r->limit);
}
static void put_flops(const hp_op_time *r, const sums *s, str *out) {
  (void)s;
  str_printf(out, "%8.1f ", rate(r->flops, time_of(r)) * 1e-9);
}
static void put_bytes(const hp_op_time *r, const sums *s, str *out) {
  (void)s;
  str_printf(out, "%7.1f ", rate(r->bytes, time_of(r)) * 1e-9);
}
static void put_calls(const hp_op_time *r, const sums *s, str *out) {
  (void)s;
  str_printf(out, "%6d  ", r->count);
}
static void put_kind(const hp_op_time *r, const sums *s, str *out) {
  (void)s;
  str_printf(out, "%-30s ", r->kind);
}
static void put_shape(const hp_op_time *r, const sums *s, str *out) {
  (void)s;
  str_printf(out, "%-28s", r->shape);
}
static void put_where(const hp_op_time *r, const sums *s, str *out) {
  (void)s;
  if (*r->engine) str_printf(out, " %s", r->engine);
  if (*r->place) str_printf(out, " %s", r->place);
}

/* A column is omitted if all its numbers are 0 or all are 100 %. */
static const struct {
  const char *head, *head_at_limits; /* head of the column before a run; NULL: the same */
  void (*put)(const hp_op_time *, const sums *, str *);
  bool number;
} columns[] = {{"       gap ", NULL, put_gap, true},
               {"      time ", "     limit ", put_time, false},
               {" predicted ", NULL, put_predicted, true},
               {"    share  ", NULL, put_share, true},
               {"of limit ", NULL, put_of_limit, true},
               {"by    ", NULL, put_limit, false},
               {" GFLOP/s ", NULL, put_flops, true},
               {"   GB/s ", NULL, put_bytes, true},
               {" calls  ", NULL, put_calls, false},
               {"kind                           ", NULL, put_kind, false},
               {"shape                       ", NULL, put_shape, false},
               {" where", NULL, put_where, false}};
enum { COLUMNS = sizeof columns / sizeof *columns };

static bool says_nothing(const char *cell) {
  cell += strspn(cell, " ");
  size_t n = strcspn(cell, " %");
  return strspn(cell, "0.") >= n || !strncmp(cell, "100.0%", 6);
}

static void find_shown(const hp_op_time *row, int n, const sums *s, bool shown[COLUMNS], str *out) {
  str cell = {0};
  for (int c = 0; c < COLUMNS; c++) {
    shown[c] = !columns[c].number;
    for (int i = 0; i < n && !shown[c]; i++) {
      cell.len = 0; /* keeps a failure */
      columns[c].put(&row[i], s, &cell);
      shown[c] = cell.at && !says_nothing(cell.at);
    }
  }
  out->failed |= cell.failed;
  str_free(&cell);
}

static void print_head(const sums *s, const hp_limits *l, str *out) {
  if (s->run_s > 0) {
    str_add(out, "a run takes ");
    units_add_seconds(out, s->run_s);
    str_add(out, "; at the limits of a device it would take ");
    units_add_seconds(out, s->limit_s);
    str_printf(out, ": %.1f %%\n", 100 * rate(s->limit_s, s->run_s));
    if (s->predicted_s > 0) { /* not known of a run of an older version */
      str_add(out, "predicted were ");
      units_add_seconds(out, s->predicted_s);
      str_add_char(out, '\n');
    }
  } else {
    str_add(out, "at the limits of a device a run takes ");
    units_add_seconds(out, s->limit_s);
    str_add(out, "; predicted are ");
    units_add_seconds(out, s->predicted_s);
    str_add_char(out, '\n');
  }
  str_printf(out, "limits of a device: %.1f GFLOP/s f32, %.1f GFLOP/s bf16, %.1f GB/s\n\n",
             l->flops * 1e-9, l->bf16_flops * 1e-9, l->bytes * 1e-9);
}

static void print_row(const hp_op_time *r, const sums *s, const bool *shown, str *out) {
  for (int c = 0; c < COLUMNS; c++)
    if (shown[c]) columns[c].put(r, s, out);
  while (out->len && out->at[out->len - 1] == ' ') out->at[--out->len] = 0;
  str_add_char(out, '\n');
}

void op_times_print(const hp_op_time *row, int n, const hp_limits *l, str *out) {
  sums s = sum_of(row, n);
  bool shown[COLUMNS];
  int first = s.run_s > 0 && n > HP_WIDEST_GAPS ? HP_WIDEST_GAPS : 0;
  if (l) print_head(&s, l, out);
  find_shown(row, n, &s, shown, out);
  if (first) str_printf(out, "the %d widest gaps:\n", HP_WIDEST_GAPS);
  for (int c = 0; c < COLUMNS; c++)
    if (shown[c])
      str_add(out, s.run_s > 0 || !columns[c].head_at_limits ? columns[c].head
                                                             : columns[c].head_at_limits);
  str_add_char(out, '\n');
  for (int i = 0; i < n; i++) {
    if (first && i == first) str_add(out, "all others:\n");
    print_row(&row[i], &s, shown, out);
  }
}

/* --- JSON ------------------------------------------------------------------------------------- */

static void put_row(json_writer *w, const hp_op_time *r) {
  json_open_map(w);
  json_key_string(w, "kind", r->kind);
  json_key_string(w, "shape", r->shape);
  json_key_string(w, "where", r->place);
  json_key_string(w, "engine", r->engine);
  json_key_int(w, "calls", r->count);
  json_key_bool(w, "beside", r->overlapped);
  json_key_double(w, "time_s", r->seconds);
  json_key_double(w, "limit_s", r->limit_s);
  json_key_double(w, "gap_s", r->gap_s);
  json_key_double(w, "predicted_s", r->predicted_s);
  json_key_string(w, "limited_by", r->limit);
  json_key_double(w, "work_flop", r->flops);
  json_key_double(w, "moved_bytes", r->bytes);
  json_key_double(w, "achieved_flop_per_s", rate(r->flops, r->seconds));
  json_key_double(w, "achieved_bytes_per_s", rate(r->bytes, r->seconds));
  json_close(w);
}

void op_times_print_json(const hp_op_time *row, int n, const hp_limits *l, const hp_memory *m,
                         str *out) {
  json_writer w = {.out = out};
  sums s = sum_of(row, n);
  json_open_map(&w);
  json_key_double(&w, "run_s", s.run_s);
  json_key_double(&w, "limit_s", s.limit_s);
  json_key_double(&w, "predicted_s", s.predicted_s);
  json_key_double(&w, "peak_flop_per_s", l->flops);
  json_key_double(&w, "peak_bf16_flop_per_s", l->bf16_flops);
  json_key_double(&w, "peak_bytes_per_s", l->bytes);
  json_put_key(&w, "kinds");
  json_open_list(&w);
  for (int i = 0; i < n; i++) put_row(&w, &row[i]);
  json_close(&w);
  if (m) {
    json_put_key(&w, "memory");
    json_open_map(&w);
    memory_put(&w, m);
    json_close(&w);
  }
  json_close(&w);
  str_add_char(out, '\n');
}
