/* Progress of the training run of this process, set by the trainer and sent to the supervisor of
 * the job with every heartbeat; -1: no run, or nothing yet.  Also signs of progress outside of
 * programs: each MiB that is written, read or hashed, each text, kernel or param, and each
 * second of a deliberate pause is counted, so that a long start or save is not taken for a hang. */
#ifndef BASE_MILESTONE_H
#define BASE_MILESTONE_H

#include <stdbool.h>
#include <stdint.h>

/* Steps done; the step of the newest committed checkpoint. */
void milestone_set_step(int64_t step);
void milestone_set_saved(int64_t step);
int64_t milestone_get_step(void);
int64_t milestone_get_saved(void);
/* At most a few seconds may lie between two calls. */
void milestone_count_work(void);
uint64_t milestone_get_work(void);

/* The activity of the process outside of programs, in words that follow "it has been": "loading
 * the weights".  The text must stay valid; NULL or "": none.  Returns the previous one. */
const char *milestone_set_activity(const char *what);
const char *milestone_get_activity(void); /* never NULL */

/* Around a call that waits for a disk and shows no progress (fsync): both calls count as work.
 * Several threads may be in one. */
void milestone_begin_sync(void);
void milestone_end_sync(void);
bool milestone_is_syncing(void);

#endif
