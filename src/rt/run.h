/* Runs of a program on all devices of a group: inputs and outputs are those of the whole. */
#ifndef RT_RUN_H
#define RT_RUN_H

#include "rt/exec.h"
#include "rt/group.h"

typedef struct {
  const char *name;
  ir_value type; /* of the whole */
  layout l;
  bool input;
  void *shard[COMM_LOCAL_MAX]; /* staging of each device, */
  size_t shard_bytes;          /* of so many bytes */
} run_io;

typedef struct {
  group *d;
  exec *e[COMM_LOCAL_MAX];
  VEC(run_io) ios;
  hp_io *given; /* [devices, ios] of the run at hand */
  int n_given;
  const hp_io *whole; /* what the caller gave, in the order of `given` */
} runs;

/* Inputs and outputs of graph g, whose values lie as `of` says (NULL: on one device). */
hp_status runs_prepare(runs *r, const hp_graph *g, const layout *of);
hp_status runs_run(runs *r, const hp_io *io, int n);
void runs_free(runs *r);

#endif
