/* PiSSA: adapters that begin with the leading singular vectors of the weights. */
#ifndef MODEL_LM_PISSA_H
#define MODEL_LM_PISSA_H

#include "model/lm.h"

/* Gives A and B of every module of m's adapter the leading singular vectors of its weight, which
 * keeps the rest, as peft does with init_lora_weights "pissa".  A function of the weights and the
 * adapter's seed.  adapter->starts has them from then on. */
hp_status lm_split_weights(lm *m);

#endif
