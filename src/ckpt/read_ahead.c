#include "ckpt/read_ahead.h"

#include "base/milestone.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

/* What was read ahead is in this process's memory, next to a model that may have little of it. */
enum { STEP = 4 << 20, AHEAD = 16 << 20 };

struct read_ahead {
  const st_file *file;
  size_t n;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t change;
  bool started, stop, drop, rest; /* rest: read all the rest now */
  hash_stream *stream;            /* of the current file; NULL: no hashes */
  hash128 *hash;                  /* of the files */
  uint64_t passed, end;           /* arguments of read_ahead_move */
  _Atomic uint64_t there;         /* read up to here; UINT64_MAX: completely */
};

static void report_read(read_ahead *r, uint64_t place) {
  pthread_mutex_lock(&r->lock);
  if (place > atomic_load(&r->there)) atomic_store(&r->there, place);
  pthread_cond_broadcast(&r->change);
  pthread_mutex_unlock(&r->lock);
}

/* Waits until the place is not too far ahead; false: it is no longer needed. */
static bool is_wanted(read_ahead *r, uint64_t place) {
  pthread_mutex_lock(&r->lock);
  while (!r->stop && !r->rest && place >= r->end + AHEAD) pthread_cond_wait(&r->change, &r->lock);
  bool wanted = !r->stop;
  pthread_mutex_unlock(&r->lock);
  return wanted;
}

/* Read page by page on first touch, files arrive at half the speed of the disk, and likewise if
 * several threads read different places.  If the system has no such call (an older kernel, or
 * low memory), pages are read when they are used. */
static bool bring_in(read_ahead *r, char *at, size_t n) {
  if (atomic_load(&r->there) == UINT64_MAX || !madvise(at, n, MADV_POPULATE_READ)) return true;
  report_read(r, UINT64_MAX);
  return r->stream != NULL;
}

/* Data is hashed before it counts as read, because it may be dropped afterwards. */
static bool read_file(read_ahead *r, const file_map *m, uint64_t place) {
  char *at = (char *)(uintptr_t)m->at;
  if (m->len) (void)madvise(at, m->len, MADV_SEQUENTIAL);
  for (size_t done = 0, some; done < m->len; done += some, report_read(r, place + done)) {
    some = m->len - done < STEP ? m->len - done : STEP;
    if (!is_wanted(r, place + done) || !bring_in(r, at + done, some)) return false;
    if (r->stream) hash_stream_add(r->stream, at + done, some);
    milestone_count_work();
  }
  return true;
}

static void read_files(read_ahead *r) {
  uint64_t place = 0;
  for (size_t i = 0; i < r->n; place += r->file[i++].map.len) {
    if (!read_file(r, &r->file[i].map, place)) return;
    if (!r->stream) continue;
    r->hash[i] = hash_stream_get(r->stream);
    hash_stream_reset(r->stream);
  }
}

static void *run_reader(void *arg) {
  read_files(arg);
  report_read(arg, UINT64_MAX);
  return NULL;
}

static hp_status make_hashes(read_ahead *r) {
  r->hash = mem_calloc(r->n, sizeof *r->hash);
  HP_TRY_MEM(r->hash);
  return hash_stream_create(&r->stream);
}

hp_status read_ahead_create(const st_file *file, size_t n, bool drop, bool hash, read_ahead **out) {
  read_ahead *r = mem_calloc(1, sizeof *r);
  HP_TRY_MEM(r);
  r->file = file;
  r->n = n;
  r->drop = drop;
  pthread_mutex_init(&r->lock, NULL);
  pthread_cond_init(&r->change, NULL);
  hp_status st = hash ? make_hashes(r) : HP_OK;
  if (st) read_ahead_free(r);
  HP_TRY(st);
  r->started = !pthread_create(&r->thread, NULL, run_reader, r);
  if (!r->started) {
    read_ahead_free(r);
    HP_FAIL(HP_ERR_DEVICE, "cannot start the thread that reads files ahead");
  }
  *out = r;
  return HP_OK;
}

/* From the front: a page-cache folio of several megabytes across the last end is dropped now.
 * Otherwise the system would read small pages around it the next time, at half the speed. */
static void drop_until(const st_file *f, size_t end) {
  int fd = open(f->path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  (void)posix_fadvise(fd, 0, (off_t)end, POSIX_FADV_DONTNEED);
  close(fd);
}

/* Removes full pages between two places from this process's memory; the system may keep them,
 * unless they are to be dropped. */
static void release_pages(const read_ahead *r, uint64_t from, uint64_t to) {
  uint64_t place = 0;
  for (size_t i = 0; i < r->n && place < to; place += r->file[i++].map.len) {
    const file_map *m = &r->file[i].map;
    uint64_t begin = from > place ? from - place : 0;
    uint64_t end = to - place < m->len ? to - place : m->len;
    if (begin >= end) continue;
    file_map_release(m->at + begin, (size_t)(end - begin));
    if (r->drop) drop_until(&r->file[i], (size_t)end);
  }
}

void read_ahead_free(read_ahead *r) {
  if (!r) return;
  pthread_mutex_lock(&r->lock);
  r->stop = true;
  pthread_cond_broadcast(&r->change);
  pthread_mutex_unlock(&r->lock);
  if (r->started) pthread_join(r->thread, NULL);
  hash_stream_free(r->stream);
  mem_free(r->hash);
  if (r->drop) release_pages(r, r->passed, UINT64_MAX);
  pthread_mutex_destroy(&r->lock);
  pthread_cond_destroy(&r->change);
  mem_free(r);
}

const hash128 *read_ahead_hashes(read_ahead *r) {
  pthread_mutex_lock(&r->lock);
  r->rest = true;
  pthread_cond_broadcast(&r->change);
  pthread_mutex_unlock(&r->lock);
  pthread_join(r->thread, NULL);
  r->started = false;
  return r->hash;
}

void read_ahead_move(read_ahead *r, uint64_t begin, uint64_t end) {
  if (begin > r->passed) {
    release_pages(r, r->passed, begin);
    r->passed = begin;
  }
  pthread_mutex_lock(&r->lock);
  if (end > r->end) r->end = end;
  pthread_cond_broadcast(&r->change);
  pthread_mutex_unlock(&r->lock);
}

void read_ahead_wait(read_ahead *r, uint64_t place) {
  if (atomic_load(&r->there) >= place) return;
  pthread_mutex_lock(&r->lock);
  while (atomic_load(&r->there) < place) pthread_cond_wait(&r->change, &r->lock);
  pthread_mutex_unlock(&r->lock);
}
