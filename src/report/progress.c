#include "report/progress.h"

#include "base/log.h"
#include "base/thread.h"
#include "report/chart.h"

#include <math.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static const double KEEP = 0.7; /* tqdm's smoothing of 0.3 */

progress progress_create(int64_t total, int64_t first, double limit_flops, bool quiet) {
  double now = time_now_s();
  return (progress){.total = total,
                    .first = first,
                    .done = first,
                    .quiet = quiet,
                    .terminal = log_is_terminal(),
                    .start_s = now,
                    .last_s = now,
                    .shown_done = first,
                    .limit_flops = limit_flops};
}

/* 65 -> "01:05", 3700 -> "1:01:40" */
static void print_time(double s, str *out) {
  long long t = s > 0 && s < 1e15 ? (long long)s : 0;
  if (t >= 3600) str_printf(out, "%lld:", t / 3600);
  str_printf(out, "%02lld:%02lld", t / 60 % 60, t % 60);
}

/* Columns that a UTF-8 text takes: its characters, here. */
static int measure_width(const char *s) {
  int n = 0;
  for (; *s; s++) n += (*s & 0xc0) != 0x80;
  return n;
}

static void print_bar(double part, int cells, str *out) {
  static const char *const eighth[] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};
  int filled = (int)(part * cells * 8);
  for (int i = 0; i < cells; i++) {
    int here = filled - 8 * i;
    str_add(out, eighth[here < 0 ? 0 : here > 8 ? 8 : here]);
  }
}

static void print_rest(const progress *p, double now, double loss, str *out) {
  str_printf(out, "| %lld/%lld [", (long long)p->done, (long long)p->total);
  print_time(now - p->start_s, out);
  str_add_char(out, '<');
  if (p->step_s > 0) {
    print_time((double)(p->total - p->done) * p->step_s, out);
    if (p->step_s < 1) str_printf(out, ", %5.2fit/s", 1 / p->step_s);
    else str_printf(out, ", %5.2fs/it", p->step_s);
  } else {
    str_add(out, "?, ?it/s");
  }
  if (isfinite(loss)) str_printf(out, ", loss=%.4g", loss);
  if (p->tokens_per_s > 0) {
    str_add(out, ", ");
    chart_print_count(p->tokens_per_s, out);
    str_add(out, " tok/s");
  }
  if (p->limit_flops > 0 && p->flops_per_s > 0)
    str_printf(out, ", MFU %.1f%%", 100 * p->flops_per_s / p->limit_flops);
  str_add_char(out, ']');
}

void progress_print(const progress *p, double now, double loss, int columns, str *out) {
  double part = p->total > 0 ? (double)p->done / (double)p->total : 1;
  str rest = {0};
  str_printf(out, "%3.0f%%|", part * 100);
  print_rest(p, now, loss, &rest);
  int room = rest.at ? columns - measure_width(rest.at) - 6 : 10;
  print_bar(part, room < 4 ? 4 : room > 40 ? 40 : room, out);
  if (rest.at) str_add(out, rest.at);
  str_free(&rest);
}

static int read_terminal_columns(void) {
  struct winsize w;
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 ? w.ws_col : 80;
}

/* Is it time for another line where there is no terminal? */
static bool line_is_due(const progress *p, double now) {
  int64_t tenth = p->total / 10 > 0 ? p->total / 10 : 1;
  return p->done == p->first + 1 || p->done == p->total || now - p->shown_s >= 30 ||
         p->done / tenth != p->shown_done / tenth;
}

static void show_line(progress *p, double now, double loss) {
  str text = {0};
  progress_print(p, now, loss, p->terminal ? read_terminal_columns() - 1 : 100, &text);
  if (text.at && p->terminal) log_progress(text.at);
  else if (text.at) log_line(LOG_INFO, "%s", text.at);
  str_free(&text);
  p->shown_s = now;
  p->shown_done = p->done;
}

static double smooth_mean(double mean, double x) {
  return mean > 0 ? KEEP * mean + (1 - KEEP) * x : x;
}

void progress_step(progress *p, int64_t step, double loss, int64_t tokens, double flops) {
  double now = time_now_s(), s = now - p->last_s;
  p->done = step;
  p->last_s = now;
  if (s > 0) {
    p->step_s = smooth_mean(p->step_s, s);
    p->tokens_per_s = smooth_mean(p->tokens_per_s, (double)tokens / s);
    p->flops_per_s = smooth_mean(p->flops_per_s, flops / s);
  }
  if (p->quiet) return;
  if (p->terminal ? now - p->shown_s >= 0.1 || step == p->total : line_is_due(p, now))
    show_line(p, now, loss);
}

void progress_clear(const progress *p) {
  if (!p->quiet && p->terminal) log_progress("");
}
