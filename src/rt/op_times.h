/* Where the time of a program goes: instructions that do the same work in one row, beside the time
 * that the machine needs for that work at least.
 *
 * The limit of an instruction is the longer of its operations at the device's peak, that of bf16
 * for products of bf16, and its bytes at the bandwidth of memory; of a fused loop, whose operations
 * are no multiply-adds, a machine operation takes the time of one (codegen/loop.h); of a collective
 * what the links of the cluster need.  Limits of instructions add up. */
#ifndef RT_OP_TIMES_H
#define RT_OP_TIMES_H

#include "rt/exec.h"

typedef VEC(hp_op_time) op_times;

/* Rows of the program by what it does, the widest gap between time and limit first.  t: of a run,
 * by instruction; collectives count from when all have come; what computation waits and what is
 * between instructions gets a row; NULL: rows have no times.  visible: what each instruction saw;
 * NULL: attention sees all keys that there are. */
hp_status op_times_make(const program *p, const device *d, const inst_times *t,
                        const visible_keys *visible, op_times *out);
/* As text for people, without columns that say nothing; l NULL: the rows alone, without the limit
 * of all of it. */
void op_times_print(const hp_op_time *row, int n, const hp_limits *l, str *out);
/* As one JSON object, with the memory of the program unless m is NULL. */
void op_times_print_json(const hp_op_time *row, int n, const hp_limits *l, const hp_memory *m,
                         str *out);

#endif
