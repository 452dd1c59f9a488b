/* Division that rounds up, and the next multiple; of numbers a >= 0, b > 0.  Rounding to decimals.
 */
#ifndef BASE_ROUND_H
#define BASE_ROUND_H

#include <stdint.h>

static inline int64_t div_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t round_up(int64_t a, int64_t b) { return div_up(a, b) * b; }

/* As Python's round(x, digits). */
double round_decimal(double x, int digits);

#endif
