/* The table of where time goes, as text and as JSON. */
#include "rt/op_times.h"

#include "base/json.h"

typedef struct {
  double run_s, limit_s; /* without what goes beside computation */
} sums;

static sums sum_of(const hp_op_time *row, int n) {
  sums s = {0};
  for (int i = 0; i < n; i++) {
    if (row[i].beside) continue;
    s.run_s += row[i].seconds;
    s.limit_s += row[i].limit_s;
  }
  return s;
}

static double rate(double work, double seconds) { return seconds > 0 ? work / seconds : 0; }
/* --- text ------------------------------------------------------------------------------------- */

static void print_head(const sums *s, const hp_limits *l, str *out) {
  if (s->run_s > 0)
    str_printf(out,
               "a run takes %.6f s; at the limits of this machine it would take %.6f s: %.1f %%\n",
               s->run_s, s->limit_s, 100 * rate(s->limit_s, s->run_s));
  else str_printf(out, "at the limits of this machine a run takes %.6f s\n", s->limit_s);
  str_printf(out, "limits: %.1f GFLOP/s f32, %.1f GFLOP/s bf16, %.1f GB/s\n\n", l->flops * 1e-9,
             l->bf16_flops * 1e-9, l->bytes * 1e-9);
}

static void print_row(const hp_op_time *r, const sums *s, str *out) {
  double t = r->seconds > 0 ? r->seconds : r->limit_s; /* before a run: at its limit */
  double total = s->run_s > 0 ? s->run_s : s->limit_s;
  str_printf(out, "%10.6f %10.6f ", r->gap_s, t);
  if (r->beside) str_add(out, " beside ");
  else str_printf(out, "%6.1f%% ", 100 * rate(t, total));
  str_printf(out, "%7.1f%% %-6s", 100 * rate(r->limit_s, t), r->limit);
  str_printf(out, "%8.1f %7.1f %6d  %-22s %-28s", rate(r->flops, t) * 1e-9,
             rate(r->bytes, t) * 1e-9, r->count, r->kind, r->shape);
  if (*r->engine) str_printf(out, " %s", r->engine);
  if (*r->place) str_printf(out, " %s", r->place);
  str_add_char(out, '\n');
}

void op_times_print(const hp_op_time *row, int n, const hp_limits *l, str *out) {
  static const char head[] = "    gap s     time s  share of limit by     GFLOP/s    GB/s  calls  "
                             "kind                   shape                        where\n";
  sums s = sum_of(row, n);
  int first = s.run_s > 0 && n > HP_WIDEST_GAPS ? HP_WIDEST_GAPS : 0;
  print_head(&s, l, out);
  if (first) str_printf(out, "the %d widest gaps:\n", HP_WIDEST_GAPS);
  str_add(out, head);
  for (int i = 0; i < n; i++) {
    if (first && i == first) str_add(out, "all others:\n");
    print_row(&row[i], &s, out);
  }
}

/* --- JSON ------------------------------------------------------------------------------------- */

static void put_number(json_writer *w, const char *key, double x) {
  json_put_key(w, key);
  json_put_double(w, x);
}

static void put_text(json_writer *w, const char *key, const char *text) {
  json_put_key(w, key);
  json_put_string(w, text);
}

static void put_row(json_writer *w, const hp_op_time *r) {
  json_open_map(w);
  put_text(w, "kind", r->kind);
  put_text(w, "shape", r->shape);
  put_text(w, "where", r->place);
  put_text(w, "engine", r->engine);
  json_put_key(w, "calls");
  json_put_int(w, r->count);
  json_put_key(w, "beside");
  json_put_bool(w, r->beside);
  put_number(w, "time_s", r->seconds);
  put_number(w, "limit_s", r->limit_s);
  put_number(w, "gap_s", r->gap_s);
  put_text(w, "limited_by", r->limit);
  put_number(w, "work_flop", r->flops);
  put_number(w, "moved_bytes", r->bytes);
  put_number(w, "achieved_flop_per_s", rate(r->flops, r->seconds));
  put_number(w, "achieved_bytes_per_s", rate(r->bytes, r->seconds));
  json_close(w);
}

void op_times_print_json(const hp_op_time *row, int n, const hp_limits *l, str *out) {
  json_writer w = {.out = out};
  sums s = sum_of(row, n);
  json_open_map(&w);
  put_number(&w, "run_s", s.run_s);
  put_number(&w, "limit_s", s.limit_s);
  put_number(&w, "peak_flop_per_s", l->flops);
  put_number(&w, "peak_bf16_flop_per_s", l->bf16_flops);
  put_number(&w, "peak_bytes_per_s", l->bytes);
  json_put_key(&w, "kinds");
  json_open_list(&w);
  for (int i = 0; i < n; i++) put_row(&w, &row[i]);
  json_close(&w);
  json_close(&w);
  str_add_char(out, '\n');
}
