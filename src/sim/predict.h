/* How long a program takes on a cluster: when each instruction runs, and the whole. */
#ifndef SIM_PREDICT_H
#define SIM_PREDICT_H

#include "prog/program.h"
#include "topo/cluster.h"

/* Start and end of every instruction when each stream goes on as soon as its waits allow, and the
 * devices, which do the same work, meet without delay. */
hp_status predict_run(const cluster *c, const mesh *m, const program *p, inst_times *out);
/* Seconds of copies between tiers during which nothing is computed, of a run with these times; what
 * two copies expose at one time counts once.  by_inst: NULL, or each copy's share. */
hp_status exposed_copies(const program *p, const inst_times *t, double *by_inst, double *all);
/* Seconds of such a run, and of copies between tiers during which nothing is computed. */
hp_status predict_totals(const cluster *c, const mesh *m, const program *p, double *run_s,
                         double *exposed_copy_s);

#endif
