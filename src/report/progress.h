/* The progress bar, in the shape of tqdm:
 *   2%|▏         | 10/620 [00:52<50:17,  4.95s/it, loss=0.83, 1.2k tok/s, MFU 41%]
 * On a terminal it is redrawn in place, at most ten times a second; elsewhere it is a plain line
 * now and then: at the first step, every 10 % or half minute, and at the last. */
#ifndef REPORT_PROGRESS_H
#define REPORT_PROGRESS_H

#include "base/str.h"

typedef struct {
  int64_t total, first, done; /* steps: of the run, at the start (after a resume), so far */
  bool quiet, terminal;
  double start_s, shown_s, last_s; /* time_now_s(): of the start, last shown, last step */
  int64_t shown_done;
  double step_s;       /* mean of the recent steps, as tqdm smooths it */
  double tokens_per_s; /* likewise; 0: unknown */
  double limit_flops;  /* of the machine, per second, for MFU; 0: unknown */
  double flops_per_s;
} progress;

/* first: steps done before; limit_flops: the machine's, 0 when it is not known. */
progress progress_create(int64_t total, int64_t first, double limit_flops, bool quiet);
/* A step is done: its loss, its tokens and flops. */
void progress_step(progress *p, int64_t step, double loss, int64_t tokens, double flops);
/* Takes the bar away so that a line can be printed, or for good. */
void progress_clear(const progress *p);

/* The bar as text, `columns` wide at most; now: time_now_s(). */
void progress_print(const progress *p, double now, double loss, int columns, str *out);

#endif
