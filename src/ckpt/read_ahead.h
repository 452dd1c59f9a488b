/* Reads mapped files into memory in the background, one after another, ahead of a reader that
 * goes from front to back.  A place counts the bytes of all files in order. */
#ifndef CKPT_READ_AHEAD_H
#define CKPT_READ_AHEAD_H

#include "base/hash.h"
#include "base/safetensors.h"

typedef struct read_ahead read_ahead;

/* The files must stay open until it is freed.  drop: pages that are not needed any more also
 * leave the system's memory, not only this process's.  hash: the files are hashed as they are
 * read. */
hp_status read_ahead_create(const st_file *file, size_t n, bool drop, bool hash, read_ahead **out);
void read_ahead_free(read_ahead *r);
/* Reads, and hashes, the rest without pacing, and returns the hashes of the files. */
const hash128 *read_ahead_hashes(read_ahead *r);
/* Pages before `begin` are not needed any more; those before `end` are next. */
void read_ahead_move(read_ahead *r, uint64_t begin, uint64_t end);
/* Returns when everything before `place` is in memory; it may not be beyond the last `end`.  Any
 * thread may call it. */
void read_ahead_wait(read_ahead *r, uint64_t place);

#endif
