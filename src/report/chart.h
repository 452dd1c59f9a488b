/* Line charts over steps: as SVG for files and pages, as PNG (through cairo).  One layout for both.
 */
#ifndef REPORT_CHART_H
#define REPORT_CHART_H

#include "base/str.h"

enum { CHART_GREY = 7 };

typedef struct {
  const char *name;
  const double *x, *y; /* x does not fall; a value that is not finite makes a gap */
  size_t n;
  int color;          /* 0, 1, 2 ... of the palette; CHART_GREY */
  double opacity;     /* 0..1 */
  const double *base; /* not NULL: the area between this and y is filled */
} chart_line;

typedef struct {
  const char *title, *x_label, *y_label; /* NULL: none */
  const chart_line *line;
  int lines;
  double width, height; /* pixels */
  bool from_zero;       /* the y axis begins at 0 */
  bool bytes;           /* y is bytes: ticks as 1.5 GiB */
  double limit;         /* > 0: a dashed horizontal line here */
  const char *limit_name;
} chart;

typedef enum {
  CHART_ALONE,  /* a file of its own, with its own light and dark colours */
  CHART_IN_PAGE /* inside a page that defines the classes and variables */
} chart_use;

void chart_svg(const chart *c, chart_use use, str *out);
/* HP_ERR_IO when cairo fails. */
hp_status chart_png(const chart *c, str *out);

/* LlamaFactory's smoothing: an exponential mean with weight 1.8 (1 / (1 + exp(-0.05 n)) - 0.5). */
void chart_smooth(const double *y, size_t n, double *out);

/* The plot's frame and scale, for what a page draws over it: y rises upwards. */
typedef struct {
  double left, right, top, bottom; /* of the plot, in pixels */
  double x0, x1, y0, y1;           /* values at left, right, bottom, top */
  double x_step, y_step;           /* between ticks */
} chart_frame;
chart_frame chart_layout(const chart *c);

/* 1536 -> "1.5 KiB"; 12345678 -> "12.3 M" */
void chart_print_bytes(double x, str *out);
void chart_print_count(double x, str *out);

#endif
