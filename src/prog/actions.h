/* The actions of a step's rows: forward F, backward B, backward to weights W, update U.
 *
 * W is the backward that only the gradient of one param needs; it can wait, while B is what other
 * stages of a pipeline wait for. */
#ifndef PROG_ACTIONS_H
#define PROG_ACTIONS_H

#include "prog/program.h"

enum {
  ACTION_FORWARD = 1,
  ACTION_BACKWARD = 2,
  ACTION_WEIGHTS = 4,
  ACTION_UPDATE = 8,
  ACTION_ALL = 15,
  ACTIONS = 4
};

/* The action of each instruction of a program in the order of the graph (lower_graph).  All
 * instructions of F, then of B, of W and of U, each in their order, compute the same.  Time grows
 * with the operands. */
hp_status program_actions(const program *p, uint8_t *action);

/* Which actions have instructions in it. */
hp_status program_all_actions(const program *p, uint8_t *out);

/* "F", "B", "W", "U". */
char action_letter(uint8_t action);
/* Actions of some letters, "FB"; 0: not that. */
uint8_t actions_parse(const char *letters);

#endif
