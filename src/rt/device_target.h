/* A device of a mesh as a target of the compiler. */
#ifndef RT_DEVICE_TARGET_H
#define RT_DEVICE_TARGET_H

#include "compile/target.h"
#include "rt/device_mesh.h"

typedef struct {
  target t;
  capabilities can;
  device_mesh *dm;
  int i; /* index among this process's devices */
} device_target;

/* The i-th device of this process.  out->t is valid as long as *out is not moved. */
void device_target_init(device_mesh *dm, int i, device_target *out);

#endif
