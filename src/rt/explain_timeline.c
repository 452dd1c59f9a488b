#include "rt/explain_timeline.h"

#include "base/units.h"
#include "rt/explain_comm.h"
#include "rt/inst_name.h"
#include "rt/svg.h"

#include <stdio.h>
#include <string.h>

enum {
  WIDTH = 1060,
  LEFT = 112, /* start of the rows, after their names */
  RIGHT = 16,
  TOP = 58, /* summary and legend */
  ROW = 26,
  STEP = 36, /* from a row to the next */
  AXIS = 26,
  TICKS = 5
};

/* How an interval is drawn. */
typedef enum { FORWARD, BACKWARD, UPDATE, COLLECTIVE, EXPOSED, COPY, LOOKS } look;
static const struct {
  const char *name;
  int color;
} looks[LOOKS] = {{"forward", 0},       {"backward", 1}, {"update", 2},
                  {"communication", 3}, {"exposed", 4},  {"copies", 5}};

typedef struct {
  const program *p;
  const mesh *m;
  const inst_times *t;
  double run_s;
  bool used[LOOKS];
  str *out;
  /* The interval that is being drawn: adjacent ones with equal look are one box. */
  double from, to, y, seconds;
  look as;
  int calls;
  size_t first;
} drawing;

static bool is_rendezvous(const prog_inst *n) { return op_flags((op_id)n->op) & OPF_RENDEZVOUS; }

static look look_of(const prog_inst *n) {
  if (is_rendezvous(n)) return COLLECTIVE;
  if (stream_copies(n->stream)) return COPY;
  return n->phase == PHASE_FORWARD ? FORWARD : n->phase == PHASE_BACKWARD ? BACKWARD : UPDATE;
}

static double at_x(const drawing *d, double s) {
  return LEFT + (d->run_s > 0 ? s / d->run_s : 0) * (WIDTH - LEFT - RIGHT);
}

/* --- stretches -------------------------------------------------------------------------------- */

static void flush(drawing *d) {
  str tip = {0};
  if (!d->calls) return;
  if (d->calls == 1) inst_print_name(d->p, d->m, program_inst(d->p, d->first), &tip);
  else str_printf(&tip, "%s, %d instructions", looks[d->as].name, d->calls);
  str_add(&tip, ": ");
  units_add_seconds(&tip, d->seconds);
  double width = d->to - d->from < 0.3 ? 0.3 : d->to - d->from;
  svg_box(d->out, d->from, d->y, width, ROW, "s", looks[d->as].color, tip.at ? tip.at : "");
  d->out->failed |= tip.failed;
  str_free(&tip);
  d->calls = 0;
}

static void draw(drawing *d, look as, size_t inst, double start, double end) {
  double from = at_x(d, start), to = at_x(d, end);
  if (end <= start) return;
  if (d->calls && (as != d->as || from - d->to > 0.5)) flush(d);
  if (!d->calls) {
    d->from = from;
    d->first = inst;
    d->seconds = 0;
    d->as = as;
  }
  d->calls++;
  d->seconds += end - start;
  d->to = to > d->to || d->calls == 1 ? to : d->to;
}

static void draw_stream(drawing *d, int stream) {
  for (size_t i = 0; i < d->p->insts.len; i++) {
    const prog_inst *n = program_inst(d->p, i);
    if (n->stream != stream) continue;
    draw(d, look_of(n), i, is_rendezvous(n) ? d->t[i].met_s : d->t[i].start_s, d->t[i].end_s);
  }
  flush(d);
}

/* The time of each collective during which nothing is computed. */
static void draw_exposed(drawing *d) {
  size_t first = 0; /* computation before it ended before the collective begins */
  for (size_t i = 0; i < d->p->insts.len; i++) {
    if (!is_rendezvous(program_inst(d->p, i))) continue;
    double from = d->t[i].met_s, end = d->t[i].end_s;
    for (size_t k = first; k < d->p->insts.len && from < end; k++) {
      const prog_inst *n = program_inst(d->p, k);
      if (n->stream != STREAM_COMPUTE || is_rendezvous(n)) continue;
      if (d->t[k].start_s >= end) break;
      if (d->t[k].end_s <= d->t[i].met_s) first = k + 1;
      if (d->t[k].end_s <= from) continue;
      if (d->t[k].start_s > from) draw(d, EXPOSED, i, from, d->t[k].start_s);
      from = d->t[k].end_s;
    }
    if (from < end) draw(d, EXPOSED, i, from, end);
  }
  flush(d);
}

/* --- the picture ------------------------------------------------------------------------------ */

static void draw_row(drawing *d, const char *name) {
  svg_text(d->out, LEFT - 10, d->y + ROW / 2.0 + 4, SVG_END, false, LEFT - 12, name);
}

static void draw_legend(drawing *d) {
  double x = LEFT;
  for (int k = 0; k < LOOKS; k++) {
    if (!d->used[k]) continue;
    svg_box(d->out, x, 30, 12, 12, "s", looks[k].color, NULL);
    svg_text(d->out, x + 18, 40, SVG_START, true, 120, looks[k].name);
    x += 18 + SVG_CHAR * (double)strlen(looks[k].name) + 24;
  }
}

static void draw_axis(drawing *d, double y) {
  for (int i = 0; i <= TICKS; i++) {
    double x = at_x(d, d->run_s * i / TICKS);
    str tick = {0};
    units_add_seconds(&tick, d->run_s * i / TICKS);
    svg_line(d->out, x, TOP, x, y, "grid", -1);
    svg_text(d->out, i == TICKS ? WIDTH - 2 : x, y + 16, i == TICKS ? SVG_END : SVG_MIDDLE, true,
             120, tick.at ? tick.at : "");
    d->out->failed |= tick.failed;
    str_free(&tick);
  }
}

static void put_seconds(const char *before, double s, str *out) {
  str_add(out, before);
  units_add_seconds(out, s);
}

static hp_status draw_summary(drawing *d, bool measured) {
  comm_time sum;
  str line = {0};
  HP_TRY(comm_times(d->p, d->t, NULL, &sum));
  put_seconds(measured ? "measured: " : "predicted: ", d->run_s, &line);
  if (sum.comm_s > 0) {
    put_seconds("; communication ", sum.comm_s, &line);
    put_seconds(", of which ", sum.hidden_s, &line);
    put_seconds(" overlapped with computation and ", sum.comm_s - sum.hidden_s, &line);
    str_add(&line, " exposed");
  }
  hp_status st = str_status(&line);
  if (!st) svg_text(d->out, LEFT, 16, SVG_START, false, WIDTH - LEFT, line.at);
  str_free(&line);
  return st;
}

hp_status explain_timeline_svg(const program *p, const mesh *m, const inst_times *t, bool measured,
                               str *out) {
  static const char *const name[STREAM_COUNT] = {"compute", "comm", "copy in", "copy out"};
  drawing d = {.p = p, .m = m, .t = t, .out = out, .y = TOP};
  d.run_s = inst_times_end(t, p->insts.len);
  bool stream[STREAM_COUNT] = {false};
  int rows = 0;
  for (size_t i = 0; i < p->insts.len; i++) {
    d.used[look_of(program_inst(p, i))] = true;
    stream[program_inst(p, i)->stream] = true;
  }
  d.used[EXPOSED] = d.used[COLLECTIVE];
  for (int s = 0; s < STREAM_COUNT; s++) rows += stream[s];
  rows += d.used[EXPOSED];
  svg_begin(out, WIDTH, TOP + rows * STEP + AXIS, true);
  hp_status st = draw_summary(&d, measured);
  draw_legend(&d);
  draw_axis(&d, TOP + rows * STEP);
  for (int s = 0; s < STREAM_COUNT; s++) {
    if (!stream[s]) continue;
    draw_row(&d, name[s]);
    draw_stream(&d, s);
    d.y += STEP;
  }
  if (d.used[EXPOSED]) {
    draw_row(&d, "exposed");
    draw_exposed(&d);
  }
  svg_end(out);
  return st ? st : str_status(out);
}
