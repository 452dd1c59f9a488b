/* Components of Llama-like decoders, which families combine and replace.
 *
 *   h = embedding(ids)
 *   h += attention(norm(h))      per layer
 *   h += mlp(norm(h))
 *   norm(h)
 *
 * The residual stream is f32 whatever the dtype of the products. */
#ifndef MODEL_DECODER_H
#define MODEL_DECODER_H

#include "model/family.h"

/* Place in the model: "model.layers.3.mlp.up_proj". */
typedef struct {
  char text[128];
} place;
place layer_place(int layer, const char *part);
place place_in(place p, const char *part); /* "model.layers.3.mlp" -> "model.layers.3.mlp.PART" */

/* RMS norm of the last dim, with the weight NAME.weight. */
hp_tensor decoder_norm(model_build *b, hp_tensor x, int64_t width, double eps, const char *name);

/* A sublayer: from its normed input to the summand of the residual stream, of any dtype. */
typedef hp_tensor (*decoder_part)(model_build *b, int layer, hp_tensor x);
/* Hidden states after the last norm. */
hp_tensor decoder_hidden(model_build *b, decoder_part attention, decoder_part mlp);

/* Attention of query heads over the key and value heads that they share; q and k are normed per
 * head if the configuration says so. */
hp_tensor decoder_attention(model_build *b, int layer, hp_tensor x);
/* Its output projection, of the heads' results, together `width` wide. */
hp_tensor decoder_attention_out(model_build *b, int layer, hp_tensor o, int64_t width);
/* down(act(gate(x)) * up(x)), `width` wide in between. */
hp_tensor decoder_mlp_of(model_build *b, int layer, hp_tensor x, int64_t width, place at);
hp_tensor decoder_mlp(model_build *b, int layer, hp_tensor x); /* "mlp", as wide as c->ffn */

/* Parameters of decoder_attention; of an mlp; of embedding, head and norms. */
double decoder_attention_params(const model_config *c);
double decoder_mlp_params(const model_config *c, int64_t width);
double decoder_frame_params(const model_config *c);

/* The params that tensor parallelism shards in such decoders. */
extern const tensor_cut decoder_cuts[];

#endif
