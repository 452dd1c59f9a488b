/* Executor: a program loaded on a device, and its runs.
 *
 * Every stream of the program is a thread (compute uses the caller's), which executes its
 * instructions: wait, launch, record.  Addresses are bound when the program is loaded; nothing
 * allocates during a run.  Start and end of every instruction are recorded for the trace. */
#ifndef RT_EXEC_H
#define RT_EXEC_H

#include "rt/link_clock.h"
#include "rt/mover.h"
#include "rt/transfer.h"
#include "rt/visible_keys.h"

typedef struct exec exec;

/* Takes ownership of the program and of `loaded` (from backend->prepare), also on failure. */
hp_status exec_create(device *d, program *p, void *loaded, exec **out);
void exec_free(exec *e);
const program *exec_program(const exec *e);

/* Does the program have an input or output of that name? */
bool exec_has_io(const exec *e, const char *name);
/* In later runs the input or output `name` is a global tensor of which this device has shard v.  An
 * input's shard is copied in.  An output's shard is copied out if `joins`; else the caller reads it
 * at exec_address. */
hp_status exec_set_view(exec *e, const char *name, const shard_view *v, bool joins);
/* The number of an output, for exec_address; PROG_NONE: the program has none of that name. */
uint32_t exec_find_output(const exec *e, const char *name);
/* The address of an output on the device, valid until the next program runs there. */
const void *exec_address(const exec *e, uint32_t output);
/* Copies between tiers on an emulated cluster take turns by this clock, which stays the caller's.
 */
void exec_set_links(exec *e, link_clock *links);
/* The table of a program with transfers between meshes, before its first run. */
hp_status exec_set_transfers(exec *e, const transfer_row *row, size_t rows);
/* What a run does of prog/ahead.h: it goes on with what the one before has done for it, and does
 * the same for the next. */
enum { EXEC_CONTINUES = 1, EXEC_AHEAD = 2 };
/* Is that still there, or nothing needed?  A run of another program, and the host when it reads or
 * writes params, end it. */
bool exec_can_continue(const exec *e);
/* Runs once.  Every input must be given, outputs are optional; sizes must agree. */
hp_status exec_run(exec *e, const hp_io *io, int n, unsigned how);

/* Of the last run. */
const inst_times *exec_last_times(const exec *e);
double exec_last_seconds(const exec *e);
double exec_began_s(const exec *e);                            /* when it began, time_now_s */
uint64_t exec_runs(const exec *e);                             /* so far */
void exec_last_visible_keys(const exec *e, visible_keys *out); /* by instruction, to out */
/* Means over the faster half of the last runs (rt/recent_runs.h), by instruction, to out: the only
 * source of times for tables and pictures.  What holds in each run holds for means: the order in
 * a stream, and sums of times. */
void exec_recent(const exec *e, inst_times *out);

#endif
