/* What a device's kernels can do, as far as the compiler asks: a backend says it of its device, a
 * cluster file of devices that are planned for. */
#ifndef TOPO_CAPABILITIES_H
#define TOPO_CAPABILITIES_H

#include "base/status.h"

enum { CAPABILITY_KERNELS = 16, CAPABILITY_NAME = 32 };

typedef struct {
  /* Composite ops that the device has kernels for, by name; the others are decomposed. */
  char kernel[CAPABILITY_KERNELS][CAPABILITY_NAME];
  int kernels;
  bool one_type;         /* products take operands of one type: a cast is a pass over memory */
  uint64_t chunk_bytes;  /* larger values are made chunk by chunk; 0: none are */
  double flops_per_byte; /* arithmetic that hides the reading of one byte */
  /* Products of at most so many rows with the same left operand run as one instruction; 0: none. */
  int64_t horizontal_rows;
} capabilities;

/* Those of our kernels on a CPU, from which a cluster file may differ. */
static inline capabilities capabilities_usual(void) {
  return (
      capabilities){.chunk_bytes = UINT64_C(64) << 20, .flops_per_byte = 80, .horizontal_rows = 16};
}

#endif
