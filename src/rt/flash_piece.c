#include "rt/flash_piece.h"

#include "base/hash.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

uint64_t flash_piece_count(const flash_transfer *t) {
  if (!t->bytes) return 0;
  return (t->offset + t->bytes - 1) / FLASH_STRIPE - t->offset / FLASH_STRIPE + 1;
}

flash_piece flash_piece_get(const flash_transfer *t, uint64_t i) {
  const flash_layout *l = t->l;
  uint64_t stripe = t->offset / FLASH_STRIPE + i, n = (uint64_t)l->n;
  uint64_t from = stripe * FLASH_STRIPE, to = from + FLASH_STRIPE;
  if (from < t->offset) from = t->offset;
  if (to > t->offset + t->bytes) to = t->offset + t->bytes;
  return (flash_piece){.t = t,
                       .file = &l->file[stripe % n],
                       .at = stripe / n * FLASH_STRIPE + from % FLASH_STRIPE,
                       .bytes = (size_t)(to - from),
                       .memory = t->memory + (from - t->offset),
                       .sum = l->sum + from / FLASH_BLOCK};
}

static uint64_t sum_of(const char *block) {
  uint64_t sum = hash_bytes(block, FLASH_BLOCK);
  return sum ? sum : 1;
}

static char *begin_write(const flash_piece *p, char *io) {
  for (size_t k = 0; k < p->bytes; k += FLASH_BLOCK) {
    if (io != p->memory) memcpy(io + k, p->memory + k, FLASH_BLOCK);
    p->sum[k / FLASH_BLOCK] = sum_of(io + k);
  }
  return io;
}

static bool was_written(const flash_piece *p) {
  for (size_t k = 0; k < p->bytes / FLASH_BLOCK; k++)
    if (p->sum[k]) return true;
  return false;
}

char *flash_piece_begin(const flash_piece *p, char *bounce) {
  bool fits = (uintptr_t)p->memory % p->file->memory_align == 0;
  char *io = fits ? p->memory : bounce;
  if (p->t->writes) return begin_write(p, io);
  if (was_written(p)) return io;
  memset(p->memory, 0, p->bytes);
  return NULL;
}

static hp_status refuse(const flash_piece *p, size_t done, ssize_t n) {
  const char *what = p->t->writes ? "written" : "read";
  unsigned long long at = p->at + done;
  if (n < 0)
    HP_FAIL(HP_ERR_DEVICE,
            "\"%s\" on tier flash, path \"%s\": %zu bytes at %llu cannot be %s: %s; check its disk",
            p->t->name, p->file->path, p->bytes - done, at, what, strerror(errno));
  struct stat s = {0};
  (void)fstat(p->file->fd, &s);
  HP_FAIL(
      HP_ERR_DEVICE,
      "\"%s\" on tier flash, path \"%s\": its file has %lld bytes, expected %llu: another program "
      "has truncated it",
      p->t->name, p->file->path, (long long)s.st_size, (unsigned long long)p->file->bytes);
}

hp_status flash_piece_transfer(const flash_piece *p, char *io) {
  for (size_t done = 0; done < p->bytes;) {
    off_t at = (off_t)(p->at + done);
    ssize_t n = p->t->writes ? pwrite(p->file->fd, io + done, p->bytes - done, at)
                             : pread(p->file->fd, io + done, p->bytes - done, at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return refuse(p, done, n);
    done += (size_t)n;
  }
  return HP_OK;
}

hp_status flash_piece_end(const flash_piece *p, const char *io) {
  if (p->t->writes) return HP_OK;
  for (size_t k = 0; k < p->bytes; k += FLASH_BLOCK) {
    uint64_t want = p->sum[k / FLASH_BLOCK];
    if (want && sum_of(io + k) != want)
      HP_FAIL(HP_ERR_DEVICE,
              "\"%s\" on tier flash, path \"%s\": the 4096 bytes at %llu are not those that were "
              "written (checksum): its disk has failed, or another program wrote there",
              p->t->name, p->file->path, (unsigned long long)(p->at + k));
    if (!want) memset(p->memory + k, 0, FLASH_BLOCK);
    else if (io != p->memory) memcpy(p->memory + k, io + k, FLASH_BLOCK);
  }
  return HP_OK;
}
