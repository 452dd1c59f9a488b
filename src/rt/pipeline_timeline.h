/* The picture of a pipeline: what each device computes over time, coloured by micro-batch, as
 * planned and as measured. */
#ifndef RT_PIPELINE_TIMELINE_H
#define RT_PIPELINE_TIMELINE_H

#include "compile/pipeline_rows.h"
#include "rt/exec.h"

/* What a device computed of a stage and micro-batch without a break. */
typedef struct {
  uint32_t device; /* of the pipeline */
  uint16_t stage;
  uint8_t phase;  /* ir_phase */
  uint32_t micro; /* none in the update */
  double start_s, end_s;
} measured_row;
typedef VEC(measured_row) measured_rows;

/* Adds those of the last run of a mesh's first device; times from origin_s (time_now_s) on. */
hp_status pipeline_timeline_measure(const exec *e, uint32_t on, double origin_s,
                                    measured_rows *out);
/* name: of the schedule; m: behind the plan, NULL: the plan alone; in_page: as svg_begin. */
hp_status pipeline_timeline_svg(const pipeline_plan *p, const char *name, const measured_rows *m,
                                bool in_page, str *out);

#endif
