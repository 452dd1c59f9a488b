/* Numbers with units for people, with three or four digits.  Machine-readable output has plain
 * numbers, with the unit in the key. */
#ifndef BASE_UNITS_H
#define BASE_UNITS_H

#include "base/str.h"

void units_add_bytes(str *s, double x);   /* 1610612736 -> "1.50 GiB": memory, files */
void units_add_count(str *s, double x);   /* 12345678 -> "12.3 M" */
void units_add_seconds(str *s, double x); /* 0.00141 -> "1.41 ms" */
/* 96.4e9, "B/s" -> "96.4 GB/s": decimal prefixes. */
void units_add_rate(str *s, double x, const char *what);

/* The same, right-aligned in a column; wider text is not truncated. */
void units_put_bytes(str *s, int width, double x);
void units_put_seconds(str *s, int width, double x);

#endif
