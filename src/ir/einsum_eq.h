/* Einsum equations of two operands, e.g. "bthd,bshd->bhts": parse, print, letter roles, shape of
 * the result, equations of the gradients.  Text and shapes only: how a backend runs one is its own.
 *
 * Letters are a-z and A-Z, one per dim, at most HP_MAX_RANK per operand; an operand may have none
 * (a scalar).  A letter may not occur twice in one operand, and every letter of the result must
 * occur in an operand.  A letter that is not in the result is summed. */
#ifndef IR_EINSUM_EQ_H
#define IR_EINSUM_EQ_H

#include "base/status.h"

enum { EINSUM_LETTERS_MAX = 2 * HP_MAX_RANK, EINSUM_TEXT_MAX = 3 * HP_MAX_RANK + 4 };

typedef struct {
  char a[HP_MAX_RANK + 1], b[HP_MAX_RANK + 1], out[HP_MAX_RANK + 1]; /* letters, NUL-terminated */
} einsum_eq;

/* What a letter is to the contraction. */
typedef enum {
  EINSUM_NONE,  /* does not occur                                    */
  EINSUM_BATCH, /* in a, b and the result                            */
  EINSUM_ROW,   /* in a and the result: a row of the product (M)     */
  EINSUM_COL,   /* in b and the result: a column of the product (N)  */
  EINSUM_INNER, /* in a and b, summed (K)                            */
  EINSUM_SUM_A, /* in a alone, summed                                */
  EINSUM_SUM_B  /* in b alone, summed                                */
} einsum_role;

/* Reads "ab,bc->ac"; blanks are skipped.  HP_ERR_ARG names the equation and what is wrong in it. */
hp_status einsum_parse(const char *text, einsum_eq *out);
/* Writes the equation without blanks; returns `text`. */
char *einsum_print(const einsum_eq *eq, char text[EINSUM_TEXT_MAX]);
einsum_role einsum_letter_role(const einsum_eq *eq, char letter);
/* The letters with a role, in the order of a, then b; returns their number. */
int einsum_letters(const einsum_eq *eq, einsum_role role, char letters[EINSUM_LETTERS_MAX + 1]);

/* Sizes of the letters, from the operands' shapes; read with einsum_size. */
typedef struct {
  char letter[EINSUM_LETTERS_MAX + 1];
  int64_t size[EINSUM_LETTERS_MAX];
} einsum_sizes;
/* HP_ERR_SHAPE when a rank or a letter's sizes disagree; names the equation, letter and sizes. */
hp_status einsum_bind(const einsum_eq *eq, const hp_shape *a, const hp_shape *b, einsum_sizes *out);
/* Size of a letter; 1 when it does not occur. */
int64_t einsum_size(const einsum_sizes *s, char letter);
/* Shape of the result. */
hp_status einsum_out_shape(const einsum_eq *eq, const hp_shape *a, const hp_shape *b,
                           hp_shape *out);

/* Gradient of one operand (0 = a, 1 = b): put the gradient of the result in the operand's place,
 *   a: "out,b->kept"    b: "a,out->kept"
 * where `kept` is the operand's letters without `missing`, those that it alone holds and that were
 * summed: the gradient is the same along them and must be broadcast to them afterwards. */
typedef struct {
  einsum_eq eq;
  char missing[HP_MAX_RANK + 1];
} einsum_grad;
void einsum_grad_of(const einsum_eq *eq, int operand, einsum_grad *out);

#endif
