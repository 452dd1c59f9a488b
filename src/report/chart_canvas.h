/* What a chart is drawn with: a handful of shapes, as SVG text or through cairo. */
#ifndef REPORT_CHART_CANVAS_H
#define REPORT_CHART_CANVAS_H

#include "report/chart.h"

typedef enum { INK_GRID, INK_AXIS, INK_TICK, INK_LABEL, INK_TITLE, INK_LIMIT, INK_COLOR } chart_ink;
typedef enum { ANCHOR_START, ANCHOR_MIDDLE, ANCHOR_END } chart_anchor;

typedef struct {
  chart_ink ink;
  int color; /* of the palette, for INK_COLOR */
  double opacity;
  bool fill; /* the path is closed and filled */
} chart_style;

typedef struct canvas canvas;
struct canvas {
  void (*path)(canvas *, const double *xy, size_t points, chart_style);
  /* up: turned a quarter to the left, around (x, y) */
  void (*text)(canvas *, double x, double y, chart_anchor, bool up, chart_style, const char *);
  void *to; /* str of the SVG, or cairo_t */
};

enum { CHART_COLORS = 8 };
/* Draws the chart; false when out of memory. */
bool chart_draw(const chart *c, canvas *on);

#endif
