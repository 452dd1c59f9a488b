/* The streams of a run over time as rows of a picture: what they compute, communicate and copy, and
 * what of it is exposed. */
#ifndef RT_LANES_H
#define RT_LANES_H

#include "base/str.h"
#include "prog/program.h"
#include "topo/mesh.h"

enum {
  LANES_WIDTH = 1060, /* of the picture */
  LANES_LEFT = 112,   /* start of the rows, after their names */
  LANES_RIGHT = 16,
  LANES_ROW = 26,
  LANES_STEP = 36, /* from a row to the next */
  LANES_AXIS = 26  /* height of the axis */
};

typedef struct {
  const program *p;
  const mesh *m;
  const inst_times *t; /* measured or predicted */
  double full_s;       /* seconds that the width stands for */
} lanes;

/* Rows: one a stream that is used, and one for what is exposed, if anything can be. */
int lanes_count(const program *p);
/* Where a time is. */
double lanes_x(const lanes *l, double s);
/* Draws the rows with their names, from y on. */
void lanes_draw(const lanes *l, double y, str *out);
/* The looks that the rows use, with their names; y: of the text. */
void lanes_draw_legend(const program *p, double y, str *out);
/* Lines at some times from top to bottom, with the times below. */
void lanes_draw_axis(const lanes *l, double top, double bottom, str *out);

#endif
