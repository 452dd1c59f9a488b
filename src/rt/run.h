/* Runs of a program on all devices of a mesh: inputs and outputs are global tensors. */
#ifndef RT_RUN_H
#define RT_RUN_H

#include "rt/exec.h"
#include "rt/device_mesh.h"
#include "rt/io_table.h"

typedef struct {
  const char *name;
  ir_value type; /* of the global tensor */
  layout l;
  bool input;
  uint32_t output; /* exec_find_output on this process's first device; PROG_NONE: an input */
} run_io;

typedef struct {
  device_mesh *d;
  exec *e[COMM_LOCAL_MAX];
  VEC(run_io) ios;
  io_table names;  /* a row for each of ios: what the caller gives in the run at hand */
  char *stage;     /* of several processes: a shard of an output, for the host to read */
  size_t staged;   /* bytes; 0: the host reads the device's memory itself */
  const hp_io *io; /* of the run at hand */
  int n;
  unsigned how; /* EXEC_* */
} runs;

/* Adds the inputs and outputs of graph g, whose values lie as `of` says (NULL: on one device), with
 * a suffix on their names (NULL: none). */
hp_status runs_add_io(runs *r, const hp_graph *g, const layout *of, const char *suffix);
hp_status runs_run(runs *r, const hp_io *io, int n);
/* Its steps, for a run on several meshes at once: the lists of the run, which must outlive it; the
 * i-th device of this process; and outputs that other processes hold. */
hp_status runs_give(runs *r, const hp_io *io, int n);
hp_status runs_run_device(const runs *r, int i);
hp_status runs_fetch_outputs(const runs *r);
void runs_free(runs *r);

#endif
