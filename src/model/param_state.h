/* The named tensors of a trained param NAME: itself, the sum of its gradients while micro-batches
 * are accumulated, and the state of its optimizer; all of its shape. */
#ifndef MODEL_PARAM_STATE_H
#define MODEL_PARAM_STATE_H

#include "hyperparallel.h"

typedef enum {
  STATE_PARAM, /* "NAME" */
  STATE_GRAD,  /* "g.NAME" */
  STATE_M,     /* "m.NAME" a first moment, or momentum */
  STATE_V,     /* "v.NAME" a second moment */
  PARAM_STATES
} param_state;

enum { STATE_NAME = 200 };
/* Its name on the device and in checkpoints. */
void param_state_name(param_state s, const char *param, char name[STATE_NAME]);
/* "m." */
const char *param_state_prefix(param_state s);

#endif
