/* The keys of stages that learn preferences: pref_*, kto_*, simpo_gamma, ref_model. */
#ifndef TRAIN_TRAIN_PREFERENCE_H
#define TRAIN_TRAIN_PREFERENCE_H

#include "train/preference.h"
#include "train/train_config.h"

/* Checks them; a rule of train_config_check.c. */
hp_status train_preference_check(train_config *c);
/* What they say; of stages that learn no preferences nothing. */
preference train_preference_of(const train_config *c);

#endif
