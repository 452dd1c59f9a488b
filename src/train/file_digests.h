/* Hashes of files that every process of a job opens, such as a model's weights: one process of
 * each machine reads a file, or none if a manifest has its hash. */
#ifndef TRAIN_FILE_DIGESTS_H
#define TRAIN_FILE_DIGESTS_H

#include "base/status.h"

typedef struct {
  const char *path;
  uint64_t bytes;
  char hex[33]; /* XXH3-128 */
} file_digest;

/* Sets bytes and hashes of n files of the folder, by their paths; all processes call it, each
 * with its own files.  Two processes have the same file if device, inode, size and times on
 * their machine agree.  A hash of a manifest is used as it is: loading such a folder verifies it
 * (ckpt/manifest.h). */
hp_status file_digests_share(const char *dir, file_digest *file, size_t n);

#endif
