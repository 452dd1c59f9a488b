/* Shared by the files of the C printer: loop_c_path.c for addresses, loop_c_value.c for values,
 * loop_c_wide.c for loops over vectors, loop_c_chunk.c for maps and rows, loop_c_fold.c for
 * folds, loop_c.c for kernels. */
#ifndef CODEGEN_LOOP_C_PRINT_H
#define CODEGEN_LOOP_C_PRINT_H

#include "codegen/loop_c.h"

/* Elements of a row for which a value is kept; rows that a kernel with folds processes together. */
enum { LOOP_C_KEPT = 16384, LOOP_C_ROWS = 4 };

typedef struct {
  const loop_plan *p;
  str *out;
  int indent;
  uint8_t kept[LOOP_VALUES_MAX]; /* stage whose loop computes a value that is kept; 0 = not kept */
  bool held[LOOP_VALUES_MAX];    /* values of the chunk that are in an array zN */
} loop_c_printer;

typedef struct {
  char at[56];
} loop_c_name;

/* --- addresses: loop_c_path.c ---------------------------------------------------------------- */

/* Is the step of a path a parameter of the function? */
bool loop_c_has_step(const plan_path *path);
/* Does an input iterate over adjacent rows?  Then the next row, or that of the next group, is
 * prefetched during the loops over this one. */
bool loop_c_has_next(const loop_c_printer *w, const plan_value *v);
/* The outer indices i0.. from their combined number t. */
void loop_c_print_outer(loop_c_printer *w);
/* All accesses; `first` is the first element of the part along the inner dim. */
void loop_c_print_paths(loop_c_printer *w, const char *first);
/* The numbers of reduction (fold) k in the scratch memory, `element` of them. */
void loop_c_print_scratch(loop_c_printer *w, const char *to, const char *type, int k,
                          const char *element);

/* --- values and reductions: loop_c_value.c --------------------------------------------------- */

/* One line of C; braces change the indentation. */
void loop_c_line(loop_c_printer *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The C type of a value. */
const char *loop_c_type(const plan_value *v);
/* bf16 or f16? */
bool loop_c_is_half(uint8_t type);
/* The name of a value in expressions: column values are in arrays. */
loop_c_name loop_c_value_name(const loop_c_printer *w, int n);
/* The definition of a value as a line; in a loop over columns a column value is stored to its
 * array. */
void loop_c_print_value(loop_c_printer *w, int n);
/* The random numbers of a chunk, to the array zN. */
void loop_c_print_drawn(loop_c_printer *w, int n);
/* The values of need[] that vary exactly with these bits. */
void loop_c_print_needed(loop_c_printer *w, const bool *need, int varies);
/* As plan_need, for the loop of a stage (the final one is stages + 1), given kept values and
 * those in arrays. */
void loop_c_need_value(const loop_c_printer *w, int value, int stage, bool *need);
/* The results of the loop of a stage: arguments of its reductions, or stored elements. */
void loop_c_need_stage(const loop_c_printer *w, int stage, bool *need);
/* Does store n store every element, as contiguous floats? */
bool loop_c_is_element_store(const loop_c_printer *w, int n);
bool loop_c_is_run_store(const loop_c_printer *w, int n);
/* The value that a store writes: it omits a rounding to the store's own type. */
int loop_c_stored_value(const loop_c_printer *w, int n);
/* Store n of one element, as a line. */
void loop_c_print_store(loop_c_printer *w, int n);
/* Is value n a reduction of that stage? */
bool loop_c_is_reduced_at(const loop_c_printer *w, int n, int stage);
/* "a = join(a, b);" of reduction n, and of fold n */
void loop_c_print_join(loop_c_printer *w, int n, const char *a, const char *b);
void loop_c_print_fold(loop_c_printer *w, int n, const char *a, const char *b);
/* The identity of a reduction, as C. */
const char *loop_c_identity(const plan_value *v);
/* "sum_f" for hp_join_sum_f and hp_lanes_sum_f of the preamble */
loop_c_name loop_c_lanes_name(const loop_c_printer *w, int n);

#define EACH_REDUCTION(w, n, stage_)                                                               \
  for (int n = 0; n < (w)->p->values; n++)                                                         \
    if (loop_c_is_reduced_at(w, n, stage_))

/* --- folds: loop_c_fold.c -------------------------------------------------------------------- */

/* The phase that stores columns; for the phase of rows, the rows of its parts. */
void loop_c_print_folded(loop_c_printer *w);
/* fN, the chains of fold N in the block of row u0. */
void loop_c_print_chains(loop_c_printer *w);

/* --- chunks of maps and rows: loop_c_chunk.c -------------------------------------------------- */

/* Decides which values are kept, users before their operands. */
void loop_c_choose_kept(loop_c_printer *w);
/* The loop of a stage over elements from .. to, names of variables. */
void loop_c_print_chunks(loop_c_printer *w, int stage, const char *from, const char *to);

/* --- vectors: loop_c_wide.c ------------------------------------------------------------------- */

/* Can the loop of a stage that computes need[] use vectors? */
bool loop_c_is_wide(const loop_c_printer *w, int stage, const bool *need);
/* The loop of a stage over a chunk, elements j0 .. j0 + m, in groups of vectors. */
void loop_c_print_wide(loop_c_printer *w, int stage, const bool *need);

#endif
