/* Attention whose keys and values are in pools, for hp_attention. */
#ifndef API_API_PAGED_H
#define API_API_PAGED_H

#include "ir/graph.h"

/* in: q, and the pools of keys and values; o has a table. */
hp_tensor api_attend_pages(hp_graph *g, const val in[3], const hp_attention_options *o);

#endif
