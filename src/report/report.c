#include "report/report.h"

#include "report/chart.h"
#include "base/retry.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- head ------------------------------------------------------------------------------------- */

static void print_head(const report *r, str *out) {
  str_add(out, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name="
               "\"viewport\" content=\"width=device-width,initial-scale=1\"><title>");
  str_add_xml(out, r->title);
  str_add(out, "</title>\n<style>\n");
  for (int i = 0; report_style[i]; i++) str_add(out, report_style[i]);
  str_add(out, "</style></head><body><main>\n<header><h1>");
  str_add_xml(out, r->title);
  str_printf(out, "</h1><span class=\"chip%s\">", r->finished ? "" : " stopped");
  str_add_xml(out, r->status);
  str_add(out, "</span></header>\n<dl class=\"head\">");
  for (int i = 0; i < r->heads; i++) {
    str_add(out, "<dt>");
    str_add_xml(out, r->head[i].name);
    str_add(out, "</dt><dd>");
    str_add_xml(out, r->head[i].value);
    if (r->head[i].detail) {
      str_add(out, " <small>");
      str_add_xml(out, r->head[i].detail);
      str_add(out, "</small>");
    }
    str_add(out, "</dd>");
  }
  str_add(out, "</dl>\n");
}

static void print_card(const char *name, const char *value, const char *detail, str *out) {
  str_add(out, "<div class=\"card\"><span>");
  str_add_xml(out, name);
  str_add(out, "</span><b>");
  str_add_xml(out, value);
  str_add(out, "</b>");
  if (detail) {
    str_add(out, "<small>");
    str_add_xml(out, detail);
    str_add(out, "</small>");
  }
  str_add(out, "</div>");
}

/* The first and last number under a key. */
static bool ends_of(const report *r, const char *key, double *first, double *last) {
  bool any = false;
  for (size_t i = 0; i < r->entries; i++) {
    if (!run_entry_get(&r->entry[i], key)) continue;
    *last = run_entry_number(&r->entry[i], key);
    if (!any) *first = *last;
    any = true;
  }
  return any;
}

static void print_number_card(const char *name, double value, const char *detail, str *out) {
  str text = {0};
  str_printf(&text, "%.4g", value);
  if (text.failed) out->failed = true;
  else print_card(name, text.at, detail, out);
  str_free(&text);
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* The speed of the middle step, and the time of the run. */
static void print_speed_cards(const report *r, str *out) {
  double first, last;
  str value = {0}, detail = {0};
  double *sorted = r->steps ? mem_calloc(r->steps, sizeof *sorted) : NULL;
  if (sorted) {
    memcpy(sorted, r->tokens_per_s, r->steps * sizeof *sorted);
    qsort(sorted, r->steps, sizeof *sorted, by_value);
    chart_print_count(sorted[r->steps / 2], &value);
    if (value.at) print_card("tokens per second", value.at, "median of the steps", out);
    value.len = 0;
  }
  if (ends_of(r, "train_runtime", &first, &last)) {
    run_print_duration(last, &value);
    ends_of(r, "step", &first, &last);
    str_printf(&detail, "%.0f steps", last);
    if (value.at && detail.at) print_card("time", value.at, detail.at, out);
  }
  if (value.failed || detail.failed || (r->steps && !sorted)) out->failed = true;
  mem_free(sorted);
  str_free(&value);
  str_free(&detail);
}

static void print_cards(const report *r, str *out) {
  double first, last;
  str detail = {0};
  str_add(out, "<div class=\"cards\">");
  if (ends_of(r, "loss", &first, &last)) {
    str_printf(&detail, "from %.4g", first);
    print_number_card("loss", last, detail.at, out);
  }
  if (ends_of(r, "eval_loss", &first, &last)) {
    detail.len = 0; /* a failure stays */
    str_printf(&detail, "perplexity %.4g", exp(last));
    print_number_card("evaluation loss", last, detail.at, out);
  }
  print_speed_cards(r, out);
  for (int i = 0; i < r->cards; i++)
    print_card(r->card[i].name, r->card[i].value, r->card[i].detail, out);
  if (detail.failed) out->failed = true;
  str_add(out, "</div>\n");
  str_free(&detail);
}

/* --- memory ----------------------------------------------------------------------------------- */

static void print_bytes_cell(uint64_t bytes, str *out) {
  str_add(out, "<td>");
  if (bytes) chart_print_bytes((double)bytes, out);
  else str_add(out, "&ndash;");
  str_add(out, "</td>");
}

static void print_tiers(const report *r, str *out) {
  str_add(out, "<table><tr><th>tier</th><th>peak, planned</th><th>peak, measured</th><th>limit</th>"
               "</tr>");
  for (int i = 0; i < r->tiers; i++) {
    str_add(out, "<tr><td>");
    str_add_xml(out, r->tier[i].name);
    str_add(out, "</td>");
    print_bytes_cell(r->tier[i].planned, out);
    print_bytes_cell(r->tier[i].measured, out);
    print_bytes_cell(r->tier[i].limit, out);
    str_add(out, "</tr>");
  }
  str_add(out, "</table>");
}

static void print_key(int color, const char *name, double bytes, double all, str *out) {
  str_printf(out, "<span><i class=\"b%d\"></i>", color % 8);
  str_add_xml(out, name);
  str_add_char(out, ' ');
  chart_print_bytes(bytes, out);
  str_printf(out, " (%.0f %%)</span>", 100 * bytes / all);
}

/* What is held where most is held, as one bar and its key; what the plan has room for besides is
 * the last of it. */
static void print_peak(const report *r, str *out) {
  size_t peak = 0;
  double most = -1;
  for (size_t i = 0; i < r->places; i++) {
    double sum = 0;
    for (int k = 0; k < r->layers; k++) sum += r->layer[k].bytes[i];
    if (sum > most) {
      most = sum;
      peak = i;
    }
  }
  if (!(most > 0)) return;
  double free = r->memory_planned > most ? r->memory_planned - most : 0, all = most + free;
  str_add(out, "<p>At the peak a device holds ");
  chart_print_bytes(most, out);
  if (r->memory_planned > 0) {
    str_add(out, " of ");
    chart_print_bytes(r->memory_planned, out);
    str_add(out, " planned");
  }
  str_add(out, ":</p><div class=\"stack\">");
  for (int k = 0; k < r->layers; k++)
    str_printf(out, "<i class=\"b%d\" style=\"width:%.2f%%\"></i>", k % 8,
               100 * r->layer[k].bytes[peak] / all);
  str_add(out, "</div><div class=\"key\">");
  for (int k = 0; k < r->layers; k++)
    print_key(k, r->layer[k].name, r->layer[k].bytes[peak], all, out);
  str_add(out, "</div>");
}

static void print_memory(const report *r, str *out) {
  if (!r->tiers && !r->memory_picture && !(r->layers && r->places)) return;
  str_add(out, "<h2>Memory</h2>\n<div class=\"panel\">");
  if (r->memory_picture) str_add(out, r->memory_picture);
  if (r->layers && r->places) {
    if (!r->memory_picture) report_print_memory_chart(r, out);
    print_peak(r, out);
  }
  if (r->memory_note) {
    str_add(out, "<pre>");
    str_add_xml(out, r->memory_note);
    str_add(out, "</pre>");
  }
  if (r->tiers) print_tiers(r, out);
  report_print_copies(r, out);
  str_add(out, "</div>\n");
}

static void print_picture(const char *title, const char *about, const char *svg, str *out) {
  if (!svg || !*svg) return;
  str_printf(out, "<h2>%s</h2>\n<div class=\"panel\"><p>%s</p>\n", title, about);
  str_add(out, svg);
  str_add(out, "</div>\n");
}

/* --- settings, files -------------------------------------------------------------------------- */

static void print_setting(const report_setting *s, str *out) {
  str_printf(out, "<tr><td><code>%s</code></td><td class=\"text%s\"><code>", s->name,
             s->given ? " own" : "");
  str_add_xml(out, s->value);
  str_add(out, "</code></td><td class=\"text\">");
  str_add_xml(out, s->help);
  str_add(out, "</td></tr>\n");
}

static void print_settings_of(const report *r, bool given, str *out) {
  str_add(out, "<table class=\"settings\">");
  for (int i = 0; i < r->settings; i++)
    if (r->setting[i].given == given) print_setting(&r->setting[i], out);
  str_add(out, "</table>");
}

static void print_settings(const report *r, str *out) {
  if (!r->settings) return;
  str_add(out, "<h2>Settings</h2>\n<div class=\"panel\">");
  print_settings_of(r, true, out);
  str_add(out,
          "</div><div class=\"panel\" style=\"margin-top:12px\"><details><summary>All others, at "
          "their defaults</summary>");
  print_settings_of(r, false, out);
  str_add(out, "</details></div>\n");
}

static void print_files(const report *r, bool checkpoints, const char *title, str *out) {
  bool any = false;
  for (int i = 0; i < r->files; i++) {
    const report_file *f = &r->file[i];
    if ((f->step >= 0) != checkpoints) continue;
    if (!any)
      str_printf(out,
                 "<h2>%s</h2>\n<div class=\"panel\"><table><tr><th>name</th>%s<th>size</th><th>"
                 "</th></tr>\n",
                 title, checkpoints ? "<th>step</th>" : "");
    any = true;
    str_add(out, "<tr><td><a href=\"");
    str_add_xml(out, f->name);
    str_add(out, "\">");
    str_add_xml(out, f->name);
    str_add(out, "</a></td>");
    if (checkpoints) str_printf(out, "<td>%lld</td>", (long long)f->step);
    print_bytes_cell(f->bytes, out);
    str_add(out, "<td class=\"text\">");
    if (f->note) str_add_xml(out, f->note);
    str_add(out, "</td></tr>\n");
  }
  if (any) str_add(out, "</table></div>\n");
}

void report_print(const report *r, str *out) {
  print_head(r, out);
  print_cards(r, out);
  str_add(out, "<h2>Curves</h2>\n");
  report_print_curves(r, out);
  print_memory(r, out);
  print_picture("Devices", "The mesh, and what a device receives over each axis in a step.",
                r->mesh, out);
  print_picture("Communication and computation", "A step on one device, stream by stream.",
                r->timeline, out);
  report_print_time(r, out);
  print_files(r, true, "Checkpoints", out);
  print_settings(r, out);
  print_files(r, false, "Files", out);
  str_add(out, "<footer>HyperParallel " HP_VERSION
               "</footer>\n</main><div id=\"tip\"></div>\n<script>\n");
  str_add(out, report_script);
  str_add(out, "</script></body></html>\n");
}

hp_status report_write(const report *r, const char *path) {
  str text = {0};
  report_print(r, &text);
  hp_status st = str_status(&text);
  if (!st) st = retry_file_write(path, text.at, text.len);
  str_free(&text);
  return st;
}
