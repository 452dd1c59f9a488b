/* What a program costs on a cluster: the time of each instruction, and of a run. */
#ifndef SIM_PREDICT_H
#define SIM_PREDICT_H

#include "prog/program.h"
#include "topo/cluster.h"

/* Bytes that a device receives for an instruction: 0 unless devices meet for it. */
double predict_received(const program *p, const prog_inst *n);
/* Seconds of an instruction; of a collective from when all its devices are there. */
double predict_inst(const cluster *c, const mesh *m, const program *p, const prog_inst *n);
/* Start and end of every instruction when each stream goes on as soon as its waits allow, and the
 * devices, which do the same work, meet without delay. */
hp_status predict_run(const cluster *c, const mesh *m, const program *p, inst_times *out);
/* Seconds of such a run, and of copies between tiers during which nothing is computed. */
hp_status predict_totals(const cluster *c, const mesh *m, const program *p, double *run_s,
                         double *exposed_copy_s);

#endif
