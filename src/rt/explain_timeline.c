#include "rt/explain_timeline.h"

#include "base/units.h"
#include "rt/explain_comm.h"
#include "rt/lanes.h"
#include "rt/svg.h"
#include "sim/predict.h"

enum { TOP = 58 }; /* summary and legend */

static void put_seconds(const char *before, double s, str *out) {
  str_add(out, before);
  units_add_seconds(out, s);
}

static hp_status add_copies(const lanes *l, str *line) {
  double copy_s = 0, exposed_s;
  for (size_t i = 0; i < l->p->insts.len; i++)
    if (stream_copies(program_inst(l->p, i)->stream)) copy_s += l->t[i].end_s - l->t[i].start_s;
  if (!(copy_s > 0)) return HP_OK;
  HP_TRY(exposed_copies(l->p, l->t, NULL, &exposed_s));
  put_seconds("; copies between tiers ", copy_s, line);
  put_seconds(", of which ", exposed_s, line);
  str_add(line, " exposed");
  return HP_OK;
}

static hp_status draw_summary(const lanes *l, bool measured, str *out) {
  comm_time sum;
  str line = {0};
  HP_TRY(comm_times(l->p, l->t, NULL, &sum));
  put_seconds(measured ? "measured: " : "predicted: ", l->full_s, &line);
  if (sum.comm_s > 0) {
    put_seconds("; communication ", sum.comm_s, &line);
    put_seconds(", of which ", sum.overlapped_s, &line);
    put_seconds(" overlapped with computation and ", sum.comm_s - sum.overlapped_s, &line);
    str_add(&line, " exposed");
  }
  hp_status st = add_copies(l, &line);
  if (!st) st = str_status(&line);
  if (!st) svg_text(out, LANES_LEFT, 16, SVG_START, false, LANES_WIDTH - LANES_LEFT, line.at);
  str_free(&line);
  return st;
}

hp_status explain_timeline_svg(const program *p, const mesh *m, const inst_times *t, bool measured,
                               str *out) {
  const lanes l = {p, m, t, inst_times_end(t, p->insts.len)};
  double bottom = TOP + lanes_count(p) * LANES_STEP;
  svg_begin(out, LANES_WIDTH, bottom + LANES_AXIS, true);
  hp_status st = draw_summary(&l, measured, out);
  lanes_draw_legend(p, 40, out);
  lanes_draw_axis(&l, TOP, bottom, out);
  lanes_draw(&l, TOP, out);
  svg_end(out);
  return st ? st : str_status(out);
}
