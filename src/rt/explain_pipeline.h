/* The plan of a pipeline: what stages cost, the rows of each device, and where devices are idle. */
#ifndef RT_EXPLAIN_PIPELINE_H
#define RT_EXPLAIN_PIPELINE_H

#include "compile/pipeline_rows.h"

/* what: "pipeline", "pipeline.json" or "pipeline.svg", a timeline of all devices. schedule: its
 * name, or rows. */
hp_status explain_pipeline(const pipeline_plan *p, const char *schedule, const char *what,
                           str *out);

#endif
