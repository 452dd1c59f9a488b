/* Which modules adapter_config.json means, as peft 0.18 reads it: target_modules and
 * exclude_modules are names (or their last components), or one expression for whole names;
 * layers_to_transform and layers_pattern choose among those that are named by their last
 * components; what modules_to_save contains has no adapter.  Keys of rank_pattern and
 * alpha_pattern are expressions for names or their ends; the first that matches counts. */
#ifndef MODEL_ADAPTER_MATCH_H
#define MODEL_ADAPTER_MATCH_H

#include "base/tree.h"

typedef struct adapter_match adapter_match;

/* root: a map, which is used as long as *out.  HP_ERR_INPUT names the key that is no such list or
 * map, or an expression that cannot be read. */
hp_status adapter_match_create(const tree_node *root, adapter_match **out);
void adapter_match_free(adapter_match *m);

/* Has the module, a name of the model without peft's prefix, an adapter? */
hp_status adapter_match_target(adapter_match *m, const char *module, bool *yes);
/* Values of the module in rank_pattern and alpha_pattern; left alone where it has none. */
hp_status adapter_match_values(adapter_match *m, const char *module, double *rank, double *alpha);

#endif
