/* Memory that a device needs for optimizer steps and evaluations, found by planning them: nothing
 * runs, and the model may have no parameters on a device (lm_create with d NULL). */
#ifndef TRAIN_STEP_MEMORY_H
#define TRAIN_STEP_MEMORY_H

#include "train/step_pieces.h"

/* What is planned: a step of so many micro-batches, one of the first `fewer` of them (the last of
 * an epoch; 0: none), and batches of evaluations. */
typedef struct {
  const micro_shape *micro, *eval;
  int64_t micros, evals, fewer;
} step_work;

typedef struct {
  hp_program_stats stats; /* of the step; compile_s: with its pieces */
  uint64_t planned_bytes; /* of a device, evaluations too */
} step_memory;

/* Keeps what is compiled for one plan, for those that follow. */
typedef struct step_planner step_planner;
/* tell: what the plan decides by itself is told, once. */
hp_status step_planner_create(lm *m, const step_options *o, const step_work *w, hp_device *d,
                              bool tell, step_planner **out);
void step_planner_free(step_planner *p);

/* What the work takes under the memory limit of the device.  HP_ERR_OOM names the least that holds
 * all of it: parameters, states of the step, and work memory. */
hp_status step_memory_plan(step_planner *p, step_memory *out);
/* The plan of the step in words, `what` as for hp_plan_explain; hp_free(*text).  Where the options
 * have a dump_dir, the text of each stage goes there. */
hp_status step_memory_explain(step_planner *p, const char *what, char **text);

/* What any limit makes of it.  least: the least that is not refused; one byte less is.  The search
 * for it ends after about `seconds`: then least is 0, and enough is a limit that is not refused, or
 * 0 where a single plan under a limit would take longer. */
typedef struct {
  uint64_t resident; /* what step and evaluation take without any limit */
  uint64_t least, enough;
} step_limits;
/* The device is to have the limit `limit`, which it keeps. */
hp_status step_memory_limits(step_planner *p, uint64_t limit, double seconds, step_limits *out);

#endif
