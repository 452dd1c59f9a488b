/* A file of the flash store: preallocated in a folder, without a name, and for this job alone.
 *
 * A file without a name (O_TMPFILE) is gone when its process is, however it ends: nothing is left
 * behind, and no other program finds it.  Where the file system has none, a new file is unlinked as
 * soon as it is open.  That two jobs do not share a folder, and slow each other down, is told by a
 * lock on the folder itself (flock), which also needs no file. */
#ifndef RT_FLASH_FILE_H
#define RT_FLASH_FILE_H

#include "base/status.h"

typedef struct {
  int fd, folder;
  const char *path; /* of the folder, for messages; the caller's */
  uint64_t bytes;
  size_t memory_align; /* of addresses that are read into and written from; 1: any */
  bool direct;         /* O_DIRECT: past the page cache */
} flash_file;

/* Takes `bytes` of the folder's file system at once.  locks: the folder is this process's; else
 * another process of the job has it.  HP_ERR_ARG where the folder is missing or another job's,
 * HP_ERR_IO with path and bytes where there is no room. */
hp_status flash_file_open(const char *path, uint64_t bytes, bool locks, flash_file *out);
void flash_file_close(flash_file *f);

#endif
