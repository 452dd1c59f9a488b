/* How far the training run of this process has come: written by the trainer, and told to the
 * supervisor of the job with every heartbeat.  -1: no run, or nothing yet.  And whether it moves
 * where no program runs: each MiB that is written, read or hashed, each text, kernel or param that
 * is made, and each second of a pause that is meant, is counted, so that a long start or save is
 * not taken for one that hangs. */
#ifndef BASE_MILESTONE_H
#define BASE_MILESTONE_H

#include <stdbool.h>
#include <stdint.h>

/* Steps that are done; the step of the newest committed checkpoint. */
void milestone_set_step(int64_t step);
void milestone_set_saved(int64_t step);
int64_t milestone_get_step(void);
int64_t milestone_get_saved(void);
/* Between two of them there must be no more than seconds. */
void milestone_count_work(void);
uint64_t milestone_get_work(void);

/* What the process does where no program runs, in words that follow "it has been": "loading the
 * weights".  The text must last; NULL or "": nothing to be named.  Returns what was set before. */
const char *milestone_set_activity(const char *what);
const char *milestone_get_activity(void); /* never NULL */

/* Around a call that waits for a disk and can show no progress meanwhile (fsync): both count as
 * work.  Any number of threads may be in one. */
void milestone_begin_sync(void);
void milestone_end_sync(void);
bool milestone_is_syncing(void);

#endif
