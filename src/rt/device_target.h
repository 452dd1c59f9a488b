/* A device of a group as what the compiler compiles for. */
#ifndef RT_DEVICE_TARGET_H
#define RT_DEVICE_TARGET_H

#include "compile/target.h"
#include "rt/group.h"

typedef struct {
  target t;
  capabilities can;
  group *g;
  int i; /* of this process's devices */
} device_target;

/* The i-th device of this process.  out->t is valid as long as *out stays where it is. */
void device_target_init(group *g, int i, device_target *out);

#endif
