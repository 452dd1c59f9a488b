/* How far the training run of this process has come: written by the trainer, and told to the
 * supervisor of the job with every heartbeat.  -1: no run, or nothing yet.  And whether it moves
 * where no program runs: each MiB that is written, read or hashed, and each second of a pause that
 * is meant, is counted, so that a long save is not taken for one that hangs. */
#ifndef BASE_MILESTONE_H
#define BASE_MILESTONE_H

#include <stdint.h>

/* Steps that are done; the step of the newest committed checkpoint. */
void milestone_set_step(int64_t step);
void milestone_set_saved(int64_t step);
int64_t milestone_get_step(void);
int64_t milestone_get_saved(void);
/* Between two of them there must be no more than seconds. */
void milestone_count_work(void);
uint64_t milestone_get_work(void);

#endif
