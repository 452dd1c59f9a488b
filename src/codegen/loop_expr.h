/* The elementwise ops and reductions of expr.def as tables, and their expressions as C text.
 * The text is scalar C that is also CUDA C, for all printers. */
#ifndef CODEGEN_LOOP_EXPR_H
#define CODEGEN_LOOP_EXPR_H

#include "codegen/loop.h"

typedef struct {
  const char *name, *text;
  int work;               /* machine operations, roughly */
  uint8_t cls, n, arg[3]; /* loop_class of the result, number of arguments and their classes */
} loop_expr;

int loop_expr_count(void);
/* Row r of expr.def. */
const loop_expr *loop_expr_row(int r);
/* The row of an op on n arguments of these classes; -1: none. */
int loop_expr_find(const char *name, const uint8_t *cls, int n);

/* The expression of row r with its arguments replaced by C expressions arg[0..2].  Wide: for
 * vectors of 16 floats; arguments may be numbers, but not all of them.  A truth value of vectors is
 * a mask, uint16_t. */
void loop_expr_print(int r, const char *const *arg, bool wide, str *out);
/* Can the expression of row r be printed for vectors? */
bool loop_expr_is_wide(int r);
/* The identity of a reduction, and the combination of two C expressions. */
const char *loop_expr_identity(loop_reduction reduce, loop_class cls);
void loop_expr_join(loop_reduction reduce, loop_class cls, const char *a, const char *b, str *out);
/* A constant as C: exact, also for infinities and NaN. */
void loop_expr_const(float x, str *out);
void loop_expr_int(int64_t x, str *out);
/* C expression that rounds `value` (of class `from`) to `type`; it has the class of `type`. */
void loop_expr_cast(hp_dtype type, loop_class from, const char *value, str *out);
/* C type of an element in memory, and of a value. */
const char *loop_expr_element(hp_dtype type);
const char *loop_expr_type(loop_class cls);
/* C expression of the value of an element, and of the element of a value. */
void loop_expr_load(hp_dtype type, const char *element, str *out);
void loop_expr_store(hp_dtype type, const char *value, str *out);
/* The functions of math.def as C text, for the beginning of a translation unit. */
void loop_expr_preamble(str *out);
/* The vector versions: hw_exp for hp_exp. */
void loop_expr_wide_preamble(str *out);

#endif
