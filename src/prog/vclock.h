/* Vector clocks of a program: which instruction is sure to be finished before which other starts.
 *
 * Every stream runs its own instructions in list order, one after another; an instruction also
 * waits for instructions of other streams, named by (stream, position on that stream).  Nothing
 * else orders anything.  Positions on a stream count from 0.  `rank` is one order of all
 * instructions that agrees with happens-before: the list order itself when no instruction waits
 * for one that is listed later. */
#ifndef PROG_VCLOCK_H
#define PROG_VCLOCK_H

#include "base/status.h"

enum {
  STREAM_COMPUTE,
  STREAM_COMM,
  STREAM_COPY_IN, /* between the device and the host */
  STREAM_COPY_OUT,
  STREAM_FLASH_IN, /* between the device and flash */
  STREAM_FLASH_OUT,
  STREAM_P2P,  /* sends to and receives from other meshes, in one order */
  STREAM_HOST, /* computation on memory of tier host, by the host's processors */
  STREAM_COUNT,
  STREAM_MAX = 8
};
static inline bool stream_copies(uint32_t stream) {
  return stream >= STREAM_COPY_IN && stream <= STREAM_FLASH_OUT;
}
/* "compute", "comm", "copy_in", "copy_out", "flash_in", "flash_out", "p2p", "host". */
const char *stream_name(uint32_t stream);

typedef struct {
  uint32_t stream, position; /* instruction number `position` of `stream` must have finished */
} vclock_wait;

typedef struct {
  size_t n;              /* instructions, < 2^32 - 1 */
  uint32_t streams;      /* 1..STREAM_MAX */
  const uint8_t *stream; /* [n] */
  const uint32_t *wait0; /* [n + 1] instruction i has wait[wait0[i]] .. wait[wait0[i + 1] - 1] */
  const vclock_wait *wait;
} vclock_program;

#define VCLOCK_NEVER UINT32_MAX

typedef struct {
  size_t n;
  uint32_t streams;
  uint8_t *stream;             /* [n] */
  uint32_t *position;          /* [n] on its stream */
  uint32_t *rank;              /* [n] place in an order that agrees with happens-before */
  uint32_t *before;            /* [n][streams] how many of a stream have finished when it starts */
  uint32_t *after;             /* [n][streams] first position of a stream that starts after it has
                                  finished; VCLOCK_NEVER if none */
  uint32_t length[STREAM_MAX]; /* instructions of a stream */
  uint32_t *at[STREAM_MAX];    /* [length] instruction at a position */
} vclock;

/* O((n + waits) streams).  HP_ERR_ARG with the instructions and waits concerned when a wait names a
 * stream or position that does not exist, or when instructions wait for one another (deadlock). */
hp_status vclock_build(const vclock_program *p, vclock *out);
void vclock_free(vclock *v);

/* a has finished before b starts, in every run; false for a == b. */
static inline bool vclock_before(const vclock *v, uint32_t a, uint32_t b) {
  return v->before[(size_t)b * v->streams + v->stream[a]] > v->position[a];
}

/* The waits that are not implied by others: wait0_out[n + 1], wait_out of the size of p->wait.
 * What happens before what stays the same; at most one wait per stream is left, in stream order. */
void vclock_prune(const vclock_program *p, const vclock *v, uint32_t *wait0_out,
                  vclock_wait *wait_out);

/* dead[streams]: rank of the first instruction of each stream that starts after all n uses (their
 * instruction numbers, the definition among them) have finished; VCLOCK_NEVER if none.  This is
 * the row of a buffer in offsets_problem.dead, with rank as position. */
void vclock_dead(const vclock *v, const uint32_t *use, size_t n, uint32_t *dead);

#endif
