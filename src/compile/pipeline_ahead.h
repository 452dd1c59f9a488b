/* Which stages of a pipeline may run forwards of the next step before the update of this one
 * (sched/pipe_ahead), and what it costs to update their params beforehand. */
#ifndef COMPILE_PIPELINE_AHEAD_H
#define COMPILE_PIPELINE_AHEAD_H

#include "compile/pipeline_rows.h"

/* action[pieces][meshes]: of each instruction, NULL where there is no program.  can[stages]; a
 * stage cannot if a forward assigns or gives an output, or reads a param that the update assigns
 * and for which it has no output ahead.NAME, or one that takes a gradient from another mesh.
 * guess_s[stages]: seconds of instructions that these outputs alone need. */
hp_status pipeline_ahead_stages(const pipeline_step *s, uint8_t *const *action, bool *can,
                                double *guess_s);

#endif
