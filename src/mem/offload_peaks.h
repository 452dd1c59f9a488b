/* Internal to mem/offload: the bytes that are live during each step while items are sent away: the
 * step that needs most, and the seconds of steps that need too much. */
#ifndef MEM_OFFLOAD_PEAKS_H
#define MEM_OFFLOAD_PEAKS_H

#include "mem/index_set.h"
#include "mem/peak_tree.h"

typedef struct {
  const double *step_s; /* [n] the caller's */
  peak_tree high;       /* excess of steps, of those that were not given up */
  peak_tree low;        /* minus the excess of those that need too much */
  index_set over;       /* the steps that need too much */
  double *over_s;       /* [n] by step of `over`: seconds of those up to its end, */
  uint32_t known;       /* for steps before this one */
} offload_peaks;

/* Step i of n needs need[i] bytes of `cap` and takes step_s[i] seconds, which may change as
 * offload_peaks_longer is told.  offload_peaks_free(p), also after a failure. */
hp_status offload_peaks_create(const uint64_t *need, const double *step_s, uint32_t n, uint64_t cap,
                               offload_peaks *p);
void offload_peaks_free(offload_peaks *p);
/* Steps from..until-1 need so many bytes less. */
void offload_peaks_drop(offload_peaks *p, uint32_t from, uint32_t until, uint64_t bytes);
/* Step i takes another time than before. */
void offload_peaks_longer(offload_peaks *p, uint32_t i);
/* The first of the steps that need most, of those that need too much; n: none does. */
uint32_t offload_peaks_find(const offload_peaks *p);
/* offload_peaks_find does not name step i any more. */
void offload_peaks_give_up(offload_peaks *p, uint32_t i);
/* Bytes by which step i, which was not given up, needs too much; <= 0: it does not. */
int64_t offload_peaks_excess(const offload_peaks *p, uint32_t i);
/* Seconds of the steps before i that need too much, each and a little more. */
double offload_peaks_over_s(offload_peaks *p, uint32_t i);

#endif
