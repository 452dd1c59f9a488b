/* What this process writes into a folder: the name, size and hash of each file, taken from memory
 * as it was written.  A list of files that is made from it says what was meant, whatever the disk
 * has made of it since. Every file_writer tells its file; names that begin with a dot are left out.
 */
#ifndef BASE_FILE_RECORD_H
#define BASE_FILE_RECORD_H

#include "base/hash.h"

typedef struct {
  char *name;
  uint64_t bytes;
  hash128 hash;
} file_sum;

typedef struct file_record file_record;
/* From now on what is written to DIR/NAME is noted, if DIR is spelled like this there. */
hp_status file_record_begin(const char *dir, file_record **out);
void file_record_end(file_record *r); /* NULL: nothing */
/* NULL: nothing of this name was written.  Until the record ends, or more is noted. */
const file_sum *file_record_find(const file_record *r, const char *name);
const file_sum *file_record_list(const file_record *r, size_t *n);
size_t file_record_count(const file_record *r);

/* As a file, for the process that makes the list for all: writes it, and takes it in.  HP_ERR_INPUT
 * when it is damaged; HP_ERR_IO when two have written the same name, and not the same. */
hp_status file_record_save(const file_record *r, const char *path);
hp_status file_record_merge(file_record *r, const char *path);

/* Adds what another process has written, as the file `path` says. */
hp_status file_record_merge_sum(file_record *r, const file_sum *s, const char *path);

/* Of writers: a file is there; it has another name. */
hp_status file_record_note(const char *path, uint64_t bytes, hash128 hash);
hp_status file_record_rename(const char *from, const char *to);

#endif
