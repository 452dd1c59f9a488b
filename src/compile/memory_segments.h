/* Offsets of a linked step, segment by segment.
 *
 * A segment is a run of instructions of one micro-batch.  Buffers that are live in one segment
 * alone share their memory with those of all others, so each segment is a problem by itself, and
 * one with the instructions of an earlier segment has the offsets of that one.  Buffers that are
 * live in several segments lie below all of these.  Linear in the instructions of the step, but for
 * the segments that differ. */
#ifndef COMPILE_MEMORY_SEGMENTS_H
#define COMPILE_MEMORY_SEGMENTS_H

#include "mem/offsets_kept.h"
#include "prog/program.h"

/* When buffers are live, in a program with one stream. */
typedef struct {
  const program *p;
  const uint32_t *first, *last; /* by buffer: instructions */
  const uint32_t *alias;        /* by buffer: its group, 0 = none */
  uint32_t aliases;
} buffer_lives;

/* kept: plans of segments so far; NULL: none.  Sets offset[b] of every root buffer of work memory.
 * *good: the plan is about as good as one for all buffers at once would be, or within `limit` bytes
 * of the device, when there is one; if not, offsets and *out are without meaning. */
hp_status segments_assign(const buffer_lives *l, offsets_kept *kept, uint64_t limit,
                          uint64_t *offset, offsets_summary *out, bool *good);

#endif
