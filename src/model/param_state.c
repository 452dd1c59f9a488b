#include "model/param_state.h"

#include <stdio.h>

/* from_end: the dim that the state lacks, 1 is the last; 0: none. */
static const struct {
  const char *prefix;
  int from_end;
} table[] = {
    [STATE_PARAM] = {"", 0}, [STATE_GRAD] = {"g.", 0},  [STATE_M] = {"m.", 0},
    [STATE_V] = {"v.", 0},   [STATE_ROW] = {"row.", 1}, [STATE_COL] = {"col.", 2},
};

void param_state_name(param_state s, const char *param, char name[STATE_NAME]) {
  snprintf(name, STATE_NAME, "%s%s", table[s].prefix, param);
}

const char *param_state_prefix(param_state s) { return table[s].prefix; }

int param_state_missing_dim(param_state s, int rank) {
  return table[s].from_end && rank >= 2 ? rank - table[s].from_end : -1;
}

hp_shape param_state_shape(param_state s, hp_shape param) {
  int missing = param_state_missing_dim(s, param.rank);
  hp_shape shape = {0};
  for (int d = 0; d < param.rank; d++)
    if (d != missing) shape.dim[shape.rank++] = param.dim[d];
  return shape;
}
