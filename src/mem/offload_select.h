/* Internal to mem/offload: which items leave between two touches, chosen for the whole run at once.
 *
 * When steps start is given, and with it the time that lanes have.  At the step that needs most,
 * those items leave first which take away most of the excess over the whole run for the seconds of
 * their copies, of those whose copies are done in time; then the step that needs most now follows.
 * Where none is in time, the run waits. */
#ifndef MEM_OFFLOAD_SELECT_H
#define MEM_OFFLOAD_SELECT_H

#include "mem/offload_sweep.h"

typedef struct {
  double *wait_s;  /* [n + 1] given: seconds that each step, and the end of the run, waits */
  uint8_t *choice; /* [touches + items] OFFLOAD_STAY or OFFLOAD_LEAVE, as in offload_policy */
  bool *carried;   /* [items] */
  double *start_s; /* [n + 1] of steps with all waits */
  bool made;       /* false: it would take longer than it may */
} offload_selection;

/* offload_selection_free(s), also after a failure. */
hp_status offload_selection_create(const offload_problem *p, offload_selection *s);
void offload_selection_free(offload_selection *s);
/* Chooses for s->wait_s; a run of more than most_s seconds is given up. */
hp_status offload_select(const offload_problem *p, double most_s, offload_selection *s);

#endif
