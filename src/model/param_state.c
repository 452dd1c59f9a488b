#include "model/param_state.h"

#include <stdio.h>

static const char *const prefix[] = {
    [STATE_PARAM] = "",
    [STATE_GRAD] = "g.",
    [STATE_M] = "m.",
    [STATE_V] = "v.",
};

void param_state_name(param_state s, const char *param, char name[STATE_NAME]) {
  snprintf(name, STATE_NAME, "%s%s", prefix[s], param);
}

const char *param_state_prefix(param_state s) { return prefix[s]; }
