/* The memory of tier flash: one store a process, in preallocated files of one or several folders.
 *
 * Bytes have an offset in the store, and no address.  Whatever was never written is zeros.  Reads
 * and writes may be called from several threads at once, as long as none of them touches bytes
 * that another one writes; they return when all bytes are there, and allocate nothing.  Every
 * block of 4 KiB has a checksum in memory, which each read compares.  Failures name the tensor and
 * the path, with HP_ERR_DEVICE: the data are lost, and a try from a checkpoint may do better. */
#ifndef RT_FLASH_STORE_H
#define RT_FLASH_STORE_H

#include "base/status.h"

/* Blocks of it that are written in part are read first. */
enum { FLASH_ALIGN = 4096 };

typedef struct flash_store flash_store;

typedef struct {
  const char *const *path; /* folders that exist, on different disks: stripes lie on them in turn */
  int n;
  uint64_t limit;     /* bytes, taken from the disks at once */
  bool locks;         /* the folders are this process's; else another process of the job has them */
  const char *engine; /* "io_uring" or "threads"; NULL: the first that is there */
} flash_options;

hp_status flash_open(const flash_options *o, flash_store **out);
void flash_close(flash_store *s);
hp_status flash_write(flash_store *s, uint64_t offset, const void *from, uint64_t bytes,
                      const char *name);
/* The same for the end of a tensor: the rest of its last block is nobody's, and becomes zeros. */
hp_status flash_write_end(flash_store *s, uint64_t offset, const void *from, uint64_t bytes,
                          const char *name);
hp_status flash_read(flash_store *s, uint64_t offset, void *to, uint64_t bytes, const char *name);
/* Zeros, without touching the disk; offset and bytes are multiples of FLASH_ALIGN. */
void flash_clear(flash_store *s, uint64_t offset, uint64_t bytes);
/* For people: "2 paths, 8.0 GiB, io_uring". */
const char *flash_describe(const flash_store *s);
/* Is io_uring there?  If not, *why says so. */
bool flash_has_uring(char why[128]);

#endif
