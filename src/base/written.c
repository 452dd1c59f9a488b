#include "base/written.h"

#include "base/milestone.h"
#include "base/vec.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 1 << 20 };

/* One hash over all of the bytes; its value at the end of each block tells where two files part,
 * for the price of one. */
struct written {
  hash_stream *hash;
  VEC(uint64_t) ends; /* of the blocks that are full */
  uint64_t bytes;
};

hp_status written_create(written **out) {
  written *w = mem_calloc(1, sizeof *w);
  HP_TRY_MEM(w);
  hp_status st = hash_stream_create(&w->hash);
  if (st) mem_free(w);
  else *out = w;
  return st;
}

void written_free(written *w) {
  if (!w) return;
  hash_stream_free(w->hash);
  vec_free(&w->ends);
  mem_free(w);
}

hash128 written_hash(const written *w) { return hash_stream_get(w->hash); }

hp_status written_add(written *w, const void *bytes, size_t n) {
  const char *p = bytes;
  while (n) {
    size_t room = BLOCK - (size_t)(w->bytes % BLOCK), some = n < room ? n : room;
    hash_stream_add(w->hash, p, some);
    milestone_count_work();
    w->bytes += some;
    p += some;
    n -= some;
    if (w->bytes % BLOCK == 0 && !vec_push(&w->ends, written_hash(w).lo)) return HP_ERR_OOM;
  }
  return HP_OK;
}

/* Up to n bytes from `at` on; fewer at the end of the file. */
static hp_status read_block(int fd, const char *path, uint64_t at, char *to, size_t n,
                            size_t *got) {
  *got = 0;
  while (*got < n) {
    ssize_t k = pread(fd, to + *got, n - *got, (off_t)(at + *got));
    if (k < 0 && errno == EINTR) continue;
    if (k < 0)
      HP_FAIL(HP_ERR_IO, "%s: cannot be read back after it was written, at byte %llu: %s", path,
              (unsigned long long)(at + *got), strerror(errno));
    if (k == 0) break;
    *got += (size_t)k;
  }
  return HP_OK;
}

#define FAULTY "; the disk, its driver or the memory is faulty: check them, or save to another disk"

/* The block at `at`, which is the last one when it is not full. */
static hp_status compare_block(const written *w, written *back, int fd, const char *path,
                               char *room) {
  uint64_t at = back->bytes;
  size_t want = w->bytes - at < BLOCK ? (size_t)(w->bytes - at) : BLOCK, got;
  HP_TRY(read_block(fd, path, at, room, want, &got));
  if (got < want)
    HP_FAIL(HP_ERR_IO, "%s: has %llu bytes, %llu were written" FAULTY, path,
            (unsigned long long)(at + got), (unsigned long long)w->bytes);
  HP_TRY(written_add(back, room, got));
  size_t block = (size_t)(at / BLOCK);
  hash128 a = written_hash(w), b = written_hash(back);
  bool same = block < w->ends.len ? w->ends.at[block] == b.lo : a.lo == b.lo && a.hi == b.hi;
  if (!same)
    HP_FAIL(HP_ERR_IO,
            "%s: what is read back from byte %llu to %llu is not what was written" FAULTY, path,
            (unsigned long long)at, (unsigned long long)(at + got - 1));
  return HP_OK;
}

hp_status written_compare(const written *w, int fd, const char *path) {
  written *back;
  size_t most = w->bytes < BLOCK ? (size_t)w->bytes : BLOCK, more;
  HP_TRY(written_create(&back));
  char *room = mem_calloc(most + 1, 1);
  hp_status st = room ? HP_OK : HP_ERR_OOM;
  (void)posix_fadvise(fd, 0, 0,
                      POSIX_FADV_DONTNEED); /* advice: what stays in memory is read there */
  while (!st && back->bytes < w->bytes) st = compare_block(w, back, fd, path, room);
  if (!st) st = read_block(fd, path, w->bytes, room, 1, &more);
  if (!st && more)
    st = err_set(HP_ERR_IO, __FILE__, __LINE__, "%s: is longer than the %llu bytes written" FAULTY,
                 path, (unsigned long long)w->bytes);
  mem_free(room);
  written_free(back);
  return st;
}
