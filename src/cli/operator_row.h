/* What rules of operators are written with: for operator*.c. */
#ifndef CLI_OPERATOR_ROW_H
#define CLI_OPERATOR_ROW_H

#include "base/tree.h"
#include "shard/rule.h"

typedef struct {
  const tree_node *attrs;
  dims in[RULE_TENSORS]; /* rank -1: absent */
  int n;
} operator;

/* A dim, counted from the end when negative. */
hp_status operator_wrap(int64_t dim, int rank, int *out);
hp_status operator_dim(const operator* o, const char *key, int rank, int *out);
/* named[d]: the attribute names dim d: one, a list, or null for all of them. */
hp_status operator_dims(const operator* o, const char *key, int rank, bool *named);
hp_status operator_list(const operator* o, const char *key, int64_t *out, int most, int *n);
/* A number of 32 bits. */
hp_status operator_int(const operator* o, const char *key, int64_t *out);
/* The first n operands must be there. */
hp_status operator_needs(const operator* o, int n);
/* The first result, n times. */
void operator_repeat(rule *r, int n);
int64_t dims_elements(const dims *s); /* INT64_MAX when they cannot be counted */

typedef struct {
  const char *name;
  hp_status (*rule)(const operator* o, rule *r);
} operator_row;
extern const operator_row operator_rows[]; /* operator_table.c; ended by a NULL name */

/* One function an operator: OPERATOR(name, function). */
#define OPERATOR(name, function) hp_status rule_of_##function(const operator* o, rule *r);
#include "cli/operator.def"
#undef OPERATOR

#endif
