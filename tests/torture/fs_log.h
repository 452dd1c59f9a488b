/* The log of what a program does to the files under a folder: a record, then its names without an
 * end, then the bytes that were written. */
#ifndef TORTURE_FS_LOG_H
#define TORTURE_FS_LOG_H

#include <stdint.h>

typedef enum {
  FS_ROOT,   /* object: the folder */
  FS_CREATE, /* object as dir/name */
  FS_WRITE,  /* bytes of object from offset on */
  FS_SIZE,   /* object has so many bytes */
  FS_SYNC,   /* object is on the disk */
  FS_RENAME, /* object, dir/name, is dir2/name2 */
  FS_SWAP,   /* the same, and what was dir2/name2 is dir/name */
  FS_REMOVE, /* dir/name, which was object, is gone */
  FS_KINDS
} fs_kind;

/* Objects are inode numbers, which may be used again after the object is gone. */
typedef struct {
  uint32_t kind, is_dir;
  uint64_t object, object2, dir, dir2, offset, bytes;
  uint32_t name_len, name2_len;
} fs_record;

#endif
