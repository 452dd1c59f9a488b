/* `hyper bench copy`: a file on flash, read and written past the page cache by 1 to 4 threads.
 *
 * The file has its blocks before it is measured (those that were never written are read without
 * the disk), and no name: it is gone when the process is. */
#include "cli/bench_copy.h"

#include "base/io.h"
#include "base/mem.h"
#include "codegen/jit_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum {
  LEAST = 4 << 10,
  STEP = 16,
  MOST_AT_ONCE = 16 << 20,
  MOST = 256 << 20,
  ROOM = COPY_STREAMS_MAX * MOST_AT_ONCE
};

struct bench_file {
  str path;
  int fd;
  bool direct;          /* past the page cache */
  uint64_t size, bytes; /* of the file, of a copy */
  bool writes;
  int streams;
  char *buffer; /* of ROOM, MOST_AT_ONCE a stream */
};

/* --- the file --------------------------------------------------------------------------------- */

static hp_status find_path(const bench_args *a, str *out) {
  str text = {0};
  hp_status st;
  if (a->m.flash) {
    str_printf(&text, "hyper-bench-%ld", (long)getpid());
    st = str_status(&text);
    if (!st) st = path_join(out, a->m.flash, text.at);
  } else {
    str_printf(&text, "bench %ld", (long)getpid());
    st = jit_cache_file(&text, "flash", out);
    if (!st && !out->len)
      st = err_set(HP_ERR_IO, __FILE__, __LINE__,
                   "the folder of compiled kernels cannot be written; --flash DIR names another");
  }
  str_free(&text);
  return st;
}

static hp_status fail(const bench_file *f, const char *what, int error) {
  HP_FAIL(HP_ERR_IO, "%s: %s: %s", f->path.at, what, strerror(error));
}

/* A file system without direct I/O gets the other kind. */
static hp_status open_file(bench_file *f) {
  int flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC;
  f->direct = true;
  f->fd = open(f->path.at, flags | O_DIRECT, 0600);
  if (f->fd < 0 && errno == EINVAL) {
    (void)unlink(f->path.at); /* some file systems leave it there */
    f->direct = false;
    f->fd = open(f->path.at, flags, 0600);
  }
  if (f->fd < 0) return fail(f, "cannot create the file that is measured", errno);
  if (unlink(f->path.at)) return fail(f, "cannot remove the file that is measured", errno);
  return HP_OK;
}

static hp_status move_block(const bench_file *f, char *buffer, uint64_t at) {
  for (uint64_t done = 0; done < f->bytes;) {
    size_t n = (size_t)(f->bytes - done);
    off_t from = (off_t)(at + done);
    ssize_t got =
        f->writes ? pwrite(f->fd, buffer + done, n, from) : pread(f->fd, buffer + done, n, from);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail(f, f->writes ? "cannot write" : "cannot read", errno);
    if (!got) return fail(f, "ends early", EIO);
    done += (uint64_t)got;
  }
  return HP_OK;
}

static hp_status write_all(bench_file *f) {
  int error = posix_fallocate(f->fd, 0, (off_t)f->size);
  if (error)
    HP_FAIL(HP_ERR_IO,
            "%s: cannot reserve %llu bytes for the file that is measured: %s; --flash DIR names a "
            "folder with more room, --size BYTES makes it smaller",
            f->path.at, (unsigned long long)f->size, strerror(error));
  f->writes = true;
  f->bytes = f->size < MOST_AT_ONCE ? f->size : MOST_AT_ONCE;
  for (uint64_t at = 0; at + f->bytes <= f->size; at += f->bytes)
    HP_TRY(move_block(f, f->buffer, at));
  if (fdatasync(f->fd)) return fail(f, "cannot flush", errno);
  return HP_OK;
}

static hp_status prepare_file(const bench_args *a, bench_file *f) {
  f->fd = -1;
  f->size = bench_size(a, MOST) / LEAST * LEAST;
  if (f->size > MOST_AT_ONCE) f->size = f->size / MOST_AT_ONCE * MOST_AT_ONCE;
  f->buffer = mem_map(ROOM);
  HP_TRY_MEM(f->buffer);
  memset(f->buffer, 0x5a, ROOM);
  HP_TRY(find_path(a, &f->path));
  HP_TRY(open_file(f));
  return write_all(f);
}

hp_status bench_file_open(const bench_args *a, bench_file **out) {
  bench_file *f = mem_calloc(1, sizeof *f);
  HP_TRY_MEM(f);
  hp_status st = prepare_file(a, f);
  if (st) bench_file_close(f);
  else *out = f;
  return st;
}

void bench_file_close(bench_file *f) {
  if (!f) return;
  if (f->fd >= 0) close(f->fd);
  str_free(&f->path);
  if (f->buffer) mem_unmap(f->buffer, ROOM);
  mem_free(f);
}

/* --- its links -------------------------------------------------------------------------------- */

/* Stream s has the blocks s, s + streams, ...  What the page cache holds is not on flash: it is
 * flushed, or dropped. */
static hp_status copy_blocks(void *context, int64_t stream, copy_rate *out) {
  const bench_file *f = context;
  char *buffer = f->buffer + (uint64_t)stream * MOST_AT_ONCE;
  uint64_t step = (uint64_t)f->streams * f->bytes, at = (uint64_t)stream * f->bytes, copies = 0;
  if (!f->direct && !f->writes) (void)posix_fadvise(f->fd, 0, 0, POSIX_FADV_DONTNEED);
  double start = time_now_s(), seconds;
  do {
    HP_TRY(move_block(f, buffer, at));
    copies++;
    at += step;
    if (at + f->bytes > f->size) at = (uint64_t)stream * f->bytes;
    seconds = time_now_s() - start;
  } while (seconds < COPY_ROUND_S);
  if (!f->direct && f->writes && fdatasync(f->fd)) return fail(f, "cannot flush", errno);
  seconds = time_now_s() - start;
  *out = (copy_rate){(double)(copies * f->bytes) / seconds, seconds / (double)copies};
  return HP_OK;
}

/* The rows of one size; `best` rates so far, by direction. */
static hp_status measure_size(copy_bench *b, bench_file *f, double best[2], double *first_s) {
  const copy_work w = {copy_blocks, f};
  HP_TRY(copy_bench_limit(b));
  for (f->streams = 1; f->streams <= COPY_STREAMS_MAX; f->streams *= 2) {
    if (f->bytes * (uint64_t)f->streams > f->size) continue;
    for (int k = 0; k < 2; k++) {
      copy_rate x;
      f->writes = k;
      const copy_row r = {f->direct ? "flash" : "flash (cached)", k ? "write" : "read", f->bytes,
                          f->streams, 1};
      HP_TRY(copy_bench_row(b, &r, &w, &x));
      if (x.bytes_per_s > best[k]) best[k] = x.bytes_per_s;
      if (!(*first_s > 0)) *first_s = x.copy_s;
    }
  }
  return HP_OK;
}

/* The best rate of each direction, and the time of the smallest read. */
hp_status copy_bench_flash(copy_bench *b, bench_file *f, cluster_tier *out) {
  struct statvfs s;
  double best[2] = {0}, first_s = 0;
  for (f->bytes = LEAST; f->bytes <= MOST_AT_ONCE && f->bytes <= f->size; f->bytes *= STEP)
    HP_TRY(measure_size(b, f, best, &first_s));
  if (!fstatvfs(f->fd, &s) && !(out->memory_gb > 0))
    out->memory_gb = copy_bench_round((double)s.f_bavail * (double)s.f_frsize * 1e-9);
  double latency_s = first_s - LEAST / best[0];
  out->read_gb_s = copy_bench_round(best[0] * 1e-9);
  out->write_gb_s = copy_bench_round(best[1] * 1e-9);
  out->latency_us = latency_s > 0 ? copy_bench_round(latency_s * 1e6) : 0;
  return HP_OK;
}
