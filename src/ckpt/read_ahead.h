/* Mapped files brought into memory in the background, one after another, somewhat ahead of who
 * reads them from front to back.  A place counts the bytes of all files in order. */
#ifndef CKPT_READ_AHEAD_H
#define CKPT_READ_AHEAD_H

#include "base/hash.h"
#include "base/safetensors.h"

typedef struct read_ahead read_ahead;

/* The files must stay open until it is freed.  drop: what is not needed any more leaves the
 * system's memory too, not only this process's.  hash: the files are hashed as they come. */
hp_status read_ahead_create(const st_file *file, size_t n, bool drop, bool hash, read_ahead **out);
void read_ahead_free(read_ahead *r);
/* Nobody waits any more: brings in, and hashes, what is left, and returns the hashes of the files.
 */
const hash128 *read_ahead_hashes(read_ahead *r);
/* What is before `begin` is not needed any more, what is before `end` is next. */
void read_ahead_move(read_ahead *r, uint64_t begin, uint64_t end);
/* Returns when what is before `place` is in memory; it may not be beyond the last `end`.  From any
 * thread. */
void read_ahead_wait(read_ahead *r, uint64_t place);

#endif
