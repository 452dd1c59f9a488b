/* Retries failed writes with growing pauses: a full disk or an unreachable file server may
 * recover, and a run that ends would lose what it has not saved. */
#ifndef BASE_RETRY_H
#define BASE_RETRY_H

#include "base/status.h"

/* Pauses: 1 s, 3 s, 9 s, ... up to 10 minutes, and never shorter than the last try, so that
 * tries take at most half of the time. */
#define RETRY_FIRST_S   1.0
#define RETRY_GROWTH    3.0
#define RETRY_LONGEST_S 600.0

/* Zeroed: no failure yet. */
typedef struct {
  int64_t failed; /* tries in a row */
  double pause_s, next_s;
} retry;

/* A try that took this many seconds failed at `now`: the next is due after a pause. */
void retry_failed(retry *r, double now, double took);
bool retry_is_due(const retry *r, double now);

/* Number of tries, with pauses, for files that must be written before a run can end. */
enum { RETRY_LAST_TRIES = 4 };
/* Writes a file atomically in several tries; returns the failure of the last one and reports the
 * others. */
hp_status retry_file_write(const char *path, const void *bytes, size_t len);
/* After a failed try, reports its message and waits.  false: that was the last try, and its
 * failure remains to be returned. */
bool retry_again(retry *r, hp_status st, double began);

#endif
