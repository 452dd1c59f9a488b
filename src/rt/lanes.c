#include "rt/lanes.h"

#include "base/units.h"
#include "rt/inst_name.h"
#include "rt/svg.h"

#include <string.h>

enum { TICKS = 5 };

/* How an interval is drawn. */
typedef enum { FORWARD, BACKWARD, UPDATE, COLLECTIVE, EXPOSED, COPY, LOOKS } look;
static const struct {
  const char *name;
  int color;
} looks[LOOKS] = {{"forward", 0},       {"backward", 1}, {"update", 2},
                  {"communication", 3}, {"exposed", 4},  {"copies", 5}};

typedef struct {
  const lanes *l;
  str *out;
  /* The interval that is being drawn: adjacent ones with equal look are one box. */
  double from, to, y;
  double seconds, by_look[LOOKS]; /* that work takes in it */
  look as;                        /* the last */
  int calls;
  size_t first;
} drawing;

static bool is_communication(const prog_inst *n) {
  return op_flags((op_id)n->op) & (OPF_RENDEZVOUS | OPF_TRANSFER);
}

/* It can overlap with computation. */
static bool may_be_exposed(const prog_inst *n) {
  return is_communication(n) || stream_copies(n->stream);
}

static look look_of(const prog_inst *n) {
  if (is_communication(n)) return COLLECTIVE;
  if (stream_copies(n->stream)) return COPY;
  return n->phase == PHASE_FORWARD ? FORWARD : n->phase == PHASE_BACKWARD ? BACKWARD : UPDATE;
}

double lanes_x(const lanes *l, double s) {
  double width = LANES_WIDTH - LANES_LEFT - LANES_RIGHT;
  return LANES_LEFT + (l->full_s > 0 ? s / l->full_s : 0) * width;
}

/* --- intervals ----------------------------------------------------------------------------------
 */

static double width_of(const drawing *d) {
  double width = d->to - d->from;
  return width < 0.3 ? 0.3 : width;
}

/* The look of most of it; paler where much of the box is between two pieces of work. */
static void flush(drawing *d) {
  str tip = {0};
  int most = 0;
  if (!d->calls) return;
  for (int k = 1; k < LOOKS; k++)
    if (d->by_look[k] > d->by_look[most]) most = k;
  if (d->calls == 1) inst_print_name(d->l->p, d->l->m, program_inst(d->l->p, d->first), &tip);
  else str_printf(&tip, "%s, %d instructions", looks[most].name, d->calls);
  str_add(&tip, ": ");
  units_add_seconds(&tip, d->seconds);
  double work = lanes_x(d->l, d->seconds) - lanes_x(d->l, 0);
  svg_pale_box(d->out, d->from, d->y, width_of(d), LANES_ROW, "s", looks[most].color,
               work / width_of(d), tip.at ? tip.at : "");
  d->out->failed |= tip.failed;
  str_free(&tip);
  d->calls = 0;
}

/* What is too thin to be seen by itself takes what follows into its box, so that a lane has no more
 * boxes than can be seen. */
static void draw(drawing *d, look as, size_t inst, double start, double end) {
  enum { THIN = 2 }; /* of a pixel */
  double from = lanes_x(d->l, start), to = lanes_x(d->l, end);
  if (end <= start) return;
  bool apart = from - d->to > 1.0 / THIN, thin = d->to - d->from < 1.0 / THIN;
  if (d->calls && (apart || (as != d->as && !thin))) flush(d);
  if (!d->calls) {
    d->from = from;
    d->first = inst;
    d->seconds = 0;
    memset(d->by_look, 0, sizeof d->by_look);
  }
  d->as = as;
  d->calls++;
  d->seconds += end - start;
  d->by_look[as] += end - start;
  d->to = to > d->to || d->calls == 1 ? to : d->to;
}

static void draw_stream(drawing *d, uint32_t stream) {
  const program *p = d->l->p;
  const inst_times *t = d->l->t;
  for (size_t i = 0; i < p->insts.len; i++) {
    const prog_inst *n = program_inst(p, i);
    if (n->stream != stream) continue;
    draw(d, look_of(n), i, is_communication(n) ? t[i].arrived_s : t[i].start_s, t[i].end_s);
  }
  flush(d);
}

/* The time of each collective or copy of a stream during which nothing is computed. */
static void draw_exposed(drawing *d, uint32_t stream) {
  const program *p = d->l->p;
  const inst_times *t = d->l->t;
  size_t first = 0; /* computation before it ended before the collective or copy begins */
  for (size_t i = 0; i < p->insts.len; i++) {
    const prog_inst *own = program_inst(p, i);
    if (own->stream != stream || !may_be_exposed(own)) continue;
    double start = is_communication(own) ? t[i].arrived_s : t[i].start_s, from = start,
           end = t[i].end_s;
    for (size_t k = first; k < p->insts.len && from < end; k++) {
      const prog_inst *n = program_inst(p, k);
      if (n->stream != STREAM_COMPUTE || is_communication(n)) continue;
      if (t[k].start_s >= end) break;
      if (t[k].end_s <= start) first = k + 1;
      if (t[k].end_s <= from) continue;
      if (t[k].start_s > from) draw(d, EXPOSED, i, from, t[k].start_s);
      from = t[k].end_s;
    }
    if (from < end) draw(d, EXPOSED, i, from, end);
  }
  flush(d);
}

/* --- rows ---------------------------------------------------------------------------------------
 */

typedef struct {
  bool stream[STREAM_COUNT], look[LOOKS];
} used;

static used find_used(const program *p) {
  used u = {.stream = {false}};
  for (size_t i = 0; i < p->insts.len; i++) {
    const prog_inst *n = program_inst(p, i);
    u.look[look_of(n)] = true;
    u.look[EXPOSED] |= may_be_exposed(n);
    u.stream[n->stream] = true;
  }
  return u;
}

int lanes_count(const program *p) {
  used u = find_used(p);
  int rows = u.look[EXPOSED];
  for (int s = 0; s < STREAM_COUNT; s++) rows += u.stream[s];
  return rows;
}

static void draw_name(const drawing *d, const char *name) {
  svg_text(d->out, LANES_LEFT - 10, d->y + LANES_ROW / 2.0 + 4, SVG_END, false, LANES_LEFT - 12,
           name);
}

void lanes_draw(const lanes *l, double y, str *out) {
  static const char *const name[] = {"compute",  "comm",      "copy in", "copy out",
                                     "flash in", "flash out", "p2p",     "host"};
  _Static_assert(sizeof name / sizeof *name == STREAM_COUNT, "each stream has a name");
  used u = find_used(l->p);
  drawing d = {.l = l, .out = out, .y = y};
  for (uint32_t s = 0; s < STREAM_COUNT; s++) {
    if (!u.stream[s]) continue;
    draw_name(&d, name[s]);
    draw_stream(&d, s);
    d.y += LANES_STEP;
  }
  if (!u.look[EXPOSED]) return;
  draw_name(&d, "exposed");
  for (uint32_t s = 0; s < STREAM_COUNT; s++)
    if (u.stream[s]) draw_exposed(&d, s);
}

void lanes_draw_legend(const program *p, double y, str *out) {
  used u = find_used(p);
  double x = LANES_LEFT;
  for (int k = 0; k < LOOKS; k++) {
    if (!u.look[k]) continue;
    svg_box(out, x, y - 10, 12, 12, "s", looks[k].color, NULL);
    svg_text(out, x + 18, y, SVG_START, true, 120, looks[k].name);
    x += 18 + SVG_CHAR * (double)strlen(looks[k].name) + 24;
  }
}

void lanes_draw_axis(const lanes *l, double top, double bottom, str *out) {
  for (int i = 0; i <= TICKS; i++) {
    double x = lanes_x(l, l->full_s * i / TICKS);
    str tick = {0};
    units_add_seconds(&tick, l->full_s * i / TICKS);
    svg_line(out, x, top, x, bottom, "grid", -1);
    svg_text(out, i == TICKS ? LANES_WIDTH - 2 : x, bottom + 16, i == TICKS ? SVG_END : SVG_MIDDLE,
             true, 120, tick.at ? tick.at : "");
    out->failed |= tick.failed;
    str_free(&tick);
  }
}
