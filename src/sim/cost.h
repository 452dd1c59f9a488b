/* What an instruction costs on a target: the one price of time.  The compiler orders by it,
 * predictions and emulation add it up.  What a device reaches of its limits by the kind of work is
 * the cluster's (topo/cost_table.h). */
#ifndef SIM_COST_H
#define SIM_COST_H

#include "prog/program.h"
#include "topo/cluster.h"

/* Kind, dtype, size and amount of what the instruction does on its device; of a copy between tiers
 * also which. */
cost_work cost_work_of(const program *p, const prog_inst *n);
/* Seconds of an instruction; of one on the host while all devices that share it use it; of a
 * collective from when all its devices are there; of a copy between
 * tiers while all devices of the mesh that share the link copy; of a transfer from when both ends
 * are there. */
double cost_inst(const cluster *c, const mesh *m, const program *p, const prog_inst *n);
/* Bytes that a device receives for an instruction: 0 unless it is a rendezvous, or from
 * another mesh. */
double cost_received(const program *p, const prog_inst *n);
/* Does it multiply in bf16?  f32 with bf16 is rounded to it. */
bool cost_is_bf16(const program *p, const prog_inst *n);

#endif
