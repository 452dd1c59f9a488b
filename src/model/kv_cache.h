/* Attention through a cache of keys and values in blocks (model_cache). */
#ifndef MODEL_KV_CACHE_H
#define MODEL_KV_CACHE_H

#include "model/family.h"

/* New keys and values k, v [B,T,KV,..] go to the layer's cache, and q sees those that the build's
 * span says. */
hp_tensor build_cached_attention(model_build *b, int layer, hp_tensor q, hp_tensor k, hp_tensor v,
                                 const hp_attention_options *o);

#endif
