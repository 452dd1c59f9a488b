#include "rt/flash_store.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/units.h"
#include "rt/flash_piece.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

_Static_assert((int)FLASH_ALIGN == (int)FLASH_BLOCK, "tensors begin at blocks");

/* Tensors and buffers may share a block: such a block is changed by one of them at a time. */
enum { EDGES = 64 };

struct flash_store {
  flash_layout layout;
  size_t sum_bytes;
  const flash_engine *engine;
  void *opened;
  char *path[FLASH_PATHS];
  char *edge; /* a block for each of the locks */
  pthread_mutex_t lock[EDGES];
  char about[96];
};

/* --- opening ---------------------------------------------------------------------------------- */

static hp_status check_options(const flash_options *o) {
  if (o->n < 1 || o->n > FLASH_PATHS)
    HP_FAIL(HP_ERR_ARG, "flash has %d paths; expected 1 to %d", o->n, FLASH_PATHS);
  for (int i = 0; i < o->n; i++)
    if (!o->path[i] || !*o->path[i]) HP_FAIL(HP_ERR_ARG, "flash path %d is empty", i);
  if (!o->limit)
    HP_FAIL(HP_ERR_ARG, "flash path \"%s\": flash_limit is 0; expected the bytes to take there",
            o->path[0]);
  if (o->limit > (uint64_t)INT64_MAX / 2)
    HP_FAIL(HP_ERR_ARG, "flash_limit is %llu bytes; no disk has so many",
            (unsigned long long)o->limit);
  return HP_OK;
}

/* Before the lock would blame another job. */
static hp_status check_distinct(const flash_options *o) {
  for (int i = 0; i < o->n; i++)
    for (int k = 0; k < i; k++) {
      struct stat a, b;
      if (stat(o->path[i], &a) || stat(o->path[k], &b)) continue; /* opening says why */
      if (a.st_dev == b.st_dev && a.st_ino == b.st_ino)
        HP_FAIL(HP_ERR_ARG, "flash paths \"%s\" and \"%s\" are one folder; name each once",
                o->path[k], o->path[i]);
    }
  return HP_OK;
}

static char *copy_text(const char *text) {
  char *copy = mem_calloc(strlen(text) + 1, 1);
  if (copy) memcpy(copy, text, strlen(text));
  return copy;
}

/* Each file has the same number of stripes. */
static hp_status open_files(const flash_options *o, flash_store *s) {
  flash_layout *l = &s->layout;
  uint64_t n = (uint64_t)o->n, stripes = (o->limit + FLASH_STRIPE - 1) / FLASH_STRIPE;
  uint64_t each = (stripes + n - 1) / n * FLASH_STRIPE;
  for (; l->n < o->n; l->n++) {
    s->path[l->n] = copy_text(o->path[l->n]);
    HP_TRY_MEM(s->path[l->n]);
    HP_TRY(flash_file_open(s->path[l->n], each, o->locks, &l->file[l->n]));
  }
  l->bytes = each * n;
  s->sum_bytes = (size_t)(l->bytes / FLASH_BLOCK * sizeof *l->sum);
  l->sum = mem_map(s->sum_bytes);
  s->edge = mem_map((size_t)EDGES * FLASH_BLOCK);
  HP_TRY_MEM(l->sum && s->edge);
  return HP_OK;
}

static hp_status open_engine(const char *name, flash_store *s) {
  bool any = !name;
  if (any || !strcmp(name, flash_uring.name)) {
    s->engine = &flash_uring;
    hp_status st = s->engine->open(&s->layout, &s->opened);
    if (!any || st != HP_ERR_UNSUPPORTED) return st;
    log_info("tier flash: %s; threads read and write in its place", err_message());
    err_clear();
  }
  s->engine = &flash_threads;
  return s->engine->open(&s->layout, &s->opened);
}

static void describe(flash_store *s) {
  str size = {0};
  bool direct = true;
  for (int i = 0; i < s->layout.n; i++) direct &= s->layout.file[i].direct;
  units_add_bytes(&size, (double)s->layout.bytes);
  snprintf(s->about, sizeof s->about, "%d path%s, %.40s, %s%s", s->layout.n,
           s->layout.n > 1 ? "s" : "", size.at ? size.at : "", s->engine->name,
           direct ? "" : ", page cache");
  str_free(&size);
}

hp_status flash_open(const flash_options *o, flash_store **out) {
  HP_TRY(check_options(o));
  HP_TRY(check_distinct(o));
  flash_store *s = mem_calloc(1, sizeof *s);
  HP_TRY_MEM(s);
  for (int i = 0; i < EDGES; i++) pthread_mutex_init(&s->lock[i], NULL);
  hp_status st = open_files(o, s);
  if (!st) st = open_engine(o->engine, s);
  if (!st) describe(s);
  if (st) flash_close(s);
  else *out = s;
  return st;
}

void flash_close(flash_store *s) {
  if (!s) return;
  if (s->opened) s->engine->close(s->opened);
  for (int i = 0; i < s->layout.n; i++) flash_file_close(&s->layout.file[i]);
  for (int i = 0; i < EDGES; i++) pthread_mutex_destroy(&s->lock[i]);
  for (int i = 0; i < FLASH_PATHS; i++) mem_free(s->path[i]);
  mem_unmap(s->layout.sum, s->sum_bytes);
  mem_unmap(s->edge, (size_t)EDGES * FLASH_BLOCK);
  mem_free(s);
}

const char *flash_describe(const flash_store *s) { return s->about; }

bool flash_has_uring(char why[128]) {
  flash_layout l = {.n = 1};
  void *engine;
  hp_status st = flash_uring.open(&l, &engine);
  if (!st) flash_uring.close(engine);
  snprintf(why, 128, "%.120s", st ? err_message() : "");
  err_clear();
  return !st;
}

/* --- reading and writing ---------------------------------------------------------------------- */

static hp_status transfer_edge(flash_transfer *t, char *io) {
  flash_piece p = flash_piece_get(t, 0);
  if (!flash_piece_begin(&p, io)) return HP_OK;
  HP_TRY(flash_piece_transfer(&p, io));
  return flash_piece_end(&p, io);
}

/* Part of one block, which may be another tensor's as well: read, changed and written as a whole,
 * in the block of memory of its lock. */
static hp_status change_edge(flash_store *s, flash_transfer t, char *memory, uint64_t bytes) {
  uint64_t from = t.offset % FLASH_BLOCK, lock = t.offset / FLASH_BLOCK % EDGES;
  char *block = s->edge + lock * FLASH_BLOCK;
  bool writes = t.writes, reads = !writes || from || !t.pads;
  t.offset -= from;
  t.bytes = FLASH_BLOCK;
  t.memory = block;
  t.writes = false;
  pthread_mutex_lock(&s->lock[lock]);
  hp_status st = HP_OK;
  if (reads) st = transfer_edge(&t, block);
  else memset(block, 0, FLASH_BLOCK);
  if (!st && writes) {
    memcpy(block + from, memory, bytes);
    t.writes = true;
    st = transfer_edge(&t, block);
  } else if (!st) memcpy(memory, block + from, bytes);
  pthread_mutex_unlock(&s->lock[lock]);
  return st;
}

/* A first and a last block that are not all of this transfer, and whole blocks between them. */
static hp_status run(flash_store *s, flash_transfer t) {
  HP_ASSERT(t.offset <= s->layout.bytes && t.bytes <= s->layout.bytes - t.offset);
  uint64_t head = (FLASH_BLOCK - t.offset % FLASH_BLOCK) % FLASH_BLOCK;
  if (head > t.bytes) head = t.bytes;
  if (head) HP_TRY(change_edge(s, t, t.memory, head));
  t.offset += head;
  t.memory += head;
  t.bytes -= head;
  uint64_t tail = t.bytes % FLASH_BLOCK;
  t.bytes -= tail;
  t.pieces = flash_piece_count(&t);
  if (t.bytes) HP_TRY(s->engine->run(s->opened, &t));
  t.offset += t.bytes;
  return tail ? change_edge(s, t, t.memory + t.bytes, tail) : HP_OK;
}

hp_status flash_write(flash_store *s, uint64_t offset, const void *from, uint64_t bytes,
                      const char *name) {
  return run(s, (flash_transfer){.l = &s->layout,
                                 .writes = true,
                                 .offset = offset,
                                 .bytes = bytes,
                                 .memory = (char *)(uintptr_t)from,
                                 .name = name});
}

hp_status flash_write_end(flash_store *s, uint64_t offset, const void *from, uint64_t bytes,
                          const char *name) {
  return run(s, (flash_transfer){.l = &s->layout,
                                 .writes = true,
                                 .pads = true,
                                 .offset = offset,
                                 .bytes = bytes,
                                 .memory = (char *)(uintptr_t)from,
                                 .name = name});
}

hp_status flash_read(flash_store *s, uint64_t offset, void *to, uint64_t bytes, const char *name) {
  return run(s, (flash_transfer){.l = &s->layout,
                                 .offset = offset,
                                 .bytes = bytes,
                                 .memory = to,
                                 .name = name});
}

void flash_clear(flash_store *s, uint64_t offset, uint64_t bytes) {
  HP_ASSERT(offset % FLASH_BLOCK == 0 && bytes % FLASH_BLOCK == 0);
  HP_ASSERT(offset <= s->layout.bytes && bytes <= s->layout.bytes - offset);
  memset(s->layout.sum + offset / FLASH_BLOCK, 0,
         (size_t)(bytes / FLASH_BLOCK) * sizeof *s->layout.sum);
}
