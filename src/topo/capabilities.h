/* Capabilities of a device's kernels, for the compiler: a backend states those of its device, a
 * cluster file those of devices in plans. */
#ifndef TOPO_CAPABILITIES_H
#define TOPO_CAPABILITIES_H

#include "base/status.h"

enum { CAPABILITY_KERNELS = 16, CAPABILITY_NAME = 32 };

typedef struct {
  /* Composite ops that the device has kernels for, by name; the others are decomposed. */
  char kernel[CAPABILITY_KERNELS][CAPABILITY_NAME];
  int kernels;
  bool one_type; /* operands of a product must have one type: a cast reads and writes memory */
  uint64_t chunk_bytes;  /* larger values are computed chunk by chunk; 0: never */
  double flops_per_byte; /* arithmetic that takes as long as reading one byte */
  /* Products of at most this many rows with the same left operand run as one instruction; 0:
   * never. */
  int64_t horizontal_rows;
} capabilities;

/* Those of our kernels on a CPU, the defaults of a cluster file. */
static inline capabilities capabilities_usual(void) {
  return (
      capabilities){.chunk_bytes = UINT64_C(64) << 20, .flops_per_byte = 80, .horizontal_rows = 16};
}

#endif
