#include "report/chart_canvas.h"

#include <string.h>

static const char *const ink_class[] = {"grid", "axis", "tick", "label", "title", "limit", "c"};

static void add_class(str *out, chart_style s) {
  str_printf(out, " class=\"%s%s", s.fill ? "area " : "", ink_class[s.ink]);
  if (s.ink == INK_COLOR) str_printf(out, "%d", s.color % CHART_COLORS);
  str_add_char(out, '"');
  if (s.opacity < 1) str_printf(out, " opacity=\"%g\"", s.opacity);
}

static void svg_path(canvas *c, const double *xy, size_t points, chart_style s) {
  str *out = c->to;
  str_add(out, "<path");
  add_class(out, s);
  str_add(out, " d=\"");
  for (size_t i = 0; i < points; i++)
    str_printf(out, "%s%.2f %.2f", i ? "L" : "M", xy[2 * i], xy[2 * i + 1]);
  if (s.fill) str_add_char(out, 'Z');
  if (points == 1) str_add(out, "h.01"); /* a point that a round cap makes seen */
  str_add(out, "\"/>\n");
}

static void svg_text(canvas *c, double x, double y, chart_anchor a, bool up, chart_style s,
                     const char *text) {
  static const char *const anchor[] = {"start", "middle", "end"};
  str *out = c->to;
  str_printf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\"", x, y, anchor[a]);
  if (up) str_printf(out, " transform=\"rotate(-90 %.1f %.1f)\"", x, y);
  add_class(out, s);
  str_add_char(out, '>');
  str_add_xml(out, text);
  str_add(out, "</text>\n");
}

static const char style[] =
    "<style>\n"
    "svg{background:#fff;font:13px system-ui,sans-serif}path{fill:none;stroke-linejoin:round;"
    "stroke-linecap:round}\n"
    ".grid{stroke:#e5e7eb}.axis{stroke:#9ca3af}.limit{stroke:#dc2626;stroke-dasharray:6 4}\n"
    ".tick{fill:#6b7280;font-size:12px}.label{fill:#374151}.title{fill:#111827;font-size:15px}\n"
    ".c0{stroke:#2563eb}.c1{stroke:#d97706}.c2{stroke:#059669}.c3{stroke:#7c3aed}.c4{stroke:"
    "#dc2626}.c5{stroke:#0891b2}.c6{stroke:#db2777}.c7{stroke:#64748b}\n"
    "[class^=c]{stroke-width:1.8}\n"
    "@media(prefers-color-scheme:dark){svg{background:#111827}.grid{stroke:#1f2937}.axis{stroke:"
    "#4b5563}.tick{fill:#9ca3af}.label{fill:#d1d5db}.title{fill:#f3f4f6}.c0{stroke:#60a5fa}}\n"
    "</style>\n";

void chart_svg(const chart *c, chart_use use, str *out) {
  canvas on = {.path = svg_path, .text = svg_text, .to = out};
  str_printf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\"", c->width,
             c->height);
  if (use == CHART_ALONE) str_printf(out, " width=\"%g\" height=\"%g\"", c->width, c->height);
  str_add(out, " role=\"img\">\n");
  if (use == CHART_ALONE) str_add(out, style);
  if (!chart_draw(c, &on)) out->failed = true;
  str_add(out, "</svg>\n");
}
