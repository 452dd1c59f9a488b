/* Layers of experts: a router chooses a few of them for every token. */
#ifndef MODEL_MOE_LAYER_H
#define MODEL_MOE_LAYER_H

#include "model/decoder.h"

/* How a family's files call the parts of a layer of experts. */
typedef struct {
  const char *block;            /* "mlp" */
  const char *gate, *up, *down; /* of an expert: "gate_proj" ... */
} moe_names;
extern const moe_names moe_names_usual;

/* How the numbers of a router become weights of experts. */
typedef enum { ROUTE_SOFTMAX, ROUTE_SIGMOID } moe_route;

/* What the layer's experts make of x [B,T,hidden], f32.  The router works in f32 too. */
hp_tensor moe_layer(model_build *b, int layer, hp_tensor x, moe_route route, const moe_names *n);

/* The loss for uneven use of experts, times its factor; HP_NONE when none of the layers built so
 * far measured it.  E sum_e c_e p_e, of the shares of tokens that chose an expert and the mean
 * probabilities of it. */
hp_tensor moe_balance(model_build *b);

/* Reads how many experts a token uses (`absent` without the key), and makes the list of layers, all
 * with experts; the number of experts has been read. */
hp_status moe_config_read(const tree_node *root, int64_t absent, model_config *c);
/* And the factor of the loss for uneven use. */
hp_status moe_config_read_balance(const tree_node *root, model_config *c);
/* Parameters of all layers' mlps and experts. */
double moe_params(const model_config *c);

#endif
