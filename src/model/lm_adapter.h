/* Adapters in folders, for a model. */
#ifndef MODEL_LM_ADAPTER_H
#define MODEL_LM_ADAPTER_H

#include "model/lm.h"

/* All of the folders are merged into the weights when they are loaded.  keep: all but the last,
 * which the model gets as its adapter. */
hp_status lm_open_adapters(lm *m, const char *const *dir, size_t n, bool keep);
/* The same of a list with commas between. */
hp_status lm_open_adapter_list(lm *m, const char *list, bool keep);

#endif
