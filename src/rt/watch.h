/* Where a process is in its programs, for a watchdog: of its first device. */
#ifndef RT_WATCH_H
#define RT_WATCH_H

#include "prog/program.h"

/* A run begins; it has ended. */
void watch_begin(const program *p);
void watch_end(void);
/* The stream begins instruction i; PROG_NONE: has finished the last. */
void watch_at(uint32_t stream, uint32_t i);

typedef struct {
  uint64_t runs;             /* begun so far */
  uint32_t at[STREAM_COUNT]; /* instruction of each stream; PROG_NONE */
} watch_place;
void watch_read(watch_place *out);
/* Prints an instruction of the run at hand; nothing when it has just ended. */
void watch_print(uint32_t i, str *out);

#endif
