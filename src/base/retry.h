/* What could not be written is tried again, with pauses that grow: for a disk that is full or a
 * file server that is away may come back, and a run that ends has lost what it had not saved. */
#ifndef BASE_RETRY_H
#define BASE_RETRY_H

#include "base/status.h"

/* Pauses: 1 s, 3 s, 9 s, ... up to 10 minutes, and never shorter than what a try takes, so that
 * tries take at most half of the time. */
#define RETRY_FIRST_S   1.0
#define RETRY_GROWTH    3.0
#define RETRY_LONGEST_S 600.0

/* Zeroed: nothing has failed. */
typedef struct {
  int64_t failed; /* tries in a row */
  double pause_s, next_s;
} retry;

/* A try that took so many seconds failed at `now`: the next is due after a pause. */
void retry_failed(retry *r, double now, double took);
bool retry_is_due(const retry *r, double now);

/* What must be written before a run can end is tried so often, and waited for in between. */
enum { RETRY_LAST_TRIES = 4 };
/* Writes a file atomically in as many tries; the failure of the last is returned, those before it
 * are told. */
hp_status retry_file_write(const char *path, const void *bytes, size_t len);
/* After a failed try, tells its message and waits.  false: that was the last one, and its failure
 * stays to be returned. */
bool retry_again(retry *r, hp_status st, double began);

#endif
