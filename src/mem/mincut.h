/* What to save for the backward pass: a minimum cut between existing values and the needs of the
 * backward.
 *
 * Every value may be saved at the cost of its bytes, or recomputed from its inputs if that is
 * allowed.  The cut of least bytes is found exactly (Dinic); of all such cuts the one nearest to
 * the backward pass is taken, because it recomputes least.
 * Reference: Ford and Fulkerson; the use for activations as in AOTAutograd's partitioner. */
#ifndef MEM_MINCUT_H
#define MEM_MINCUT_H

#include "base/status.h"

enum {
  MINCUT_BANNED = 1, /* cannot be recomputed: an input, a random op, an expensive op */
  MINCUT_NEEDED = 2, /* the backward pass reads it */
  MINCUT_NOSAVE = 4  /* may not be saved (a view, a value that must not outlive the forward pass) */
};

typedef struct {
  size_t n; /* values, < 2^30 */
  const uint64_t
      *bytes; /* [n] cost of saving; 0 for values that stay resident anyway (a parameter) */
  const uint8_t *flags; /* [n] MINCUT_* */
  const uint32_t *in0;  /* [n + 1] value v is computed from in[in0[v]] .. in[in0[v + 1] - 1], */
  const uint32_t *in;   /* all lower than v; a value without inputs is never recomputed */
} mincut_graph;

typedef struct {
  uint64_t saved_bytes;
  size_t saved, recomputed; /* numbers of values */
} mincut_summary;

/* Fills save[n] (values that the backward keeps) and recompute[n] (values that the backward
 * recomputes from saved ones).  Fails with HP_ERR_ARG, naming the value, on a malformed graph or
 * if a needed value can be neither saved nor recomputed. */
hp_status mincut_choose(const mincut_graph *g, bool *save, bool *recompute, mincut_summary *out);

#endif
