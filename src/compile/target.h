/* What the compiler compiles for.  It knows no open device: a program for a machine that is not
 * here needs no kernel and no C compiler of this one. */
#ifndef COMPILE_TARGET_H
#define COMPILE_TARGET_H

#include "prog/program.h"
#include "topo/capabilities.h"
#include "topo/cluster.h"

typedef struct {
  const char *name;           /* "cpu", "sim" */
  const capabilities *can;    /* what its kernels can do */
  const cluster *cluster;     /* what an instruction costs there (src/sim) */
  const mesh *mesh;           /* of the devices that run the program together */
  uint64_t limit[TIER_COUNT]; /* bytes of named tensors and work memory together; 0: none */
  void *context;              /* of the functions below */
  /* Bytes of the named tensors that are on the device when p is loaded. */
  uint64_t (*resident_bytes)(void *context, const program *p);
  /* Writes engines into the instructions of products, where they are not the target's own. */
  hp_status (*choose)(void *context, program *p);
  /* Workspace of each kernel of p in bytes, to workspace[prog_inst.kernel], and the kernels where
   * the target has any; *kernels is released by `release`. */
  hp_status (*prepare)(void *context, const program *p, uint64_t *workspace, void **kernels);
  void (*release)(void *kernels);
} target;

#endif
