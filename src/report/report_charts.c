/* The curves of the page, from the run's history. */
#include "report/report.h"

#include "base/json.h"
#include "report/chart.h"

#include <math.h>
#include <string.h>

enum { SHOWN_MAX = 2000 }; /* logged steps that the cursor stops at */

typedef struct {
  double *x, *y, *smooth;
  size_t n;
} series;

static void free_series(series *s) {
  mem_free(s->x);
  mem_free(s->y);
  mem_free(s->smooth);
  *s = (series){0};
}

/* All values under a key with their steps; false when out of memory. */
static bool collect_series(const report *r, const char *key, series *s) {
  *s = (series){.x = mem_calloc(r->entries + 1, sizeof *s->x),
                .y = mem_calloc(r->entries + 1, sizeof *s->y),
                .smooth = mem_calloc(r->entries + 1, sizeof *s->smooth)};
  if (!s->x || !s->y || !s->smooth) return false;
  for (size_t i = 0; i < r->entries; i++) {
    if (!run_entry_get(&r->entry[i], key)) continue;
    s->x[s->n] = run_entry_number(&r->entry[i], "step");
    s->y[s->n++] = run_entry_number(&r->entry[i], key);
  }
  chart_smooth(s->y, s->n, s->smooth);
  return true;
}

/* The chart, with its frame for the script. */
static void print_chart(const chart *c, bool cursor, str *out) {
  str svg = {0};
  chart_frame f = chart_layout(c);
  chart_svg(c, CHART_IN_PAGE, &svg);
  if (svg.failed) out->failed = true;
  else if (cursor) {
    str_printf(
        out,
        "<svg data-frame='{\"l\":%.2f,\"r\":%.2f,\"t\":%.2f,\"b\":%.2f,\"x0\":%.9g,\"x1\":%.9g}'",
        f.left, f.right, f.top, f.bottom, f.x0, f.x1);
    str_add(out, svg.at + 4);
  } else {
    str_add(out, svg.at);
  }
  str_free(&svg);
}

static void print_loss(const report *r, str *out) {
  series train, eval = {0};
  bool ok = collect_series(r, "loss", &train) && collect_series(r, "eval_loss", &eval);
  chart_line line[] = {{"loss", train.x, train.y, train.n, 0, .35, NULL},
                       {"smoothed", train.x, train.smooth, train.n, 0, 1, NULL},
                       {"evaluation", eval.x, eval.y, eval.n, 1, 1, NULL}};
  chart c = {.x_label = "step",
             .y_label = "loss",
             .line = line,
             .lines = eval.n ? 3 : 2,
             .width = 1060,
             .height = 400};
  if (!ok) out->failed = true;
  else if (train.n || eval.n) {
    str_add(out, "<div class=\"panel\">");
    print_chart(&c, true, out);
    str_add(out, "</div>");
  }
  free_series(&train);
  free_series(&eval);
}

static void print_small(const char *title, int color, const double *x, const double *y, size_t n,
                        bool from_zero, str *out) {
  chart_line line = {title, x, y, n, color, 1, NULL};
  chart c = {.title = title,
             .x_label = "step",
             .line = &line,
             .lines = 1,
             .width = 520,
             .height = 240,
             .from_zero = from_zero};
  if (!n) return;
  str_add(out, "<div class=\"panel\">");
  print_chart(&c, true, out);
  str_add(out, "</div>");
}

static void print_key(const report *r, const char *key, const char *title, int color, str *out) {
  series s;
  if (!collect_series(r, key, &s)) out->failed = true;
  else print_small(title, color, s.x, s.y, s.n, true, out);
  free_series(&s);
}

/* --- numbers for the cursor ------------------------------------------------------------------- */

/* The value of a step's own series at `step`: its place by halving, NAN when it is not there. */
static double find_timed_value(const report *r, const double *of, double step) {
  size_t low = 0, high = r->steps;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (r->step[middle] < step) low = middle + 1;
    else high = middle;
  }
  return low < r->steps && r->step[low] == step ? of[low] : NAN;
}

static void put_number(json_writer *w, double x) {
  if (isfinite(x)) json_put_float(w, (float)x);
  else json_put_null(w);
}

/* Column `key` for the entries that log a loss, every `stride`th of them. */
static void put_column(const report *r, const char *key, const double *timed, size_t stride,
                       json_writer *w) {
  size_t n = 0;
  json_open_list(w);
  for (size_t i = 0; i < r->entries; i++) {
    const run_entry *e = &r->entry[i];
    double step = run_entry_number(e, "step");
    if (!run_entry_get(e, "loss") || n++ % stride) continue;
    if (timed) put_number(w, find_timed_value(r, timed, step));
    else if (!strcmp(key, "step")) json_put_int(w, (int64_t)step);
    else put_number(w, run_entry_number(e, key));
  }
  json_close(w);
}

static void print_numbers(const report *r, str *out) {
  static const char *const key[] = {"step", "loss", "learning_rate", "grad_norm"};
  static const char *const shown[] = {"step", "loss", "learning rate", "gradient norm"};
  json_writer w = {.out = out, .compact = true};
  size_t n = 0;
  for (size_t i = 0; i < r->entries; i++) n += run_entry_get(&r->entry[i], "loss") != NULL;
  size_t stride = n / SHOWN_MAX + 1;
  str_add(out, "<script type=\"application/json\" id=\"data\">");
  json_open_map(&w);
  for (int k = 0; k < 4; k++) {
    json_put_key(&w, shown[k]);
    put_column(r, key[k], NULL, stride, &w);
  }
  if (r->steps) {
    json_put_key(&w, "tokens/s");
    put_column(r, NULL, r->tokens_per_s, stride, &w);
    json_put_key(&w, "seconds a step");
    put_column(r, NULL, r->step_s, stride, &w);
  }
  json_close(&w);
  str_add(out, "</script>\n");
}

void report_print_curves(const report *r, str *out) {
  print_loss(r, out);
  str_add(out, "<div class=\"two\">");
  print_key(r, "learning_rate", "learning rate", 2, out);
  print_key(r, "grad_norm", "gradient norm", 3, out);
  print_key(r, "rewards/accuracies", "pairs whose chosen answer has the higher reward", 1, out);
  print_key(r, "rewards/margins", "reward of chosen above rejected answers", 5, out);
  print_key(r, "rewards/chosen", "reward of chosen answers", 0, out);
  print_key(r, "rewards/rejected", "reward of rejected answers", 2, out);
  print_key(r, "kl", "divergence from the reference model (kl)", 3, out);
  print_key(r, "eval_accuracy", "accuracy in evaluations", 1, out);
  print_key(r, "eval_rouge-1", "ROUGE-1 of answers", 1, out);
  print_key(r, "eval_rouge-2", "ROUGE-2 of answers", 1, out);
  print_key(r, "eval_rouge-l", "ROUGE-L of answers", 1, out);
  print_key(r, "eval_bleu-4", "BLEU-4 of answers", 1, out);
  if (r->steps) {
    print_small("tokens per second", 5, r->step, r->tokens_per_s, r->steps, true, out);
    print_small("seconds a step", 1, r->step, r->step_s, r->steps, true, out);
  }
  str_add(out, "</div>\n");
  print_numbers(r, out);
}

/* --- memory over a step ----------------------------------------------------------------------- */

void report_print_memory_chart(const report *r, str *out) {
  enum { LAYERS_MAX = 8 };
  chart_line line[LAYERS_MAX + 1];
  size_t n = r->places;
  int layers = r->layers < LAYERS_MAX ? r->layers : LAYERS_MAX;
  double *x = mem_calloc(n, sizeof *x);
  double *sum = mem_calloc((size_t)layers + 1, n * sizeof *sum); /* row 0: nothing yet */
  double *planned = mem_calloc(n, sizeof *planned);
  if (x && sum && planned) {
    for (size_t i = 0; i < n; i++) x[i] = n > 1 ? 100.0 * (double)i / (double)(n - 1) : 0;
    for (int k = 0; k < layers; k++) {
      double *below = sum + (size_t)k * n, *top = below + n;
      for (size_t i = 0; i < n; i++) top[i] = below[i] + r->layer[k].bytes[i];
      line[k] = (chart_line){r->layer[k].name, x, top, n, k, .85, below};
    }
    for (size_t i = 0; i < n; i++) planned[i] = r->memory_planned;
    line[layers] = (chart_line){"planned", x, planned, n, CHART_GREY, 1, NULL};
    chart c = {.x_label = "place in the step, %",
               .line = line,
               .lines = layers + (r->memory_planned > 0),
               .width = 1060,
               .height = 320,
               .from_zero = true,
               .bytes = true,
               .limit = r->memory_limit,
               .limit_name = "limit"};
    print_chart(&c, false, out);
  } else {
    out->failed = true;
  }
  mem_free(x);
  mem_free(sum);
  mem_free(planned);
}
