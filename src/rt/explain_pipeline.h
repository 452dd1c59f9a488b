/* The plan of a pipeline: what stages cost, the rows of each device, and where devices are idle. */
#ifndef RT_EXPLAIN_PIPELINE_H
#define RT_EXPLAIN_PIPELINE_H

#include "compile/pipeline_blocks.h"

/* What is told besides the plan. */
typedef struct {
  const char *schedule;                        /* its name, or rows */
  const uint64_t *planned_bytes, *state_bytes; /* [devices] of the pipeline, of one of its mesh */
  block_costs blocks;                          /* for pipeline.json */
} pipeline_told;

/* The schedule for people: its name, or that it is rows. */
const char *explain_pipeline_name(const pipeline_plan *p, const char *schedule);
/* what: "pipeline", "pipeline.json" (or "pipeline.costs.json", if memory was not planned), or
 * "pipeline.svg", a timeline of all devices. */
hp_status explain_pipeline(const pipeline_plan *p, const pipeline_told *told, const char *what,
                           str *out);

#endif
