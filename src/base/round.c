#include "base/round.h"

#include <stdio.h>
#include <stdlib.h>

double round_decimal(double x, int digits) {
  char text[400];
  snprintf(text, sizeof text, "%.*f", digits, x);
  return strtod(text, NULL);
}
