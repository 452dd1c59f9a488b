/* The rows of each mesh of a pipeline: what its program runs and transfers, in which order.
 *
 * A schedule gives the order of forwards and backwards on each mesh, and its simulation one order
 * of all transfers: by the end of the row that makes the value.  Rows and transfers of a mesh are
 * in the order of these times, so that meshes which keep it never wait for each other in a circle.
 */
#ifndef COMPILE_PIPELINE_ROWS_H
#define COMPILE_PIPELINE_ROWS_H

#include "pass/stage_cut.h"
#include "prog/link.h"
#include "sched/pipe_ahead.h"
#include "sched/pipe_simulate.h"
#include "topo/cluster.h"

/* A value of a piece that crosses between meshes, in the order of stage_cut. */
typedef struct {
  uint32_t piece;
  uint16_t from, to; /* meshes */
  const char *name;  /* of the output and the input */
  const char *param; /* its own name, if it is a param that need not be copied; or NULL */
} pipeline_crossing;

typedef struct {
  /* A name, or rows.  One micro-batch goes stage by stage, but for a step with rows. */
  const char *schedule;
  stage_placement place;
  const mesh *const *mesh; /* [meshes] */
  const cluster *cluster;  /* whose costs decide the schedule */
  size_t pieces;
  const program *const
      *lowered; /* [pieces][meshes] in the order of the graph; NULL: nothing there */
  const pipeline_crossing *crossing;
  size_t crossings;
  const pipe_edge *edge; /* which stages read each other, in any order, also more than once */
  size_t edges;
  const uint32_t *piece_of; /* [micros] the piece of each micro-batch */
  uint32_t micros;
  uint32_t
      update; /* the piece with the update, that of a micro-batch or another; PROG_NONE: none */
  uint32_t update_micro;
  bool next; /* forwards of the next step may run before the update: its micro-batches are alike */
  /* Makes n costs those of all processes, whose schedules must be the same; NULL: there is one. */
  hp_status (*agree)(void *context, double *costs, size_t n);
  void *context;
} pipeline_step;

typedef VEC(link_row) link_row_list;
typedef VEC(link_transfer) link_transfer_list;
typedef struct {
  link_row_list row;
  link_transfer_list transfer;
} mesh_rows;

typedef struct {
  pipe_rows rows;   /* the schedule, */
  pipe_times times; /* and its simulation, */
  double once_s;    /* waits for params and gradients that cross once a step, */
  pipe_ahead ahead; /* and what runs before the update; rows NULL: nothing was asked for */
  bool *runs_ahead; /* [stages] such rows are of these */
  double *forward_s, *backward_s, *weights_s, *update_s; /* [stages] its mean costs, */
  pipe_edge *edge;    /* [edges] the stages that read each other at once, as pipe_costs, */
  double *transfer_s; /* [edges] and what crosses there */
  uint32_t edges;
  mesh_rows *mesh; /* [meshes] */
  int meshes;
} pipeline_plan;

/* HP_ERR_INPUT or HP_ERR_ARG, with the rows, if the schedule cannot run or adds gradients in
 * another order than that of the micro-batches.  Call pipeline_plan_free, also after a failure. */
hp_status pipeline_plan_make(const pipeline_step *s, pipeline_plan *out);
/* order[micros]: the micro-batch of the step that runs k-th, so that the pipeline is least idle by
 * the costs of its pieces (sched/pipe_order).  HP_ERR_ARG if the schedule is rows. */
hp_status pipeline_plan_order(const pipeline_step *s, uint32_t *order);
/* Seconds of the step: the rows, what crosses once a step, and behind them the longest update; with
 * rows that run ahead, from a step to the next. */
double pipeline_plan_seconds(const pipeline_plan *p);
double pipeline_plan_alone_s(const pipeline_plan *p); /* of a step that does nothing ahead */
/* Seconds to send what a stage makes, for a micro-batch. */
double pipeline_plan_sent_s(const pipeline_plan *p, uint32_t stage);
void pipeline_plan_free(pipeline_plan *p);

#endif
