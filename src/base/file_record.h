/* A record of the files that this process writes into a folder: the name, size and hash of each,
 * computed from memory during the write.  A list of files made from it has the intended
 * contents, even if the disk has changed them since.  Every file_writer adds its file; names
 * that begin with a dot are left out. */
#ifndef BASE_FILE_RECORD_H
#define BASE_FILE_RECORD_H

#include "base/hash.h"

typedef struct {
  char *name;
  uint64_t bytes;
  hash128 hash;
} file_sum;

typedef struct file_record file_record;
/* From now on files written as DIR/NAME are recorded, if DIR is spelt like this there. */
hp_status file_record_begin(const char *dir, file_record **out);
void file_record_end(file_record *r); /* NULL: nothing */
/* NULL: no file with this name was written.  Valid until the record ends, or another file is
 * added. */
const file_sum *file_record_find(const file_record *r, const char *name);
const file_sum *file_record_list(const file_record *r, size_t *n);
size_t file_record_count(const file_record *r);

/* The record as a file, for the process that makes the list for all: writes it, and merges it.
 * HP_ERR_INPUT if it is damaged; HP_ERR_IO if two processes have written different files of one
 * name. */
hp_status file_record_save(const file_record *r, const char *path);
hp_status file_record_merge(file_record *r, const char *path);

/* Adds the files of another process, from its record `path`. */
hp_status file_record_merge_sum(file_record *r, const file_sum *s, const char *path);

/* Called by writers: a file was written; a file was renamed. */
hp_status file_record_note(const char *path, uint64_t bytes, hash128 hash);
hp_status file_record_rename(const char *from, const char *to);

#endif
