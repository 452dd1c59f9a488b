/* The target of the compiler.  It needs no open device: a program for another machine needs no
 * kernel and no C compiler of this one. */
#ifndef COMPILE_TARGET_H
#define COMPILE_TARGET_H

#include "mem/offload_kept.h"
#include "mem/offsets_kept.h"
#include "prog/program.h"
#include "topo/capabilities.h"
#include "topo/cluster.h"

typedef struct {
  const char *name;           /* "cpu", "sim" */
  const capabilities *can;    /* capabilities of its kernels */
  const cluster *cluster;     /* cost of an instruction (src/sim) */
  const mesh *mesh;           /* of the devices that run the program together */
  uint64_t limit[TIER_COUNT]; /* bytes of named tensors and work memory together; 0: none, of flash:
                                 there is none */
  int sharers; /* devices of its machine: their limits of other tiers are these, so many times */
  const uint8_t *offload; /* by mem_class: HP_OFFLOAD_*; NULL: nothing leaves */
  offsets_kept *offsets;  /* plans of its programs so far; NULL: none */
  offload_kept *offloads; /* the same of what leaves, and when */
  int offload_policy;     /* HP_PLAN_* */
  void *context;          /* of the functions below */
  /* Bytes of the named tensors in a tier when p is loaded. */
  uint64_t (*resident_bytes)(void *context, const program *p, int tier);
  /* The tier where the named tensor must be, or -1 if the program may choose. */
  int (*home)(void *context, const char *name);
  /* HP_OFFLOAD_* of the named tensor, by a rule for its name; -1: that of its class. */
  int (*rule)(void *context, const char *name);
  /* Bytes of named tensors of the device that must stay there. */
  uint64_t (*locked_bytes)(void *context);
  /* Writes the engines of products into their instructions, if they differ from the target's
   * own. */
  hp_status (*choose)(void *context, program *p);
  /* Workspace of each kernel of p in bytes, to workspace[prog_inst.kernel], and the kernels if
   * the target has any; `release` frees *kernels. */
  hp_status (*prepare)(void *context, const program *p, uint64_t *workspace, void **kernels);
  void (*release)(void *kernels);
} target;

#endif
