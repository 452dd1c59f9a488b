#include "rt/memory_picture.h"

#include "base/units.h"
#include "rt/lanes.h"
#include "rt/memory_time.h"
#include "rt/memory_use.h"
#include "rt/svg.h"
#include "sim/predict.h"

#include <stdio.h>
#include <string.h>

enum {
  PLACES = 468, /* on the time axis */
  TOP = 66,     /* summary and two legends */
  TITLE = 26,   /* above a panel or lanes */
  DEVICE_PANEL = 190,
  PANEL = 96,
  GAP = 14,
  TICK = 34 /* least height between two lines of the scale */
};

/* From the bottom: what stays is lowest. */
static const struct {
  mem_class class;
  int color;
} layers[] = {{MEM_PARAM, 0},      {MEM_OPTIMIZER, 2}, {MEM_OTHER, 7}, {MEM_GRAD, 1},
              {MEM_ACTIVATION, 3}, {MEM_WORKSPACE, 5}, {MEM_COMM, 6}};
enum { LAYERS = sizeof layers / sizeof *layers };

typedef struct {
  const program *p;
  const hp_memory *m;
  lanes shown, compared; /* shown: measured if there was a run; compared: then predicted */
  live_bytes *work, *compared_work;
  uint64_t state[TIER_COUNT][MEM_CLASS_COUNT];
  str *out;
} picture;

/* --- what is drawn ------------------------------------------------------------------------------
 */

static void count_states(picture *v) {
  for (size_t b = 0; b < v->p->buffers.len; b++) {
    const prog_buffer *f = &v->p->buffers.at[b];
    int class = f->class < MEM_CLASS_COUNT ? f->class : MEM_OTHER;
    if (f->place == PLACE_STATE && f->root == b) v->state[f->tier][class] += memory_round(f->bytes);
  }
  if (v->m) memcpy(v->state[TIER_DEVICE], v->m->state, sizeof v->m->state);
}

static uint64_t bytes_at(const picture *v, const live_bytes *work, int tier, int class, int i) {
  return v->state[tier][class] + work[i].of[tier][class];
}

static uint64_t sum_at(const picture *v, const live_bytes *work, int tier, int i) {
  uint64_t sum = 0;
  for (int c = 0; c < MEM_CLASS_COUNT; c++) sum += bytes_at(v, work, tier, c, i);
  return sum;
}

static uint64_t peak_of(const picture *v, int tier) {
  uint64_t most = 0;
  for (int i = 0; i < PLACES; i++) {
    uint64_t sum = sum_at(v, v->work, tier, i);
    if (sum > most) most = sum;
  }
  return most;
}

/* Arena and named tensors. */
static uint64_t planned_of(const picture *v, int tier) {
  uint64_t sum = v->p->arena[tier];
  if (v->m) return v->m->tier[tier].planned_bytes;
  for (int c = 0; c < MEM_CLASS_COUNT; c++) sum += v->state[tier][c];
  return sum;
}

static uint64_t limit_of(const picture *v, int tier) {
  return v->m && tier == TIER_DEVICE ? v->m->limit_bytes : 0;
}

static bool is_used(const picture *v, int tier) {
  return tier == TIER_DEVICE || peak_of(v, tier) > 0;
}

static bool has_class(const picture *v, int class) {
  for (int t = 0; t < TIER_COUNT; t++)
    for (int i = 0; i < PLACES; i++)
      if (bytes_at(v, v->work, t, class, i)) return true;
  return false;
}

/* --- a tier -------------------------------------------------------------------------------------
 */

typedef struct {
  double top, bottom;
  uint64_t most; /* bytes at the top */
} panel;

static double y_of(const panel *a, double bytes) {
  double share = a->most ? bytes / (double)a->most : 0;
  return a->bottom - share * (a->bottom - a->top);
}

static double x_of(int i) {
  return LANES_LEFT + (double)(LANES_WIDTH - LANES_LEFT - LANES_RIGHT) * i / PLACES;
}

/* Steps along heights, from left to right or back; equal heights are one line. */
static void add_edge(const double *y, bool back, str *out) {
  for (int k = 0; k < PLACES; k++) {
    int i = back ? PLACES - 1 - k : k;
    if (!k) str_printf(out, "%s%.1f %.1f", back ? "L" : "M", x_of(back ? PLACES : 0), y[i]);
    else if (y[i] != y[back ? i + 1 : i - 1])
      str_printf(out, "H%.1fV%.1f", x_of(back ? i + 1 : i), y[i]);
  }
  str_printf(out, "H%.1f", x_of(back ? 0 : PLACES));
}

static void draw_layer(const picture *v, const panel *a, int tier, int layer, double *below) {
  double top[PLACES];
  bool any = false;
  str tip = {0};
  int class = layers[layer].class;
  uint64_t most = 0;
  for (int i = 0; i < PLACES; i++) {
    uint64_t bytes = bytes_at(v, v->work, tier, class, i);
    any |= bytes > 0;
    if (bytes > most) most = bytes;
    top[i] = below[i] - (a->bottom - y_of(a, (double)bytes));
  }
  if (!any) return;
  str_add(v->out, "<path d=\"");
  add_edge(top, false, v->out);
  add_edge(below, true, v->out);
  str_printf(v->out, "Z\" class=\"d%d\"><title>", layers[layer].color);
  str_printf(&tip, "%s on %s: at most ", mem_class_name((mem_class) class), tier_name(tier));
  units_add_bytes(&tip, (double)most);
  str_add_xml(v->out, tip.at ? tip.at : "");
  str_add(v->out, "</title></path>\n");
  v->out->failed |= tip.failed;
  str_free(&tip);
  memcpy(below, top, sizeof top);
}

/* The prediction, over what was measured. */
static void draw_compared(const picture *v, const panel *a, int tier) {
  double y[PLACES];
  if (!v->compared_work) return;
  for (int i = 0; i < PLACES; i++) y[i] = y_of(a, (double)sum_at(v, v->compared_work, tier, i));
  str_add(v->out, "<path d=\"");
  add_edge(y, false, v->out);
  str_add(v->out, "\" class=\"expected\"><title>predicted</title></path>\n");
}

/* A power of two whose lines are far enough apart. */
static uint64_t tick_of(const panel *a) {
  uint64_t tick = 1, lines = (uint64_t)((a->bottom - a->top) / TICK);
  while (a->most / tick > lines) tick *= 2;
  return tick;
}

static void draw_scale(const picture *v, const panel *a) {
  uint64_t tick = tick_of(a);
  for (uint64_t bytes = 0; bytes <= a->most; bytes += tick) {
    str text = {0};
    double y = y_of(a, (double)bytes);
    units_add_bytes(&text, (double)bytes);
    svg_line(v->out, LANES_LEFT, y, LANES_WIDTH - LANES_RIGHT, y, "grid", -1);
    svg_text(v->out, LANES_LEFT - 8, y + 4, SVG_END, true, LANES_LEFT - 10, text.at ? text.at : "");
    v->out->failed |= text.failed;
    str_free(&text);
  }
}

static void add_bytes(const char *before, uint64_t bytes, str *out) {
  str_add(out, before);
  units_add_bytes(out, (double)bytes);
}

static void draw_title(const picture *v, const panel *a, int tier) {
  str line = {0};
  uint64_t limit = limit_of(v, tier);
  str_add(&line, tier_name(tier));
  add_bytes(": at most ", peak_of(v, tier), &line);
  add_bytes(" in use, planned ", planned_of(v, tier), &line);
  if (limit) add_bytes(", limit ", limit, &line);
  svg_text(v->out, LANES_LEFT, a->top - 9, SVG_START, false, LANES_WIDTH - LANES_LEFT - 20,
           line.at ? line.at : "");
  v->out->failed |= line.failed;
  str_free(&line);
}

static void draw_panel(const picture *v, const panel *a, int tier) {
  double below[PLACES], right = LANES_WIDTH - LANES_RIGHT;
  uint64_t limit = limit_of(v, tier);
  for (int i = 0; i < PLACES; i++) below[i] = a->bottom;
  draw_title(v, a, tier);
  draw_scale(v, a);
  for (int k = 0; k < LAYERS; k++) draw_layer(v, a, tier, k, below);
  draw_compared(v, a, tier);
  double planned = y_of(a, (double)planned_of(v, tier));
  svg_line(v->out, LANES_LEFT, planned, right, planned, "planned", -1);
  if (!limit) return;
  svg_line(v->out, LANES_LEFT, y_of(a, (double)limit), right, y_of(a, (double)limit), "limit", -1);
}

/* --- around it ----------------------------------------------------------------------------------
 */

static void put_seconds(const char *before, double s, str *out) {
  str_add(out, before);
  units_add_seconds(out, s);
}

static hp_status add_run(const lanes *l, const char *name, str *line) {
  double copy_s = 0, exposed_s;
  put_seconds(name, inst_times_end(l->t, l->p->insts.len), line);
  for (size_t i = 0; i < l->p->insts.len; i++)
    if (stream_copies(program_inst(l->p, i)->stream)) copy_s += l->t[i].end_s - l->t[i].start_s;
  if (!(copy_s > 0)) return HP_OK;
  HP_TRY(exposed_copies(l->p, l->t, NULL, &exposed_s));
  put_seconds(", copies ", copy_s, line);
  put_seconds(" (", exposed_s, line);
  str_add(line, " exposed)");
  return HP_OK;
}

static hp_status draw_summary(const picture *v) {
  str line = {0};
  bool measured = v->compared.t != NULL;
  hp_status st = add_run(&v->shown, measured ? "measured: " : "predicted: ", &line);
  if (!st && measured) st = add_run(&v->compared, "; predicted: ", &line);
  if (!st) st = str_status(&line);
  if (!st)
    svg_text(v->out, LANES_LEFT, 16, SVG_START, false, LANES_WIDTH - LANES_LEFT - 10, line.at);
  str_free(&line);
  return st;
}

/* Classes, and the lines. */
static void draw_legend(const picture *v, double y) {
  static const struct {
    const char *name, *class;
  } lines[] = {{"planned", "planned"}, {"limit", "limit"}, {"predicted", "expected"}};
  bool shown[] = {true, limit_of(v, TIER_DEVICE) > 0, v->compared.t != NULL};
  double x = LANES_LEFT;
  for (int k = 0; k < LAYERS; k++) {
    const char *name = mem_class_name(layers[k].class);
    if (!has_class(v, layers[k].class)) continue;
    svg_box(v->out, x, y - 10, 12, 12, "d", layers[k].color, NULL);
    svg_text(v->out, x + 18, y, SVG_START, true, 120, name);
    x += 18 + SVG_CHAR * (double)strlen(name) + 20;
  }
  for (size_t k = 0; k < sizeof lines / sizeof *lines; k++) {
    if (!shown[k]) continue;
    svg_line(v->out, x, y - 4, x + 22, y - 4, lines[k].class, -1);
    svg_text(v->out, x + 28, y, SVG_START, true, 120, lines[k].name);
    x += 28 + SVG_CHAR * (double)strlen(lines[k].name) + 20;
  }
}

static double panel_height(int tier) { return tier == TIER_DEVICE ? DEVICE_PANEL : PANEL; }

static double height_of(const picture *v) {
  double y = TOP;
  for (int t = 0; t < TIER_COUNT; t++)
    if (is_used(v, t)) y += TITLE + panel_height(t) + GAP;
  double rows = lanes_count(v->p) * LANES_STEP;
  return y + TITLE + rows + (v->compared.t ? TITLE + rows : 0) + LANES_AXIS;
}

static double draw_lanes(const picture *v, const lanes *l, const char *title, double y) {
  svg_text(v->out, LANES_LEFT, y + TITLE - 9, SVG_START, false, 300, title);
  lanes_draw(l, y + TITLE, v->out);
  return y + TITLE + lanes_count(v->p) * LANES_STEP;
}

static hp_status draw(const picture *v, bool in_page) {
  double height = height_of(v), y = TOP;
  bool measured = v->compared.t != NULL;
  svg_begin(v->out, LANES_WIDTH, height, in_page);
  hp_status st = draw_summary(v);
  draw_legend(v, 36);
  lanes_draw_legend(v->p, 56, v->out);
  lanes_draw_axis(&v->shown, TOP + TITLE, height - LANES_AXIS, v->out);
  for (int t = 0; t < TIER_COUNT; t++) {
    uint64_t limit = limit_of(v, t), planned = planned_of(v, t);
    if (!is_used(v, t)) continue;
    panel a = {y + TITLE, y + TITLE + panel_height(t), limit > planned ? limit : planned};
    if (limit > 2 * planned) a.most = planned; /* far away: the title tells it */
    draw_panel(v, &a, t);
    y = a.bottom + GAP;
  }
  y = draw_lanes(v, &v->shown, measured ? "measured" : "predicted", y);
  if (measured) draw_lanes(v, &v->compared, "predicted", y);
  svg_end(v->out);
  return st ? st : str_status(v->out);
}

hp_status memory_picture(const program *p, const mesh *on, const inst_times *predicted,
                         const inst_times *measured, const hp_memory *m, bool in_page, str *out) {
  const inst_times *t = measured ? measured : predicted;
  double full_s = inst_times_end(t, p->insts.len),
         other_s = inst_times_end(predicted, p->insts.len);
  if (other_s > full_s) full_s = other_s;
  picture v = {.p = p,
               .m = m,
               .shown = {p, on, t, full_s},
               .compared = {p, on, measured ? predicted : NULL, full_s},
               .work = mem_calloc(PLACES, sizeof *v.work),
               .out = out};
  hp_status st = v.work ? HP_OK : HP_ERR_OOM;
  if (!st) st = memory_over_time(p, t, full_s, v.work, PLACES);
  if (!st && measured) {
    v.compared_work = mem_calloc(PLACES, sizeof *v.compared_work);
    st = v.compared_work ? memory_over_time(p, predicted, full_s, v.compared_work, PLACES)
                         : HP_ERR_OOM;
  }
  if (!st) {
    count_states(&v);
    st = draw(&v, in_page);
  }
  mem_free(v.work);
  mem_free(v.compared_work);
  return st;
}
