#include "report/chart.h"

#include "base/units.h"
#include "report/chart_canvas.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void chart_smooth(const double *y, size_t n, double *out) {
  double weight = 1.8 * (1 / (1 + exp(-0.05 * (double)n)) - 0.5);
  double last = n ? y[0] : 0;
  for (size_t i = 0; i < n; i++) out[i] = last = last * weight + (1 - weight) * y[i];
}

/* --- scale ------------------------------------------------------------------------------------ */

/* 1, 2 or 5 x 10^k, such that `range` is cut into about `parts`. */
static double nice_step(double range, int parts) {
  double raw = range / parts, power = pow(10, floor(log10(raw))), lead = raw / power;
  return power * (lead <= 1.4 ? 1 : lead <= 2.8 ? 2 : lead <= 7 ? 5 : 10);
}

/* For bytes: a power of two. */
static double round_to_nice_bytes(double range, int parts) {
  return exp2(round(log2(range / parts)));
}

static void find_extent(const chart *c, double *x0, double *x1, double *y0, double *y1) {
  *x0 = *y0 = INFINITY;
  *x1 = *y1 = -INFINITY;
  for (int i = 0; i < c->lines; i++)
    for (size_t k = 0; k < c->line[i].n; k++) {
      double x = c->line[i].x[k], y = c->line[i].y[k];
      if (!isfinite(x) || !isfinite(y)) continue;
      *x0 = fmin(*x0, x);
      *x1 = fmax(*x1, x);
      *y0 = fmin(*y0, c->line[i].base ? c->line[i].base[k] : y);
      *y1 = fmax(*y1, y);
    }
  if (c->limit > 0) *y1 = fmax(*y1, c->limit);
}

chart_frame chart_layout(const chart *c) {
  chart_frame f = {.left = c->bytes     ? 84
                           : c->y_label ? 76
                                        : 60,
                   .right = c->width - 18,
                   .top = (c->title ? 40 : 14) + (c->lines > 1 ? 20 : 0),
                   .bottom = c->height - (c->x_label ? 50 : 30)};
  find_extent(c, &f.x0, &f.x1, &f.y0, &f.y1);
  if (!(f.x1 >= f.x0)) f.x0 = f.y0 = 0, f.x1 = f.y1 = 1; /* nothing to show */
  if (c->from_zero && f.y0 > 0) f.y0 = 0;
  if (f.x1 <= f.x0) f.x0 -= 0.5, f.x1 += 0.5;
  double height = f.y1 - f.y0, least = fmax(fabs(f.y0), fabs(f.y1)) * 1e-6;
  if (!(height > least)) height = least > 0 ? least : 1;
  f.y1 += height * 0.05;
  if (!c->from_zero || f.y0 < 0) f.y0 -= height * 0.05;
  f.x_step = fmax(1, nice_step(f.x1 - f.x0, c->width < 500 ? 4 : 6));
  f.y_step = c->bytes ? round_to_nice_bytes(f.y1 - f.y0, 5) : nice_step(f.y1 - f.y0, 5);
  return f;
}

static double map_x(const chart_frame *f, double x) {
  return f->left + (x - f->x0) / (f->x1 - f->x0) * (f->right - f->left);
}
static double map_y(const chart_frame *f, double y) {
  return f->bottom - (y - f->y0) / (f->y1 - f->y0) * (f->bottom - f->top);
}

/* --- words ------------------------------------------------------------------------------------ */

void chart_print_bytes(double x, str *out) { units_add_bytes(out, x); }
void chart_print_count(double x, str *out) { units_add_count(out, x); }

/* A tick's value: as many decimals as its step has, or powers of ten for the very small. */
static void print_tick(double x, double step, bool bytes, str *out) {
  if (fabs(x) < step * 1e-9) x = 0;
  if (bytes) chart_print_bytes(x, out);
  else if (step < 1e-3) str_printf(out, "%.3g", x);
  else if (fabs(x) >= 1e5) chart_print_count(x, out);
  else str_printf(out, "%.*f", step >= 1 ? 0 : (int)ceil(-log10(step) - 1e-9), x);
}

/* --- drawing ---------------------------------------------------------------------------------- */

static void draw_segment(canvas *on, double x0, double y0, double x1, double y1, chart_ink ink) {
  double xy[] = {x0, y0, x1, y1};
  on->path(on, xy, 2, (chart_style){.ink = ink, .opacity = 1});
}

static void draw_label(canvas *on, double x, double y, chart_anchor a, chart_ink ink,
                       const char *text) {
  on->text(on, x, y, a, false, (chart_style){.ink = ink, .opacity = 1}, text);
}

static bool draw_axes(const chart *c, const chart_frame *f, canvas *on) {
  str text = {0};
  for (double y = ceil(f->y0 / f->y_step) * f->y_step; y <= f->y1; y += f->y_step) {
    text.len = 0; /* a failure stays */
    print_tick(y, f->y_step, c->bytes, &text);
    draw_segment(on, f->left, map_y(f, y), f->right, map_y(f, y), INK_GRID);
    if (text.at) draw_label(on, f->left - 8, map_y(f, y) + 4, ANCHOR_END, INK_TICK, text.at);
  }
  for (double x = ceil(f->x0 / f->x_step) * f->x_step; x <= f->x1; x += f->x_step) {
    text.len = 0;
    print_tick(x, f->x_step, false, &text);
    draw_segment(on, map_x(f, x), f->bottom, map_x(f, x), f->bottom + 4, INK_AXIS);
    if (text.at) draw_label(on, map_x(f, x), f->bottom + 18, ANCHOR_MIDDLE, INK_TICK, text.at);
  }
  draw_segment(on, f->left, f->bottom, f->right, f->bottom, INK_AXIS);
  bool ok = !text.failed;
  str_free(&text);
  return ok;
}

static void draw_words(const chart *c, const chart_frame *f, canvas *on) {
  chart_style up = {.ink = INK_LABEL, .opacity = 1};
  double middle = (f->left + f->right) / 2;
  if (c->title) draw_label(on, c->width / 2, 24, ANCHOR_MIDDLE, INK_TITLE, c->title);
  if (c->x_label) draw_label(on, middle, f->bottom + 38, ANCHOR_MIDDLE, INK_LABEL, c->x_label);
  if (c->y_label) on->text(on, 18, (f->top + f->bottom) / 2, ANCHOR_MIDDLE, true, up, c->y_label);
  double x = f->left;
  for (int i = 0; i < c->lines && c->lines > 1; i++) {
    const chart_line *l = &c->line[i];
    double xy[] = {x, f->top - 14, x + 22, f->top - 14};
    on->path(on, xy, 2, (chart_style){INK_COLOR, l->color, l->opacity, false});
    draw_label(on, x + 28, f->top - 10, ANCHOR_START, INK_LABEL, l->name);
    x += 28 + 7.5 * (double)strlen(l->name) + 18;
  }
  if (!(c->limit > 0)) return;
  draw_segment(on, f->left, map_y(f, c->limit), f->right, map_y(f, c->limit), INK_LIMIT);
  if (c->limit_name)
    draw_label(on, f->right - 4, map_y(f, c->limit) - 5, ANCHOR_END, INK_LABEL, c->limit_name);
}

/* Of many points in one column of half a pixel the first, lowest, highest and last are drawn. */
typedef struct {
  const chart_frame *frame;
  const chart_line *line;
  double *xy;
  size_t points;
  size_t first, low, high, last; /* of the column */
} thinner;

static void put_point(thinner *t, size_t i) {
  t->xy[2 * t->points] = map_x(t->frame, t->line->x[i]);
  t->xy[2 * t->points++ + 1] = map_y(t->frame, t->line->y[i]);
}

static void put_column(thinner *t) {
  size_t a = t->low < t->high ? t->low : t->high, b = t->low < t->high ? t->high : t->low;
  put_point(t, t->first);
  if (a != t->first && a != t->last) put_point(t, a);
  if (b != a && b != t->first && b != t->last) put_point(t, b);
  if (t->last != t->first) put_point(t, t->last);
}

static bool draw_line(const chart_frame *f, const chart_line *l, canvas *on) {
  size_t most = 8 * ((size_t)(f->right - f->left) + 2);
  chart_style style = {INK_COLOR, l->color, l->opacity, false};
  thinner t = {.frame = f, .line = l, .xy = mem_calloc(most, 2 * sizeof *t.xy)};
  bool open = false;
  double column = 0;
  if (!t.xy) return false;
  for (size_t i = 0; i <= l->n; i++) {
    bool shown = i < l->n && isfinite(l->x[i]) && isfinite(l->y[i]);
    double here = shown ? floor(2 * map_x(f, l->x[i])) : 0;
    if (open && (!shown || here != column)) put_column(&t);
    if (!shown || t.points + 8 > most) {
      if (t.points) on->path(on, t.xy, t.points, style);
      t.points = 0;
    }
    if (shown && (!open || here != column)) t.first = t.low = t.high = i;
    if (shown) {
      if (l->y[i] < l->y[t.low]) t.low = i;
      if (l->y[i] > l->y[t.high]) t.high = i;
      t.last = i;
    }
    open = shown;
    column = here;
  }
  mem_free(t.xy);
  return true;
}

/* There and back; of the points of one pixel the highest is taken. */
static bool draw_area(const chart_frame *f, const chart_line *l, canvas *on) {
  size_t most = (size_t)(f->right - f->left) + 2, n = 0;
  size_t *at = mem_calloc(most, sizeof *at);
  double *xy = mem_calloc(most, 4 * sizeof *xy);
  for (size_t i = 0; at && xy && i < l->n; i++) {
    bool same = n && floor(map_x(f, l->x[i])) == floor(map_x(f, l->x[at[n - 1]]));
    if (!isfinite(l->y[i]) || !isfinite(l->base[i])) continue;
    if (!same && n < most) at[n++] = i;
    else if (l->y[i] > l->y[at[n - 1]]) at[n - 1] = i;
  }
  for (size_t i = 0; i < n; i++) {
    size_t back = 2 * n - 1 - i;
    xy[2 * i] = xy[2 * back] = map_x(f, l->x[at[i]]);
    xy[2 * i + 1] = map_y(f, l->y[at[i]]);
    xy[2 * back + 1] = map_y(f, l->base[at[i]]);
  }
  if (n) on->path(on, xy, 2 * n, (chart_style){INK_COLOR, l->color, l->opacity, true});
  bool ok = at && xy;
  mem_free(at);
  mem_free(xy);
  return ok;
}

bool chart_draw(const chart *c, canvas *on) {
  chart_frame f = chart_layout(c);
  if (!draw_axes(c, &f, on)) return false;
  for (int i = 0; i < c->lines; i++)
    if (!(c->line[i].base ? draw_area : draw_line)(&f, &c->line[i], on)) return false;
  draw_words(c, &f, on);
  return true;
}
