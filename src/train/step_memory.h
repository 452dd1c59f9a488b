/* Memory that a device needs for optimizer steps and evaluations, found by planning them: nothing
 * runs, and the model may have no parameters on a device (lm_create with d NULL). */
#ifndef TRAIN_STEP_MEMORY_H
#define TRAIN_STEP_MEMORY_H

#include "train/step_pieces.h"

/* A program that is planned: a step of so many micro-batches, or an evaluation of a batch. */
typedef struct {
  micro_shape shape; /* of the last micro-batch; the others are like those of the first program */
  int64_t micros;    /* 0: an evaluation */
} planned_program;

/* What is planned.  The first program is the longest step. */
typedef struct {
  const planned_program *at;
  int64_t n;
} step_work;

typedef struct {
  hp_program_stats stats; /* of the longest step; compile_s: with its pieces */
  uint64_t planned_bytes; /* of a device, for all programs */
  int64_t largest;        /* the program that needs most */
  uint64_t reserve;       /* bytes of named tensors that it does not have, and others do */
  bool moves; /* under the limit a program keeps tensors on slower tiers, or recomputes */
} step_memory;

/* Keeps what one plan compiles, for the next ones. */
typedef struct step_planner step_planner;
/* tell: warn of options that are ignored. */
hp_status step_planner_create(lm *m, const step_options *o, const step_work *w, hp_device *d,
                              bool tell, step_planner **out);
void step_planner_free(step_planner *p);

/* What it was created with. */
typedef struct {
  lm *m;
  hp_device *d;
  const step_options *o;
  step_work work;
} planned_subject;
planned_subject step_planner_subject(const step_planner *p);
/* The model's layers are on other stages than before: what was compiled is dropped. */
void step_planner_drop_pieces(step_planner *p);

/* Memory of the work under the memory limit of the device; tells what the limit makes of the
 * longest step.  HP_ERR_OOM names the smallest limit that is enough for all.  The plan of the
 * longest step is *text, `what` as for hp_plan_explain; hp_free(*text); what NULL: none.  If the
 * options have a dump_dir, the text of each stage of that plan is written there. */
hp_status step_memory_plan(step_planner *p, step_memory *out, const char *what, char **text);

/* The plan of the longest step without any limit as text, `what` as for hp_plan_explain; remat:
 * with recomputation.  hp_free(*text). */
hp_status step_memory_explain(step_planner *p, bool remat, const char *what, char **text);

/* Memory with and without limits.  least: the smallest accepted limit.  The search for it stops
 * after about `seconds` of the processor: then least is 0, and enough is an accepted limit, or 0 if
 * a single plan under a limit would take longer. */
typedef struct {
  uint64_t resident; /* of all programs without any limit */
  uint64_t least, enough;
} step_limits;
/* Bytes of a device for all programs without any limit; takes the limit off the device. */
hp_status step_memory_resident(step_planner *p, uint64_t *out);
/* Replaces a share of the resident bytes by its bytes, which are told, and sets it as the limit of
 * the device; a limit in bytes stays. */
hp_status step_memory_share(step_planner *p, uint64_t *limit);
/* Sets the memory limit of the device. */
hp_status step_memory_limits(step_planner *p, uint64_t limit, double seconds, step_limits *out);

#endif
