/* The programs that the steps and evaluations of a run need, by the shapes of their batches: what a
 * memory limit has to be enough for.  A shorter batch may need more memory than a longer one: its
 * values are stored where larger ones are computed chunk by chunk, and engines use work memory as
 * the shape of a product suits them. */
#ifndef TRAIN_RUN_WORK_H
#define TRAIN_RUN_WORK_H

#include "base/vec.h"
#include "train/step_memory.h"
#include "train/train_data.h"

typedef struct {
  VEC(planned_program) programs; /* each once; the first is the longest step, if there is one */
} run_work;

/* Of all steps of d->order if the run trains, and of the evaluations of all sets if it evaluates.
 * Free with run_work_free, also after a failure. */
hp_status run_work_find(train_data *d, bool trains, bool evaluates, run_work *out);
void run_work_free(run_work *w);

#endif
