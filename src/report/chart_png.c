#include "report/chart_canvas.h"

#include <cairo.h>
#include <dlfcn.h>
#include <string.h>

typedef struct {
  double r, g, b, width, size; /* width of a stroke, size of a font */
  bool bold, dashed;
} look;

static const look inks[] = {{.90, .91, .92, 1, 0, false, false},
                            {.61, .64, .69, 1, 0, false, false},
                            {.42, .45, .50, 0, 12, false, false},
                            {.22, .25, .32, 0, 13, false, false},
                            {.07, .09, .15, 0, 15, false, false},
                            {.86, .15, .15, 1.2, 0, false, true}};
static const look colors[CHART_COLORS] = {{.145, .388, .922, 1.8, 0, false, false},
                                          {.851, .467, .024, 1.8, 0, false, false},
                                          {.020, .588, .412, 1.8, 0, false, false},
                                          {.486, .227, .929, 1.8, 0, false, false},
                                          {.863, .149, .149, 1.8, 0, false, false},
                                          {.031, .569, .698, 1.8, 0, false, false},
                                          {.859, .153, .467, 1.8, 0, false, false},
                                          {.392, .455, .545, 1.8, 0, false, false}};

static const look *use_style(cairo_t *to, chart_style s) {
  static const double dash[] = {6, 4};
  const look *l = s.ink == INK_COLOR ? &colors[s.color % CHART_COLORS] : &inks[s.ink];
  cairo_set_source_rgba(to, l->r, l->g, l->b, s.opacity);
  cairo_set_line_width(to, l->width);
  cairo_set_dash(to, dash, l->dashed ? 2 : 0, 0);
  return l;
}

static void png_path(canvas *c, const double *xy, size_t points, chart_style s) {
  cairo_t *to = c->to;
  use_style(to, s);
  for (size_t i = 0; i < points; i++) cairo_line_to(to, xy[2 * i], xy[2 * i + 1]);
  if (points == 1) cairo_line_to(to, xy[0] + 0.01, xy[1]);
  if (s.fill) cairo_fill(to);
  else cairo_stroke(to);
}

static void png_text(canvas *c, double x, double y, chart_anchor a, bool up, chart_style s,
                     const char *text) {
  cairo_t *to = c->to;
  cairo_text_extents_t e;
  const look *l = use_style(to, s);
  cairo_save(to);
  cairo_set_font_size(to, l->size);
  cairo_text_extents(to, text, &e);
  cairo_translate(to, x, y);
  if (up) cairo_rotate(to, -1.5707963267948966);
  cairo_move_to(to, a == ANCHOR_START ? 0 : a == ANCHOR_MIDDLE ? -e.width / 2 : -e.width, 0);
  cairo_show_text(to, text);
  cairo_restore(to);
  cairo_new_path(to);
}

static cairo_status_t write_part(void *out, const unsigned char *bytes, unsigned n) {
  str_add_n(out, (const char *)bytes, n);
  return ((str *)out)->failed ? CAIRO_STATUS_NO_MEMORY : CAIRO_STATUS_SUCCESS;
}

/* Fonts are looked up through fontconfig, which keeps all it found: a chart is drawn once in a run,
 * so give it back.  cairo loads the library; this one does not link it. */
static void free_fonts(void) {
  void (*finish)(void);
  cairo_debug_reset_static_data();
  *(void **)&finish = dlsym(RTLD_DEFAULT, "FcFini");
  if (finish) finish();
}

hp_status chart_png(const chart *c, str *out) {
  cairo_surface_t *image =
      cairo_image_surface_create(CAIRO_FORMAT_RGB24, (int)c->width, (int)c->height);
  cairo_t *to = cairo_create(image);
  canvas on = {.path = png_path, .text = png_text, .to = to};
  cairo_set_source_rgb(to, 1, 1, 1);
  cairo_paint(to);
  cairo_set_line_join(to, CAIRO_LINE_JOIN_ROUND);
  cairo_set_line_cap(to, CAIRO_LINE_CAP_ROUND);
  cairo_select_font_face(to, "sans-serif", CAIRO_FONT_SLANT_NORMAL, CAIRO_FONT_WEIGHT_NORMAL);
  bool drawn = chart_draw(c, &on);
  cairo_status_t st = cairo_status(to);
  if (drawn && !st) st = cairo_surface_write_to_png_stream(image, write_part, out);
  cairo_destroy(to);
  cairo_surface_destroy(image);
  free_fonts();
  if (!drawn || out->failed) return HP_ERR_OOM;
  if (st) HP_FAIL(HP_ERR_IO, "the chart cannot be drawn: %s", cairo_status_to_string(st));
  return HP_OK;
}
