/* Where time goes: a bar a kind of work, what the machine needs for it in full colour, and the
 * table of all. */
#include "report/report.h"

#include "base/units.h"
#include "report/chart.h"

#include <stdlib.h>
#include <string.h>

enum { BARS = 12 };

static void print_name(const hp_op_time *o, str *out) {
  str_add_xml(out, o->kind);
  if (!*o->shape) return;
  str_add(out, " <small>");
  str_add_xml(out, o->shape);
  str_add(out, "</small>");
}

/* --- bars ------------------------------------------------------------------------------------- */

static int compare_seconds(const void *a, const void *b) {
  const hp_op_time *const *x = a, *const *y = b;
  if ((*x)->seconds != (*y)->seconds) return (*x)->seconds < (*y)->seconds ? 1 : -1;
  return *x < *y ? -1 : 1;
}

static void print_bar(const hp_op_time *o, double longest, str *out) {
  double gap = o->gap_s;
  str_add(out, "<span>");
  print_name(o, out);
  str_printf(out,
             "</span><span class=\"wide\"><i style=\"width:%.2f%%\"></i><i class=\"gap\" "
             "style=\"width:%.2f%%\"></i></span><span class=\"num\">",
             100 * (o->seconds - gap) / longest, 100 * gap / longest);
  units_add_seconds(out, o->seconds);
  str_add(out, "</span>\n");
}

static void print_bars(const report *r, str *out) {
  const hp_op_time **row = mem_calloc((size_t)r->ops, sizeof *row);
  if (!row) {
    out->failed = true;
    return;
  }
  for (int i = 0; i < r->ops; i++) row[i] = &r->op[i];
  qsort(row, (size_t)r->ops, sizeof *row, compare_seconds);
  str_add(out, "<div class=\"times\">");
  for (int i = 0; i < r->ops && i < BARS && row[0]->seconds > 0; i++)
    print_bar(row[i], row[0]->seconds, out);
  str_add(out, "</div>");
  mem_free(row);
}

/* --- copies between tiers -----------------------------------------------------------------------
 */

static bool is_copy(const hp_op_time *o) {
  return !strncmp(o->kind, "fetch from ", 11) || !strncmp(o->kind, "offload to ", 11);
}

static void print_copy(const hp_op_time *o, str *out) {
  str_printf(out, "<tr><td>%s</td><td>%d</td><td>", o->kind, o->count);
  chart_print_bytes(o->bytes, out);
  str_add(out, "</td><td>");
  units_add_seconds(out, o->seconds);
  str_add(out, "</td><td>");
  units_add_rate(out, o->seconds > 0 ? o->bytes / o->seconds : 0, "B/s");
  str_add(out, "</td><td>");
  units_add_rate(out, o->limit_s > 0 ? o->bytes / o->limit_s : 0, "B/s");
  str_printf(out, "</td><td>%.0f %%</td></tr>\n",
             o->seconds > 0 ? 100 * o->limit_s / o->seconds : 0);
}

/* Rows of one kind, in which they differ by the types of the copied values. */
static void add_copies(const report *r, int first, hp_op_time *sum) {
  *sum = r->op[first];
  for (int i = first + 1; i < r->ops; i++) {
    if (strcmp(r->op[i].kind, sum->kind)) continue;
    sum->count += r->op[i].count;
    sum->bytes += r->op[i].bytes;
    sum->seconds += r->op[i].seconds;
    sum->limit_s += r->op[i].limit_s;
  }
}

void report_print_copies(const report *r, str *out) {
  bool any = false;
  for (int i = 0; i < r->ops; i++) {
    hp_op_time sum;
    bool known = !is_copy(&r->op[i]);
    for (int k = 0; k < i && !known; k++) known = !strcmp(r->op[k].kind, r->op[i].kind);
    if (known) continue;
    if (!any)
      str_add(out, "<table><tr><th>copies of a step</th><th>number</th><th>bytes</th><th>time</th>"
                   "<th>reached</th><th>the link's limit</th><th>of it</th></tr>\n");
    any = true;
    add_copies(r, i, &sum);
    print_copy(&sum, out);
  }
  if (any) str_add(out, "</table>");
}

/* --- table ------------------------------------------------------------------------------------ */

static void print_rate_cell(double work, double seconds, void (*print)(double, str *),
                            const char *unit, str *out) {
  str_add(out, "<td>");
  if (work > 0 && seconds > 0) {
    print(work / seconds, out);
    str_add(out, unit);
  } else {
    str_add(out, "&ndash;");
  }
  str_add(out, "</td>");
}

static void print_limit_cell(const hp_op_time *o, str *out) {
  if (!(o->limit_s > 0) || !(o->seconds > 0)) str_add(out, "<td>&ndash;</td>");
  else str_printf(out, "<td>%.0f %% of %s</td>", 100 * o->limit_s / o->seconds, o->limit);
}

/* A name that may be broken behind its dots, and nowhere else. */
static void print_place(const char *place, str *out) {
  for (; *place; place++) {
    char one[2] = {*place, 0};
    str_add_xml(out, one);
    if (*place == '.') str_add(out, "<wbr>");
  }
}

static bool has_engines(const report *r) {
  for (int i = 0; i < r->ops; i++)
    if (*r->op[i].engine) return true;
  return false;
}

static void print_row(const report *r, const hp_op_time *o, double total, bool widest, str *out) {
  str_printf(out, "<tr><td%s>", widest ? " class=\"own\"" : "");
  print_name(o, out);
  str_add(out, "</td><td>");
  units_add_seconds(out, o->gap_s);
  str_add(out, "</td><td>");
  units_add_seconds(out, o->seconds);
  if (o->overlapped) str_add(out, "</td><td>overlapped</td>");
  else str_printf(out, "</td><td>%.1f %%</td>", total > 0 ? 100 * o->seconds / total : 0);
  print_limit_cell(o, out);
  print_rate_cell(o->flops, o->seconds, chart_print_count, "FLOP/s", out);
  print_rate_cell(o->bytes, o->seconds, chart_print_bytes, "/s", out);
  str_printf(out, "<td>%d</td>", o->count);
  if (has_engines(r)) {
    str_add(out, "<td class=\"text\">");
    str_add_xml(out, o->engine);
    str_add(out, "</td>");
  }
  str_add(out, "<td class=\"text where\">");
  print_place(o->place, out);
  str_add(out, "</td></tr>\n");
}

void report_print_time(const report *r, str *out) {
  double total = 0, limit = 0, predicted = 0;
  if (!r->ops) return;
  for (int i = 0; i < r->ops; i++) {
    if (r->op[i].overlapped) continue;
    total += r->op[i].seconds;
    limit += r->op[i].limit_s;
    predicted += r->op[i].predicted_s;
  }
  str_add(out, "<h2>Where time goes</h2>\n<div class=\"panel\"><p>A step takes ");
  units_add_seconds(out, total);
  str_add(out, "; at the limits of the machine it would take ");
  units_add_seconds(out, limit);
  str_printf(out, " (%.0f %%). ", total > 0 ? 100 * limit / total : 0);
  str_add(out, "Predicted before the run: ");
  units_add_seconds(out, predicted);
  str_add(out, ". A bar is the time of a kind of work, the pale end what is above the "
               "limit. Times, here and in the pictures above, are means of the faster half of the "
               "last 8 runs.</p>");
  print_bars(r, out);
  str_add(out,
          "<div class=\"wide-table\"><table><tr><th>kind, the widest gaps first</th><th>gap</th>"
          "<th>time</th><th>share</th><th>achieved</th><th>arithmetic</th><th>memory</th>"
          "<th>calls</th>");
  if (has_engines(r)) str_add(out, "<th class=\"text\">engine</th>");
  str_add(out, "<th class=\"text\">where</th></tr>\n");
  for (int i = 0; i < r->ops; i++) print_row(r, &r->op[i], total, i < HP_WIDEST_GAPS, out);
  str_add(out, "</table></div></div>\n");
}
