/* The table of operators. */
#include "cli/operator_row.h"

const operator_row operator_rows[] = {
#define OPERATOR(name, function) {#name, rule_of_##function},
#include "cli/operator.def"
#undef OPERATOR
    {NULL, NULL}};
