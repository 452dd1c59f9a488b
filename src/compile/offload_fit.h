/* Which caps and reserves an offloaded program is planned with, so that its offsets fit.
 *
 * A plan counts bytes; offsets, which are chosen afterwards, need more than are in use.  So plans
 * are made with less memory than there is: bytes are withheld from the steps during which buffers
 * lie above the room, or the cap is lowered for the whole run.  The fastest program that fits is
 * kept (docs/adr/0032-offsets-after-what-leaves.md). */
#ifndef COMPILE_OFFLOAD_FIT_H
#define COMPILE_OFFLOAD_FIT_H

#include "base/status.h"

typedef struct {
  uint64_t cap;            /* of the plan */
  const uint64_t *reserve; /* by step: bytes that stay free while it runs; NULL: none */
  bool least;              /* nothing stays on the device between its uses */
} offload_attempt;

typedef struct {
  uint64_t room, floor; /* bytes that there are, and the least cap of a plan */
  size_t steps;
  void *context;
  /* Makes a program, the present one from then on: bytes that it needs, seconds that it takes. */
  hp_status (*make)(void *context, const offload_attempt *a, uint64_t *bytes, double *time_s);
  /* Adds the bytes of the present program above the room to the steps during which they are; *more:
   * one has more than before. */
  hp_status (*withhold)(void *context, uint64_t *reserve, bool *more);
  /* Keeps the present program in place of the one that it kept before. */
  void (*keep)(void *context);
} offload_maker;

/* *kept: a program that fits is kept.  If none is, *least are bytes that are enough, whatever the
 * room is. */
hp_status offload_fit(const offload_maker *m, bool *kept, uint64_t *least);

#endif
