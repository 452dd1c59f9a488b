/* TensorBoard event files: scalars only.  A record is a length, its masked CRC32C, an Event in
 * protobuf form, its masked CRC32C; a file that ends in the middle of a record is read up to it. */
#ifndef REPORT_TENSORBOARD_H
#define REPORT_TENSORBOARD_H

#include "report/append_log.h"

typedef struct {
  append_log file;
  uint32_t crc[256]; /* CRC32C of a byte */
  str record;
} tensorboard;

/* Creates dir and, in it, events.out.tfevents.<unix time>.<host>.<pid>.0. */
hp_status tensorboard_create(const char *dir, tensorboard **out);
/* One scalar at a step; what cannot be written waits.  wall: seconds since 1970. */
hp_status tensorboard_add(tensorboard *t, const char *tag, double value, int64_t step, double wall);
void tensorboard_free(tensorboard *t);

/* CRC32C (Castagnoli) of the bytes. */
uint32_t tensorboard_crc32c(const tensorboard *t, const void *bytes, size_t n);

#endif
