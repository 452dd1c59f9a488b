/* A file that grows while a run goes on: its log.  What cannot be written, because the disk is full
 * or gone, waits in memory and comes into the file, in its order, as soon as it can be; a record is
 * in the file whole or not at all.  A log that cannot be written ends no run. */
#ifndef REPORT_APPEND_LOG_H
#define REPORT_APPEND_LOG_H

#include "base/str.h"

enum { APPEND_LOG_WAITING_MAX = 16 << 20 }; /* bytes; what comes then is lost, and told */

typedef struct {
  int fd; /* -1: not open */
  char *path;
  str waiting;
  int64_t len; /* of the file, as far as its records are whole */
  bool cut;    /* did a try leave a part of a record behind that? */
  bool failing, losing;
} append_log;

/* Opens the file to append, and makes it where there is none. */
hp_status append_log_open(const char *path, append_log *out);
void append_log_close(append_log *l); /* what waits is tried once more, and told when it is lost */
/* Appends a record; tells when writing begins to fail, and when it works again. */
void append_log_add(append_log *l, const void *bytes, size_t n);
/* Writes what waits; HP_ERR_IO when it still cannot be. */
hp_status append_log_flush(append_log *l);

#endif
