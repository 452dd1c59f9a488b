/* Where a process is in its programs, for a watchdog: of its first device. */
#ifndef RT_PROGRESS_RECORD_H
#define RT_PROGRESS_RECORD_H

#include "prog/program.h"

/* A run begins; it has ended. */
void progress_record_begin(const program *p);
void progress_record_end(void);
/* The stream begins instruction i; PROG_NONE: has finished the last. */
void progress_record_set(uint32_t stream, uint32_t i);

typedef struct {
  uint64_t runs;             /* begun so far */
  uint32_t at[STREAM_COUNT]; /* instruction of each stream; PROG_NONE */
} progress_place;
void progress_record_read(progress_place *out);
/* Prints an instruction of the run at hand; nothing when it has just ended. */
void progress_record_print(uint32_t i, str *out);

#endif
