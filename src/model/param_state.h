/* The named tensors of a trained param NAME: itself, the sum of its gradients while micro-batches
 * are accumulated, and the state of its optimizer.  They have its dims, but for means of rows and
 * of columns, which a matrix or a stack of matrices has. */
#ifndef MODEL_PARAM_STATE_H
#define MODEL_PARAM_STATE_H

#include "hyperparallel.h"

typedef enum {
  STATE_PARAM, /* "NAME" */
  STATE_GRAD,  /* "g.NAME" */
  STATE_M,     /* "m.NAME" a first moment, or momentum */
  STATE_V,     /* "v.NAME" a second moment */
  STATE_ROW,   /* "row.NAME" its means over the last dim: [..,N] of a param [..,N,K], */
  STATE_COL,   /* "col.NAME" and over the one before: [..,K] */
  PARAM_STATES
} param_state;

enum { STATE_NAME = 200 };
/* Its name on the device and in checkpoints. */
void param_state_name(param_state s, const char *param, char name[STATE_NAME]);
/* "m." */
const char *param_state_prefix(param_state s);
/* The dim of a param of that rank that the state lacks; -1: it lacks none, or such a param has no
 * such state. */
int param_state_missing_dim(param_state s, int rank);
/* The shape of the state of a param, or of a slice of one, of that shape. */
hp_shape param_state_shape(param_state s, hp_shape param);

#endif
