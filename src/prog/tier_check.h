/* A tier is a part of a buffer's type: kernels reach the device's memory alone, and copies the
 * rest.  Checked of every program, planned or run. */
#ifndef PROG_TIER_CHECK_H
#define PROG_TIER_CHECK_H

#include "prog/program.h"

/* Is it a copy that reaches another tier than the device, or may? */
bool tier_is_crossed(const program *p, const prog_inst *n);
/* What such a copy reads and writes, and how many bytes at most. */
typedef struct {
  const prog_buffer *from, *to;
  uint64_t bytes;
  int list; /* the operand that names the blocks which are copied; -1: everything is */
} tier_copy;
tier_copy tier_copy_of(const program *p, const prog_inst *n);
/* HP_ERR_ARG names an instruction that reaches another tier and is no copy, a copy within tier
 * flash, or an input or output there, where callers have no address. */
hp_status tier_check(const program *p);

#endif
