#include "report/tensorboard.h"

#include "base/io.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

static void make_table(uint32_t table[256]) {
  for (uint32_t i = 0; i < 256; i++) {
    uint32_t c = i;
    for (int k = 0; k < 8; k++) c = c >> 1 ^ (c & 1 ? 0x82f63b78u : 0);
    table[i] = c;
  }
}

uint32_t tensorboard_crc32c(const tensorboard *t, const void *bytes, size_t n) {
  const unsigned char *p = bytes;
  uint32_t c = 0xffffffffu;
  for (size_t i = 0; i < n; i++) c = t->crc[(c ^ p[i]) & 0xff] ^ c >> 8;
  return ~c;
}

static uint32_t mask_crc(const tensorboard *t, const void *bytes, size_t n) {
  uint32_t c = tensorboard_crc32c(t, bytes, n);
  return (c >> 15 | c << 17) + 0xa282ead8u;
}

static void put_fixed(str *s, uint64_t x, int bytes) {
  for (int i = 0; i < bytes; i++) str_add_char(s, (char)(x >> (8 * i)));
}

static void put_varint(str *s, uint64_t x) {
  for (; x >= 0x80; x >>= 7) str_add_char(s, (char)(x | 0x80));
  str_add_char(s, (char)x);
}

static void put_bytes(str *s, int field, const char *bytes, size_t n) {
  put_varint(s, (uint64_t)field << 3 | 2);
  put_varint(s, n);
  str_add_n(s, bytes, n);
}

static void put_double(str *s, int field, double x) {
  uint64_t bits;
  memcpy(&bits, &x, 8);
  put_varint(s, (uint64_t)field << 3 | 1);
  put_fixed(s, bits, 8);
}

static void put_float(str *s, int field, float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  put_varint(s, (uint64_t)field << 3 | 5);
  put_fixed(s, bits, 4);
}

/* Writes the event as one record with one call. */
static hp_status write_record(tensorboard *t, const str *event) {
  HP_TRY(str_status(event));
  str *r = &t->record;
  str_clear(r);
  put_fixed(r, event->len, 8);
  put_fixed(r, r->failed ? 0 : mask_crc(t, r->at, 8), 4);
  str_add_n(r, event->at, event->len);
  put_fixed(r, mask_crc(t, event->at, event->len), 4);
  HP_TRY(str_status(r));
  append_log_add(&t->file, r->at, r->len);
  return HP_OK;
}

static hp_status write_version(tensorboard *t) {
  str event = {0};
  put_double(&event, 1, (double)time(NULL));
  put_bytes(&event, 3, "brain.Event:2", 13);
  hp_status st = write_record(t, &event);
  str_free(&event);
  return st;
}

static hp_status open_file(const char *dir, tensorboard *t) {
  char host[256] = "localhost";
  str path = {0};
  HP_TRY(dir_create(dir));
  (void)gethostname(host, sizeof host - 1);
  str_printf(&path, "%s/events.out.tfevents.%lld.%s.%ld.0", dir, (long long)time(NULL), host,
             (long)getpid());
  hp_status st = str_status(&path);
  if (!st) st = append_log_open(path.at, &t->file);
  str_free(&path);
  return st ? st : write_version(t);
}

hp_status tensorboard_create(const char *dir, tensorboard **out) {
  tensorboard *t = mem_calloc(1, sizeof *t);
  HP_TRY_MEM(t);
  t->file.fd = -1;
  make_table(t->crc);
  hp_status st = open_file(dir, t);
  if (st) tensorboard_free(t);
  else *out = t;
  return st;
}

void tensorboard_free(tensorboard *t) {
  if (!t) return;
  append_log_close(&t->file);
  str_free(&t->record);
  mem_free(t);
}

hp_status tensorboard_add(tensorboard *t, const char *tag, double value, int64_t step,
                          double wall) {
  str point = {0}, summary = {0}, event = {0};
  put_bytes(&point, 1, tag, strlen(tag));
  put_float(&point, 2, (float)value);
  put_bytes(&summary, 1, point.at ? point.at : "", point.len);
  put_double(&event, 1, wall);
  put_varint(&event, 2 << 3);
  put_varint(&event, (uint64_t)step);
  put_bytes(&event, 5, summary.at ? summary.at : "", summary.len);
  hp_status st = point.failed || summary.failed ? HP_ERR_OOM : write_record(t, &event);
  str_free(&point);
  str_free(&summary);
  str_free(&event);
  return st;
}
