/* Shared by the files of the C printer: loop_c.c, and loop_c_wide.c for loops over vectors. */
#ifndef CODEGEN_LOOP_C_PRINT_H
#define CODEGEN_LOOP_C_PRINT_H

#include "codegen/loop_c.h"

/* Elements of a row kept of a value. */
enum { LOOP_C_KEPT = 16384 };

typedef struct {
  const loop_plan *p;
  str *out;
  int indent;
  uint8_t kept[LOOP_VALUES_MAX]; /* stage whose loop computes a value that is kept; 0 = not kept */
  bool held[LOOP_VALUES_MAX];    /* values of the chunk that are in an array zN */
} loop_c_printer;

/* One line of C; braces indent what follows. */
void loop_c_line(loop_c_printer *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Does store n have a place for every element, and are these runs of floats? */
bool loop_c_is_element_store(const loop_c_printer *w, int n);
bool loop_c_is_run_store(const loop_c_printer *w, int n);
/* The value that a store takes: a rounding to the type that it rounds to anyway is left to it. */
int loop_c_stored_value(const loop_c_printer *w, int n);

/* Can the loop of a stage that computes need[] work on vectors? */
bool loop_c_is_wide(const loop_c_printer *w, int stage, const bool *need);
/* The loop of a stage over a chunk, elements j0 .. j0 + m, in groups of vectors. */
void loop_c_print_wide(loop_c_printer *w, int stage, const bool *need);

#endif
