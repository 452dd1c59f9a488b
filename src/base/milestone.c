#include "base/milestone.h"

/* Stored as one more: 0 is nothing yet. */
static struct { _Atomic int64_t step, saved; } milestone;

void milestone_set_step(int64_t step) { milestone.step = step + 1; }
void milestone_set_saved(int64_t step) { milestone.saved = step + 1; }
int64_t milestone_get_step(void) { return milestone.step - 1; }
int64_t milestone_get_saved(void) { return milestone.saved - 1; }
