/* A device of a group as a target of the compiler. */
#ifndef RT_DEVICE_TARGET_H
#define RT_DEVICE_TARGET_H

#include "compile/target.h"
#include "rt/group.h"

typedef struct {
  target t;
  capabilities can;
  group *g;
  int i; /* index among this process's devices */
} device_target;

/* The i-th device of this process.  out->t is valid as long as *out is not moved. */
void device_target_init(group *g, int i, device_target *out);

#endif
