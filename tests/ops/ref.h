/* The reference: a plain evaluation of a graph, node by node, with loops of its own.
 *
 * Floating tensors are doubles, the others int64.  After each node the results are rounded to their
 * dtype, so that ops with one correct answer (+ - * / sqrt, moves, whole numbers) give the bits of
 * the program; with `smooth` set nothing is rounded, which finite differences need.  Besides every
 * element stands a bound on how far a right program may be from it: 0 = the same number, infinity =
 * nobody knows (a comparison of two numbers that rounding may swap). */
#ifndef REF_H
#define REF_H

#include "ops/ops.h"

typedef struct {
  hp_dtype type;
  int rank;
  int64_t dim[HP_MAX_RANK], n;
  double *f;  /* floating types, else NULL */
  int64_t *i; /* the others, else NULL */
  double *e;  /* bound on the error of each element */
} ref_tensor;

typedef struct {
  const hp_graph *g;
  bool smooth;
  /* The program may multiply partial sums of several devices before it adds them: a sum that is
   * exact by itself is not known to be, for products are rounded then. */
  bool partial_sums;
  ref_tensor *value; /* by value id; n_values of them */
  size_t n_values;
} ref_run;

/* What a row's function works on: operands, and results to be filled (zeroed, with dims). */
typedef struct {
  const ref_run *r;
  const hp_graph *g;
  const ir_node *n;
  const ref_tensor *in[8];
  const ref_tensor *many; /* all values, for rows with more operands */
  const val *id;          /* operand ids */
  ref_tensor *out[3];
} ref_ctx;

/* One function a row: a row without one does not link. */
#define OP(id, ...) void ref_##id(ref_ctx *c);
#include "ir/ops.def"
#undef OP

void ref_begin(ref_run *r, const hp_graph *g, bool smooth);
void ref_end(ref_run *r);
/* Sets an input or param from the bytes that the program gets. */
void ref_set(ref_run *r, val v, const void *bytes);
/* Evaluates the nodes that have no values yet; inputs and params must be set. */
void ref_eval(ref_run *r);
/* Evaluates one node; its operands must have values. */
void ref_step(ref_run *r, uint32_t node);
/* Room for value v, zeroed, to be filled by the caller. */
ref_tensor *ref_make(ref_run *r, val v);
/* Forgets all values but those of inputs and params. */
void ref_again(ref_run *r);

/* Compares bytes of the program with value v.  Returns the number of elements that are wrong and
 * describes the first in why[200]; *unknown counts the elements that cannot be compared. */
int64_t ref_compare(const ref_run *r, val v, const void *bytes, int64_t *unknown, char *why);
/* Elements of v as the program holds them. */
void ref_store(const ref_run *r, val v, void *bytes);

/* --- for the rows' functions -------------------------------------------------------------- */

enum { REF_EPS_BITS = 24 };
static const double ref_eps = 0x1p-24; /* half a unit in the last place of 1.0 in f32 */

/* x as a number of type t holds it. */
double ref_rounded(hp_dtype t, double x);
/* Distance of neighbours at x. */
double ref_ulp(hp_dtype t, double x);
int64_t ref_wrap(hp_dtype t, int64_t x);
/* A walk over the elements of `shape` in order: `at` is the element of another tensor that stands
 * there.  Divisions for each element would take most of the time of a reference. */
typedef struct {
  const ref_tensor *shape;
  int64_t at, index[HP_MAX_RANK], step[HP_MAX_RANK];
} ref_walk;
/* The walk of `of` broadcast from the right to `shape`. */
ref_walk ref_broadcast_begin(const ref_tensor *of, const ref_tensor *shape);
void ref_walk_next(ref_walk *w);
/* Index tuple of a flat index, the tuple after it, and back. */
void ref_unflatten(const ref_tensor *t, int64_t at, int64_t index[HP_MAX_RANK]);
void ref_next(const ref_tensor *t, int64_t index[HP_MAX_RANK]);
int64_t ref_flatten(const ref_tensor *t, const int64_t index[HP_MAX_RANK]);
/* Copies element j of x to element i of y. */
void ref_copy(ref_tensor *y, int64_t i, const ref_tensor *x, int64_t j);
/* A sum of n products or terms in f32, in any order: the bound on its error.  sum is of absolute
 * values; grain is a number of which all terms are multiples, 0 = unknown. */
double ref_sum_error(const ref_ctx *c, double n, double sum, double grain);
/* The largest power of two of which all elements are multiples; 0 when they are too fine. */
double ref_grain(const ref_tensor *x);

#endif
