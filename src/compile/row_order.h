/* The rows of a pipeline's program as conditions of its order: a mesh computes one row behind the
 * other, as its schedule says, since other meshes wait for what a row makes.  The instructions of a
 * row may have any order, and what does not compute is not bound: collectives that need params
 * alone begin before their row, and those that other rows read end behind it. */
#ifndef COMPILE_ROW_ORDER_H
#define COMPILE_ROW_ORDER_H

#include "compile/order.h"

/* Adds the conditions to q.  Instructions are in the order of their rows (prog_inst.row).
 * O(instructions and their operands). */
hp_status row_order_bind(order_problem *q);

#endif
