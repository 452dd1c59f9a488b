/* Files: read completely, map, and write so that a crash at any instant leaves the old file or
 * the new one.  Every message names the path and the system's error. */
#ifndef BASE_IO_H
#define BASE_IO_H

#include "base/str.h"

#include <dirent.h>

/* Reads a complete file (NUL added after the end); refuses more than max bytes (0 = 1 GiB). */
hp_status file_read(const char *path, size_t max, char **out, size_t *len); /* mem_free(*out) */
/* Reads a stream to its end, e.g. stdin; `name` is for messages. */
hp_status file_read_fd(int fd, const char *name, size_t max, char **out, size_t *len);

typedef struct {
  const unsigned char *at; /* NULL when the file is empty */
  size_t len;
} file_map;
/* Maps a regular file for reading.  If it is truncated afterwards, reading past its end raises
 * SIGBUS; map_names.h gives the name. */
hp_status file_map_open(const char *path, file_map *out);
void file_map_close(file_map *m);
/* The pages of these mapped bytes leave this process's memory, until they are used again.  The
 * last one stays if what follows shares it. */
void file_map_release(const unsigned char *at, size_t n);

/* Can a file be written at path?  If not, HP_ERR_IO says why.  Call it before a result is
 * computed; writing checks again. */
hp_status file_check_target(const char *path);

/* Atomic, durable replacement of path by the bytes: a new file next to it,
 * PATH.tmp.PID-MACHINE-RANDOM, fsync, comparison of the file with the bytes, rename, fsync of
 * the folder.  On failure the new file is removed and path is unchanged. */
hp_status file_write(const char *path, const void *bytes, size_t len);

/* The same in several writes, for large files: open, write..., then commit or abort. */
typedef struct {
  int fd;
  char *path, *temp;
  uint64_t written;
  struct written *meant;
} file_writer;
hp_status file_writer_open(const char *path, file_writer *w);
hp_status file_writer_write(file_writer *w, const void *bytes, size_t len);
hp_status file_writer_commit(file_writer *w); /* closes w, also on failure */
void file_writer_abort(file_writer *w);       /* removes the temp file; harmless after commit */

/* Renames a file, replacing an existing one; a record follows (file_record.h). */
hp_status file_rename(const char *from, const char *to);

bool file_exists(const char *path); /* or a pipe, or anything else that can be read */
/* Does anything have this name, even a folder or a dangling link?  Opening it reports what is
 * wrong with it. */
bool path_exists(const char *path);
/* The same if a wrong "no" would do harm: HP_ERR_IO if the system cannot say. */
hp_status path_look(const char *path, bool *there);
/* Prints what identifies a version of a file on this machine: device, inode, size and times. */
struct stat;
void file_print_stamp(const struct stat *s, str *out);
bool dir_exists(const char *path);
hp_status dir_create(const char *path);     /* with parents; may exist already */
hp_status dir_sync(const char *path);       /* fsync of the folder */
hp_status dir_create_new(const char *path); /* one folder; fails if anything has its name */
/* The next entry of an open folder, whose path is for messages; NULL at its end.  If reading
 * fails, that is a failure, not the end. */
hp_status dir_next(DIR *d, const char *path, struct dirent **out);
/* Removes the folder with its contents, or whatever else has this name.  Links are removed, not
 * followed.  A missing name is no failure. */
hp_status dir_remove(const char *path);
/* Removes the temporary files that dead writers left in the folder, and reports each, also those
 * that it cannot remove.  Only processes of this machine are known to be dead.  locked: the
 * caller holds the lock of all writers of the folder, so that no other machine writes there;
 * without it the files of other machines are kept for a day.  Call it before this process writes
 * there. */
hp_status dir_remove_leftovers(const char *path, bool locked);
/* A number of this machine, or of the container on it, in names of temporary files. */
uint32_t dir_machine(void);

hp_status path_join(str *out, const char *dir, const char *name); /* replaces out */
hp_status path_parent(const char *path, str *out); /* the folder that contains it; replaces out */

#endif
