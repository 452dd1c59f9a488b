/* The communication of a run: its times, and how much of it overlaps with computation. */
#ifndef RT_EXPLAIN_COMM_H
#define RT_EXPLAIN_COMM_H

#include "rt/exec.h"

/* Times of a collective, from the arrival of its last device on.
 * comm_s: how long it takes.  overlapped_s: how much of that overlaps with computation.
 * can_overlap_s: how much could overlap: at most the time of all computation that neither needs the
 * collective nor is needed by it. */
typedef struct {
  double comm_s, overlapped_s, can_overlap_s;
} comm_time;

/* Writes the times of every instruction to each[] (zeros where it is no collective; each may be
 * NULL), and their sums to *sum.  In sum->can_overlap_s a second of computation overlaps with one
 * second of communication, not with several collectives at once. */
hp_status comm_times(const program *p, const inst_times *t, comm_time *each, comm_time *sum);
/* Collectives of one op over the same axes. */
typedef struct {
  uint16_t op;
  char axes[64]; /* "tp", "dp,tp" */
  int count;
  double bytes, moved; /* received per device: expected, and according to the times */
  comm_time time;
} comm_kind;
enum { COMM_KINDS = 128 };
/* Adds up the collectives by kind and returns the number of kinds; those beyond COMM_KINDS are
 * added to the last. */
int comm_kinds(const program *p, const mesh *m, const inst_times *t, const comm_time *each,
               comm_kind out[COMM_KINDS]);
/* The mesh axes of a collective: "dp,tp". */
void comm_name_axes(const program *p, const mesh *m, const prog_inst *n, char out[64]);
static inline bool comm_is_collective(const prog_inst *n) {
  return op_flags((op_id)n->op) & OPF_RENDEZVOUS;
}

/* A table of all collectives with bytes, times and sums: as text for people, and as one JSON
 * object. measured: t comes from a run, not from a prediction. */
hp_status explain_comm(const program *p, const mesh *m, const inst_times *t, bool measured,
                       str *out);
hp_status explain_comm_json(const program *p, const mesh *m, const inst_times *t, bool measured,
                            str *out);

#endif
