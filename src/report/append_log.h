/* A log file to which records are appended during a run.  Records that cannot be written, because
 * the disk is full or gone, wait in memory and are written in their order as soon as possible.  The
 * file never keeps part of a record.  A log that cannot be written does not end the run. */
#ifndef REPORT_APPEND_LOG_H
#define REPORT_APPEND_LOG_H

#include "base/str.h"

enum { APPEND_LOG_WAITING_MAX = 16 << 20 }; /* bytes; records beyond are dropped, with a warning */

typedef struct {
  int fd; /* -1: not open */
  char *path;
  str waiting;          /* records that are not yet in the file */
  int64_t len;          /* bytes of the file up to its last complete record */
  bool cut;             /* a failed write may have left part of a record after these */
  bool failing, losing; /* the last write failed; records are being dropped */
} append_log;

/* Opens the file to append; creates it if there is none. */
hp_status append_log_open(const char *path, append_log *out);
/* Writes the waiting records; warns if they are lost. */
void append_log_close(append_log *l);
/* Appends a record.  Warns when writing begins to fail, and logs when it works again. */
void append_log_add(append_log *l, const void *bytes, size_t n);
/* Writes the waiting records; HP_ERR_IO if that still fails. */
hp_status append_log_flush(append_log *l);

#endif
