#include "rt/pipeline_timeline.h"

#include "base/units.h"
#include "rt/svg.h"

#include <math.h>
#include <stdio.h>

enum { WIDTH = 1100, LEFT = 90, TITLE = 40, ROW = 22, STEP = 28 };

/* --- what was measured ------------------------------------------------------------------------ */

static measured_row row_of(const prog_inst *n, uint32_t on, double start_s, double end_s) {
  bool update = n->phase == PHASE_UPDATE; /* of all stages of the device */
  return (measured_row){.device = on,
                        .stage = update ? 0 : n->stage,
                        .phase = n->phase,
                        .micro = update || !n->micro ? 0 : n->micro - 1,
                        .start_s = start_s,
                        .end_s = end_s};
}

hp_status pipeline_timeline_measure(const exec *e, uint32_t on, double origin_s,
                                    measured_rows *out) {
  const program *p = exec_program(e);
  const inst_times *t = exec_last_times(e);
  double from_s = exec_began_s(e) - origin_s;
  size_t first = out->len;
  for (size_t i = 0; i < p->insts.len; i++) {
    const prog_inst *n = program_inst(p, i);
    if (n->stream != STREAM_COMPUTE) continue;
    if (n->ahead && t[i].end_s <= t[i].start_s) continue; /* the run had it not */
    measured_row made = row_of(n, on, from_s + t[i].start_s, from_s + t[i].end_s);
    measured_row *last = out->len > first ? &out->at[out->len - 1] : NULL;
    bool same =
        last && last->stage == made.stage && last->phase == made.phase && last->micro == made.micro;
    if (same) last->end_s = made.end_s;
    else if (!vec_push(out, made)) return HP_ERR_OOM;
  }
  return HP_OK;
}

/* --- drawing ---------------------------------------------------------------------------------- */

typedef struct {
  double top, unit; /* of the first device's row; pixels of a second */
  str *out;
} panel;

static double strength_of(uint8_t phase) { return phase == PHASE_FORWARD ? 0.35 : 1; }

static void draw_box(const panel *a, uint32_t on, double start_s, double end_s, uint32_t micro,
                     double strength, const char *label, const char *tip) {
  double x = LEFT + start_s * a->unit, w = (end_s - start_s) * a->unit;
  double y = a->top + STEP * on;
  svg_pale_box(a->out, x, y, w < 0.5 ? 0.5 : w, ROW, "d", (int)(micro % SVG_COLORS), strength, tip);
  if (w >= 30) svg_text(a->out, x + w / 2, y + 15, SVG_MIDDLE, false, w, label);
}

static void draw_names(const panel *a, uint32_t devices) {
  for (uint32_t d = 0; d < devices; d++) {
    char name[24];
    snprintf(name, sizeof name, "device %u", d);
    svg_text(a->out, LEFT - 10, a->top + STEP * d + 15, SVG_END, false, LEFT - 12, name);
  }
}

static void draw_title(const panel *a, const char *name, const char *what, double seconds,
                       double idle) {
  str title = {0};
  str_printf(&title, "%s: %s ", name, what);
  units_add_seconds(&title, seconds);
  if (idle >= 0) str_printf(&title, ", idle %.1f %%", 100 * idle);
  str_add(&title, "; forward pale, backward dark, coloured by micro-batch");
  svg_text(a->out, LEFT, a->top - 18, SVG_START, false, WIDTH - LEFT, title.at ? title.at : "");
  a->out->failed |= title.failed;
  str_free(&title);
}

static void draw_row(const pipe_row *row, uint32_t on, double start_s, double end_s,
                     const panel *a) {
  char tip[PIPE_ROW_NAME], label[16];
  double strength = row->actions & PIPE_F ? 0.35 : row->actions & PIPE_B ? 1 : 0.65;
  pipe_row_name(row, tip);
  snprintf(label, sizeof label, "%s%u", pipe_action_name(row->actions), row->microbatch);
  draw_box(a, on, start_s, end_s, row->microbatch, strength, label, tip);
}

/* When a step between others begins: with its first row that did not run before. */
static double ahead_origin(const pipeline_plan *p) {
  double origin = p->ahead.micros ? INFINITY : 0;
  for (uint32_t i = 0; p->ahead.micros && i < pipe_rows_count(&p->rows); i++)
    if (!pipe_ahead_has(&p->rows, &p->ahead, i) && p->ahead.start_s[i] < origin)
      origin = p->ahead.start_s[i];
  return origin;
}

/* Of a step, or, where rows run ahead, of one between others: these are drawn at its end, with the
 * micro-batches behind its own. */
static void draw_plan(const pipeline_plan *p, const char *name, const panel *a) {
  const double origin = ahead_origin(p);
  draw_title(a, name, "predicted", p->ahead.micros ? p->ahead.step_s : p->times.step_s,
             p->times.bubble);
  draw_names(a, p->rows.devices);
  for (uint32_t d = 0; d < p->rows.devices; d++)
    for (uint32_t i = p->rows.row0[d]; i < p->rows.row0[d + 1]; i++) {
      pipe_row row = p->rows.row[i];
      if (!p->ahead.micros) {
        draw_row(&row, d, p->times.start_s[i], p->times.end_s[i], a);
      } else if (pipe_ahead_has(&p->rows, &p->ahead, i)) {
        row.microbatch += p->rows.microbatches;
        draw_row(&row, d, p->ahead.next_start_s[i] - origin, p->ahead.next_end_s[i] - origin, a);
      } else {
        draw_row(&row, d, p->ahead.start_s[i] - origin, p->ahead.end_s[i] - origin, a);
      }
    }
}

/* Of what is drawn. */
static double plan_end(const pipeline_plan *p) {
  const double origin = ahead_origin(p);
  double end = p->times.step_s;
  for (uint32_t i = 0; p->ahead.micros && i < pipe_rows_count(&p->rows); i++) {
    double row = p->ahead.end_s[i];
    if (pipe_ahead_has(&p->rows, &p->ahead, i)) row = p->ahead.next_end_s[i];
    if (row - origin > end) end = row - origin;
  }
  return end;
}

static double end_of(const measured_rows *m) {
  double end_s = 0;
  for (size_t i = 0; i < m->len; i++)
    if (m->at[i].end_s > end_s) end_s = m->at[i].end_s;
  return end_s;
}

static void draw_measured(const measured_rows *m, const char *name, uint32_t devices,
                          const panel *a) {
  draw_title(a, name, "measured, with the update", end_of(m), -1);
  draw_names(a, devices);
  for (size_t i = 0; i < m->len; i++) {
    const measured_row *x = &m->at[i];
    char tip[48], label[16], action = x->phase == PHASE_FORWARD ? 'F' : 'B';
    snprintf(tip, sizeof tip, "measured: stage %u %c %u", x->stage, action, x->micro);
    snprintf(label, sizeof label, "%c%u", action, x->micro);
    if (x->phase == PHASE_UPDATE) {
      snprintf(tip, sizeof tip, "measured: update of device %u", x->device);
      snprintf(label, sizeof label, "U");
    }
    draw_box(a, x->device, x->start_s, x->end_s, x->micro, strength_of(x->phase), label, tip);
  }
}

hp_status pipeline_timeline_svg(const pipeline_plan *p, const char *name, const measured_rows *m,
                                bool in_page, str *out) {
  double height = TITLE + STEP * p->rows.devices, width = WIDTH - LEFT - 20;
  panel a = {.top = TITLE, .unit = width / plan_end(p), .out = out};
  svg_begin(out, WIDTH, (m ? 2 : 1) * height + 10, in_page);
  draw_plan(p, name, &a);
  a.top += height;
  if (m && m->len) {
    a.unit = width / end_of(m);
    draw_measured(m, name, p->rows.devices, &a);
  }
  svg_end(out);
  return str_status(out);
}
