/* Hashes of files that every process of a job opens, such as a model's weights: each file is read
 * once a machine, by one of the processes, and not at all where a manifest has its hash. */
#ifndef TRAIN_FILE_DIGESTS_H
#define TRAIN_FILE_DIGESTS_H

#include "base/status.h"

typedef struct {
  const char *path;
  uint64_t bytes;
  char hex[33]; /* XXH3-128 */
} file_digest;

/* Fills in bytes and hashes of n files of the folder, by their paths; to be called by all
 * processes, each with its own files.  Two have the same file where their machine says so (device,
 * inode, size and times).  A hash of a manifest is taken as it stands: loading such a folder
 * verifies it (ckpt/manifest.h). */
hp_status file_digests_share(const char *dir, file_digest *file, size_t n);

#endif
