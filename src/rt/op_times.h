/* Where the time of a program goes: instructions that do the same work in one row, with the limit
 * of this work.
 *
 * The limit of an instruction is that of its cost, cluster_limit_s: the longer of its operations at
 * the device's peak for their dtype and its bytes at the bandwidth of their memory, without
 * launches and efficiency.  On the machine at hand the peaks are measured.  The limit of a
 * collective is the time of the cluster's links, that of a copy between tiers of the tier's link.
 * Limits are added up. */
#ifndef RT_OP_TIMES_H
#define RT_OP_TIMES_H

#include "rt/exec.h"

typedef VEC(hp_op_time) op_times;

/* Rows of the program by kind of work, the widest gap between time and limit first.  t: of a
 * run, by instruction, collectives from the arrival of all devices; waits of computation and
 * time between instructions get a row; NULL: rows have no times.  visible: visible keys of each
 * instruction; NULL: attention sees all keys. */
hp_status op_times_make(const program *p, const device *d, const inst_times *t,
                        const visible_keys *visible, op_times *out);
/* As text for people, without columns that hold no information; l NULL: only the rows, without
 * the total limit. */
void op_times_print(const hp_op_time *row, int n, const hp_limits *l, str *out);
/* As one JSON object, with the memory of the program unless m is NULL. */
void op_times_print_json(const hp_op_time *row, int n, const hp_limits *l, const hp_memory *m,
                         str *out);

#endif
