/* Static offsets: gives every buffer of a program its place in the arena of its tier, once.
 *
 * Positions are indices into one order of all instructions that agrees with happens-before (the
 * instruction list itself).  A buffer is written at `first` and read for the last time at `last`;
 * both ends count, so the output of an instruction never overlaps its inputs unless they are in
 * one alias group.  A buffer takes its size rounded up to its alignment.
 *
 * One stream: two buffers of a tier conflict iff their [first, last] meet.  Several streams: they
 * conflict unless every use of one happens before the definition of the other; the caller says
 * so with `dead` (vclock_dead computes it).  The result depends on the input alone, never on time
 * or machine.  Nothing here knows graphs or devices. */
#ifndef MEM_OFFSETS_H
#define MEM_OFFSETS_H

#include "base/status.h"

enum { OFFSETS_TIERS = 8, OFFSETS_STREAMS = 8, OFFSETS_ALIGN = 256 };
#define OFFSETS_NEVER     UINT32_MAX          /* in `dead`: no instruction of the stream is later */
#define OFFSETS_MAX_BYTES (UINT64_C(1) << 62) /* an arena beyond this is refused */

typedef struct {
  uint64_t size;        /* bytes; 0 is placed anywhere */
  uint64_t align;       /* a power of two; 0 = OFFSETS_ALIGN */
  uint64_t offset;      /* where it lies, when fixed */
  bool fixed;           /* the caller chose the offset */
  uint8_t tier;         /* < OFFSETS_TIERS; tiers are separate arenas */
  uint8_t stream;       /* of the defining instruction; < streams */
  uint32_t first, last; /* first <= last */
  uint32_t alias;       /* 0, or a group: its buffers share one offset and do not conflict with
                           each other; the group lives from its first definition to its last use */
  uint32_t tie;         /* 0, or a group: its buffers, which never live together, have one size and
                           one offset, and their memory is free in between */
} offsets_buffer;

typedef struct {
  const offsets_buffer *buffer;
  size_t n;                      /* < 2^32 - 1 */
  uint32_t streams;              /* 0 or 1: one stream, and dead may be NULL */
  const uint32_t *dead;          /* [n][streams]: position of the first instruction of a stream that
                                    runs after all uses of the buffer; > last, or OFFSETS_NEVER */
  uint64_t limit[OFFSETS_TIERS]; /* bytes, 0 = none: a plan within its limit is good enough */
  bool tight[OFFSETS_TIERS]; /* not so: it is improved as one without a limit is, towards the bound
                              */
  bool must_fit[OFFSETS_TIERS]; /* a plan above the limit is of no use: it is not improved where the
                                   bound is above the limit, too */
  uint64_t effort;      /* steps to spend on each tier while its plan is not good; some 3 ns each */
  uint64_t byte_effort; /* not more, without a limit, for each byte above the bound; 0: no matter */
} offsets_problem;
#define OFFSETS_EFFORT      UINT64_C(80000000) /* up to 0.4 s; most programs need none of it */
#define OFFSETS_BYTE_EFFORT UINT64_C(64)       /* a MiB is worth 0.2 to 0.3 s */

typedef struct {
  uint64_t peak[OFFSETS_TIERS];     /* bytes of the arena */
  uint64_t bound[OFFSETS_TIERS];    /* no plan can be smaller than this; peak == bound is optimal.
                                       If all offsets are fixed: the bytes that live together */
  uint32_t bound_at[OFFSETS_TIERS]; /* a position where so much is live */
  uint64_t steps;                   /* effort used */
} offsets_summary;

/* Fills offset[n] and the summary.  Fails with HP_ERR_ARG on input that makes no sense (it names
 * the buffer) and HP_ERR_OOM when an arena would pass OFFSETS_MAX_BYTES or memory runs out.  A plan
 * above `limit` is not a failure here: the summary tells. */
hp_status offsets_assign(const offsets_problem *p, uint64_t *offset, offsets_summary *out);

/* HP_ERR_INTERNAL, naming two buffers, unless the offsets are aligned, as fixed, aliased and tied,
 * and no two conflicting buffers overlap.  O(n log n) per pair of streams. */
hp_status offsets_verify(const offsets_problem *p, const uint64_t *offset);

/* Whether buffers a and b may not share bytes (false inside an alias group, and across tiers). */
bool offsets_conflict(const offsets_problem *p, uint32_t a, uint32_t b);

#endif
