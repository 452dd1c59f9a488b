/* What devices tell each other in a run, when, and how much of it hides behind computation. */
#ifndef RT_EXPLAIN_COMM_H
#define RT_EXPLAIN_COMM_H

#include "rt/exec.h"

/* Of a collective: its time from when all its devices have come; how much of that the device
 * computes meanwhile; and how much it could at most: no more than the time of all computation that
 * neither needs the collective nor is needed by it. */
typedef struct {
  double comm_s, hidden_s, hideable_s;
} comm_time;

/* By instruction to each[] (zeros for those that are no collective; NULL: not wanted), and sums.
 * In all, what can be hidden is what has its own place beside computation: a second of that hides
 * one second only, whichever collective's. */
hp_status comm_times(const program *p, const inst_times *t, comm_time *each, comm_time *sum);
/* Collectives of one op over the same axes. */
typedef struct {
  uint16_t op;
  char axes[64]; /* "tp", "dp,tp" */
  int count;
  double bytes; /* that a device receives */
  comm_time time;
} comm_kind;
enum { COMM_KINDS = 128 };
/* Returns how many there are; what would be beyond COMM_KINDS joins the last. */
int comm_kinds(const program *p, const mesh *m, const comm_time *each, comm_kind out[COMM_KINDS]);
/* The axes that a collective goes over: "dp,tp". */
void comm_name_axes(const program *p, const mesh *m, const prog_inst *n, char out[64]);
static inline bool comm_is_collective(const prog_inst *n) {
  return op_flags((op_id)n->op) & OPF_RENDEZVOUS;
}

/* Every collective of the program with its bytes and times, and sums; as text for people, and as
 * one JSON object.  measured: t is of a run, not a prediction. */
hp_status explain_comm(const program *p, const mesh *m, const inst_times *t, bool measured,
                       str *out);
hp_status explain_comm_json(const program *p, const mesh *m, const inst_times *t, bool measured,
                            str *out);

#endif
