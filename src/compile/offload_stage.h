/* Offloading: a program that needs more memory than the device has becomes one that keeps what is
 * not in use on slower tiers, by copies that overlap with computation (mem/offload.h plans them).
 *
 * Named tensors live on their home tier; the device holds copies of them while they are in use.
 * Inputs and outputs are in host memory.  A named tensor may stay on the device from one run to
 * the next: a buffer with BUFFER_CARRIED_IN and BUFFER_CARRIED_OUT. */
#ifndef COMPILE_OFFLOAD_STAGE_H
#define COMPILE_OFFLOAD_STAGE_H

#include "compile/offload_overlap.h"
#include "mem/offload_kept.h"
#include "mem/timeline.h"
#include "prog/program.h"
#include "sched/list.h"
#include "topo/cluster.h"

typedef struct {
  const cluster *cluster; /* costs of instructions and copies */
  const mesh *mesh;
  const uint64_t *workspace; /* bytes by kernel; 0 for the one after the last */
  uint64_t cap, room; /* bytes of work memory of the device: for the plan, and that there are */
  int policy;         /* HP_PLAN_* */
  bool least;         /* nothing stays on the device between its uses */
  bool host;          /* updates run on the host where they can (compile/host_update.h) */
  const inst_times *times; /* of offload_overlap_order; NULL: all one after the other */
  const uint64_t *reserve; /* by instruction: bytes that stay free while it runs; NULL: none */
  const uint8_t *mode;     /* by mem_class: HP_OFFLOAD_*; NONE: such a tensor stays on the device */
  offload_kept *kept;      /* plans so far; NULL: none */
  uint64_t to_flash; /* bytes of what leaves by AUTO that go to flash, for the host has no room */
  /* The tier where a named tensor lives, or -1 if the program decides. */
  int (*home)(void *context, const char *name);
  /* HP_OFFLOAD_* of the named tensor in place of its class's, or -1. */
  int (*rule)(void *context, const char *name);
  void *context;
} offload_options;

/* What a buffer's memory may do: HP_OFFLOAD_*, by the rule for its name, else by its class. */
static inline int offload_mode_of(const program *p, const offload_options *o,
                                  const prog_buffer *f) {
  int mode = f->place == PLACE_STATE ? o->rule(o->context, program_str(p, f->name)) : -1;
  return mode >= 0 ? mode : o->mode[f->class < MEM_CLASS_COUNT ? f->class : MEM_OTHER];
}

typedef struct {
  double time_s, compute_s, bound_s; /* predicted, of the steps alone, no plan is faster */
  uint64_t floor;                    /* the least cap: what the instruction floor_at needs */
  uint32_t floor_at;
} offload_summary;

/* Bytes of work memory that the instruction *at needs, which needs most. */
hp_status offload_least(const program *p, const offload_options *o, uint64_t *bytes, uint32_t *at);
/* p, in the order of the graph and without offsets, gets copies, streams, order and waits; o->cap
 * is at least what offload_least says.  Copies have the kernel after the last. */
hp_status offload_program(program *p, const offload_options *o, offload_summary *out);

#endif
