/* The progress of a process in its programs, for a watchdog: of its first device. */
#ifndef RT_PROGRESS_RECORD_H
#define RT_PROGRESS_RECORD_H

#include "prog/program.h"

/* A run begins, or has ended. */
void progress_record_begin(const program *p);
void progress_record_end(void);
/* The stream begins instruction i; PROG_NONE: it has finished the last one. */
void progress_record_set(uint32_t stream, uint32_t i);

typedef struct {
  uint64_t runs;             /* begun so far */
  uint32_t at[STREAM_COUNT]; /* instruction of each stream; PROG_NONE */
} progress_place;
void progress_record_read(progress_place *out);
/* Prints an instruction of the current run; nothing if it has just ended. */
void progress_record_print(uint32_t i, str *out);

#endif
