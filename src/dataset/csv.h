/* CSV: RFC 4180, with comma and double quote; a heading, then rows. */
#ifndef DATASET_CSV_H
#define DATASET_CSV_H

#include "base/str.h"
#include "base/vec.h"
#include "dataset/chat.h"

/* Set bytes, len, path and line = 1, and zero the rest; csv_free. */
typedef struct {
  const char *bytes, *path;
  size_t len, at, line; /* line: where the next row begins, from 1 */
  str value;            /* the fields of a row, one after another, each with a NUL */
  VEC(size_t) field;    /* where each begins in value */
  VEC(size_t) length;
} csv;
void csv_free(csv *r);

/* Reads the next row that is not empty; *more = false at the end. */
hp_status csv_row(csv *r, bool *more);
/* A field of the row; column SIZE_MAX: empty. */
dataset_text csv_get(const csv *r, size_t column);
/* Fails at the first byte of a line that is not UTF-8. */
hp_status csv_check_utf8(const char *s, size_t n, const char *path, size_t line);

#endif
