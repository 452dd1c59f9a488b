/* Optimizers: a row each, with its name in checkpoints, its state and its update as a graph. */
#ifndef TRAIN_OPTIMIZER_H
#define TRAIN_OPTIMIZER_H

#include "model/family.h"
#include "model/param_state.h"

typedef enum {
  OPTIMIZER_ADAMW,     /* torch.optim.AdamW */
  OPTIMIZER_SGD,       /* torch.optim.SGD */
  OPTIMIZER_ADAFACTOR, /* that of Transformers, with scale_parameter and relative_step False */
  OPTIMIZER_LION,      /* that of bitsandbytes, in 32 bits */
  OPTIMIZER_MUON,      /* that of LlamaFactory */
  OPTIMIZERS
} optimizer_kind;

typedef struct {
  optimizer_kind kind;
  double beta1, beta2, eps, decay, momentum;
} optimizer_options;

enum {
  OPTIMIZER_NUMBERS = 3, /* most numbers that change from one update to the next, */
  OPTIMIZER_STATES = 2   /* and states of a param */
};

/* A param that is to be updated, in the graph g. */
typedef struct {
  hp_graph *g;
  const optimizer_options *o;
  const model_param *param;
  double decay;                        /* weight decay of this param */
  hp_dtype compute;                    /* of matrix products */
  hp_tensor p, grad;                   /* f32 */
  hp_tensor factor;                    /* f32[] on the gradient, of clipping */
  hp_tensor number[OPTIMIZER_NUMBERS]; /* f32[] */
  hp_tensor *value; /* unless NULL: gets the param's new value, and nothing is assigned */
} optimizer_param;

typedef struct {
  const char *name;                      /* in checkpoints */
  const char *number[OPTIMIZER_NUMBERS]; /* names of its inputs; NULL past the last */
  int rates;                             /* the first of them are learning rates */
  bool betas, eps;                       /* does it use these options? */
  bool decays_all;                       /* weight decay is of norms and biases, too */
  /* The inputs of update t = 1, 2, .. */
  void (*set)(const optimizer_options *o, double lr, double t, float number[]);
  /* Lists the states of a param, and returns their number. */
  int (*states)(const optimizer_options *o, const model_param *p, param_state out[]);
  /* Appends the update, which assigns the param and its states, or gives *value. */
  void (*update)(const optimizer_param *x);
} optimizer;

/* By optimizer_kind. */
extern const optimizer optimizers[];
/* Does Muon update it by orthogonal matrices, of MUON_STEPS steps? Else by AdamW.  As LlamaFactory
 * decides. */
enum { MUON_STEPS = 5 };
bool optimizer_is_of_muon(const model_param *p);
/* Numbers of state of a param. */
int64_t optimizer_state_size(const optimizer_options *o, const model_param *p);
/* The kind of that name; -1: there is none. */
int optimizer_find(const char *name);

#endif
