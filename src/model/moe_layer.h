/* Layers of experts: a router chooses a few of them for every token. */
#ifndef MODEL_MOE_LAYER_H
#define MODEL_MOE_LAYER_H

#include "model/decoder.h"

/* The names of a layer of experts in a family's files. */
typedef struct {
  const char *block;            /* "mlp" */
  const char *gate, *up, *down; /* of an expert: "gate_proj" ... */
} moe_names;
extern const moe_names moe_names_usual;

/* How the scores of a router become weights of experts. */
typedef enum { ROUTE_SOFTMAX, ROUTE_SIGMOID } moe_route;

/* The output of the layer's experts for x [B,T,hidden], f32.  The router computes in f32, too. */
hp_tensor moe_layer(model_build *b, int layer, hp_tensor x, moe_route route, const moe_names *n);

/* The load-balancing loss, times its factor; HP_NONE if no layer so far has one.  E sum_e c_e
 * p_e, with the share c_e of tokens that chose expert e and its mean probability p_e. */
hp_tensor moe_balance(model_build *b);

/* Reads the number of experts per token (`absent` without the key), and marks all layers as
 * having experts; the number of experts must have been read. */
hp_status moe_config_read(const tree_node *root, int64_t absent, model_config *c);
/* And the factor of the load-balancing loss. */
hp_status moe_config_read_balance(const tree_node *root, model_config *c);
/* Parameters of all layers' mlps and experts. */
double moe_params(const model_config *c);

#endif
