/* Files: read whole, map, and write so that a crash at any instant leaves the old file or the new.
 * Every message names the path and what the system said. */
#ifndef BASE_IO_H
#define BASE_IO_H

#include "base/str.h"

#include <dirent.h>

/* Reads a file whole (NUL added after the end); refuses more than max bytes (0 = 1 GiB). */
hp_status file_read(const char *path, size_t max, char **out, size_t *len); /* mem_free(*out) */
/* Reads a stream to its end, e.g. stdin; `name` is for messages. */
hp_status file_read_fd(int fd, const char *name, size_t max, char **out, size_t *len);

typedef struct {
  const unsigned char *at; /* NULL when the file is empty */
  size_t len;
} file_map;
/* Maps a regular file for reading.  One that becomes shorter afterwards raises SIGBUS where it
 * ended; map_names.h tells the name. */
hp_status file_map_open(const char *path, file_map *out);
void file_map_close(file_map *m);

/* Whether a file can be written at path; else HP_ERR_IO says what is in the way.  To be asked
 * before a result is computed; writing asks again. */
hp_status file_check_target(const char *path);

/* Atomic, durable replacement of path by the bytes: a new file beside it,
 * PATH.tmp.PID-MACHINE-RANDOM, fsync, comparison of what is read back with what was given, rename,
 * fsync of the folder.  On failure the new file is gone and path is as it was. */
hp_status file_write(const char *path, const void *bytes, size_t len);

/* The same in pieces, for large files: open, write..., then commit or abort. */
typedef struct {
  int fd;
  char *path, *temp;
  uint64_t written;
  struct written *meant;
} file_writer;
hp_status file_writer_open(const char *path, file_writer *w);
hp_status file_writer_write(file_writer *w, const void *bytes, size_t len);
hp_status file_writer_commit(file_writer *w); /* closes w, whatever happens */
void file_writer_abort(file_writer *w);       /* removes the temp file; harmless after commit */

/* Another name for a file, in place of one that has it; a record follows (file_record.h). */
hp_status file_rename(const char *from, const char *to);

bool file_exists(const char *path); /* or a pipe, or whatever else can be read */
/* Whether anything has this name, be it a folder or a link to nothing: opening it says what is
 * wrong with it. */
bool path_exists(const char *path);
/* The same where a wrong "no" would do harm: HP_ERR_IO when the system cannot say. */
hp_status path_look(const char *path, bool *there);
/* Prints what tells a file of this machine from all others, and from itself once it has changed:
 * device, inode, size and times. */
struct stat;
void file_print_stamp(const struct stat *s, str *out);
bool dir_exists(const char *path);
hp_status dir_create(const char *path);     /* with parents; there already is fine */
hp_status dir_sync(const char *path);       /* fsync of the folder */
hp_status dir_create_new(const char *path); /* one folder; a failure where anything has its name */
/* The next entry of an open folder, whose path is for messages; NULL at its end.  A folder that
 * cannot be read on is a failure, and no end. */
hp_status dir_next(DIR *d, const char *path, struct dirent **out);
/* The folder and all in it, or whatever else has this name.  No link is followed on the way: it is
 * removed, and what it leads to stays.  Nothing there is fine. */
hp_status dir_remove(const char *path);
/* Removes the temporary files that writers which are gone have left in the folder, and tells each,
 * and each that cannot be removed and stays.  Whether a process lives is known of this machine
 * only.  locked: the caller holds the lock that all who write there take, so that nobody on another
 * machine writes; else the files of other machines stay for a day.  To be called before this
 * process writes there. */
hp_status dir_remove_leftovers(const char *path, bool locked);
/* A number of this machine, or of the container on it, in names of temporary files. */
uint32_t dir_machine(void);

hp_status path_join(str *out, const char *dir, const char *name); /* replaces out */
hp_status path_parent(const char *path, str *out); /* the folder that holds it; replaces out */

#endif
