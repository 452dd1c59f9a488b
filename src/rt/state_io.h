/* Reads and writes of a named tensor, in whatever tier it is, in many small runs: those of flash go
 * through a window of 1 MiB in memory, so that no block of it is read and written for each run. */
#ifndef RT_STATE_IO_H
#define RT_STATE_IO_H

#include "rt/mover.h"

typedef struct {
  const device *d;
  const state_tensor *t;
  char *window; /* NULL: not of flash */
  uint64_t at;  /* its place in the tensor; UINT64_MAX: nothing is in it */
  bool changed;
} state_io;

hp_status state_io_begin(const device *d, const state_tensor *t, state_io *io);
hp_status state_io_write(state_io *io, uint64_t offset, const void *from, uint64_t bytes);
hp_status state_io_read(state_io *io, uint64_t offset, void *to, uint64_t bytes);
/* Writes what is left, unless st is a failure, and frees; returns st, or its own failure. */
hp_status state_io_end(state_io *io, hp_status st);

/* The device's shard of a global tensor of the host, and into one. */
hp_status state_write_shard(const device *d, const state_tensor *t, const shard_view *v,
                            const void *global);
hp_status state_read_shard(const device *d, const state_tensor *t, const shard_view *v,
                           void *global);
/* Fills the tensor, as backend->fill does, through memory for a few rows where it is on flash. */
hp_status state_fill(const device *d, const state_tensor *t, hp_fill_fn fill, void *context);

#endif
