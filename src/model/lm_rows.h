/* Sizes of the rows of weights on the device, with which DoRA starts. */
#ifndef MODEL_LM_ROWS_H
#define MODEL_LM_ROWS_H

#include "model/lm.h"

/* The params "M.lora_magnitude_vector" get the norms of the rows of the weight of M. */
hp_status lm_measure_rows(const lm *m);

#endif
