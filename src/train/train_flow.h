/* When a run logs, evaluates, saves and ends: the rules of Transformers' DefaultFlowCallback. */
#ifndef TRAIN_TRAIN_FLOW_H
#define TRAIN_TRAIN_FLOW_H

#include "train/sampler.h"
#include "train/train_config.h"

typedef struct {
  const train_config *config;
  int64_t steps;                                 /* of the run */
  int64_t logging_steps, eval_steps, save_steps; /* a share of all steps is resolved */
} train_flow;

/* The intervals of a run of `steps` steps; c must outlive the flow. */
train_flow train_flow_create(const train_config *c, int64_t steps);

typedef struct {
  bool log, evaluate, save, stop;
} train_actions;

/* Actions after step `step` (1 = the first), in the order log, evaluate, save.  `at` is the
 * step's position (sampler_find(step - 1)); epoch_ends: it was the last of its epoch.  With
 * save_strategy best, the evaluation decides on saving: see run_log_evaluated. */
train_actions train_flow_after(const train_flow *f, int64_t step, const sampler_step *at,
                               bool epoch_ends);

/* Evaluations up to step `step` of the run s, its own included, and the one before the first. */
int64_t train_flow_evaluations(const train_flow *f, const sampler *s, int64_t step);
/* The step after which evaluation `i`, from 0, takes place; 0: before the first; the last step also
 * for the evaluation that follows the run. */
int64_t train_flow_evaluation_step(const train_flow *f, const sampler *s, int64_t i);

#endif
