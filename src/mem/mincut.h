/* What to save for the backward pass: a minimum cut between what exists and what backward needs.
 *
 * Every value may be saved at the price of its bytes, or computed again from its inputs when that
 * is allowed.  The cut of least bytes is found exactly (Dinic); of all cuts with so few bytes the
 * one nearest to the backward pass is taken, because it recomputes least.
 * Reference: Ford and Fulkerson; the use for activations as in AOTAutograd's partitioner. */
#ifndef MEM_MINCUT_H
#define MEM_MINCUT_H

#include "base/status.h"

enum {
  MINCUT_BANNED = 1, /* cannot be computed again: an input, a random op, an op too dear */
  MINCUT_NEEDED = 2, /* the backward pass reads it */
  MINCUT_NOSAVE = 4  /* may not be saved (a view, a value that must not outlive the forward pass) */
};

typedef struct {
  size_t n;              /* values, < 2^30 */
  const uint64_t *bytes; /* [n] price of saving; 0 for what stays resident anyway (a parameter) */
  const uint8_t *flags;  /* [n] MINCUT_* */
  const uint32_t *in0;   /* [n + 1] value v is computed from in[in0[v]] .. in[in0[v + 1] - 1], */
  const uint32_t *in;    /* all lower than v; one without inputs is never computed again */
} mincut_graph;

typedef struct {
  uint64_t saved_bytes;
  size_t saved, recomputed; /* counts of values */
} mincut_summary;

/* Fills save[n] (values that backward keeps) and recompute[n] (values that backward computes again
 * from saved ones).  Fails with HP_ERR_ARG on a malformed graph or when a needed value
 * can be neither saved nor computed again; it names the value. */
hp_status mincut_choose(const mincut_graph *g, bool *save, bool *recompute, mincut_summary *out);

#endif
