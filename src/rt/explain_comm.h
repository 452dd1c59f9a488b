/* The communication of a run: its times, and how much of it overlaps with computation. */
#ifndef RT_EXPLAIN_COMM_H
#define RT_EXPLAIN_COMM_H

#include "rt/exec.h"

/* Of a collective: its time from the arrival of all its devices; the part of it during which the
 * device computes; and the largest possible overlap: the time of all computation that neither
 * needs the collective nor is needed by it, at most. */
typedef struct {
  double comm_s, hidden_s, hideable_s;
} comm_time;

/* By instruction to each[] (zeros for other instructions; NULL: not needed), and sums.  In the sum
 * of the largest possible overlap, a second of computation overlaps only one second of
 * communication.
 * one second only, whichever collective's. */
hp_status comm_times(const program *p, const inst_times *t, comm_time *each, comm_time *sum);
/* Collectives of one op over the same axes. */
typedef struct {
  uint16_t op;
  char axes[64]; /* "tp", "dp,tp" */
  int count;
  double bytes; /* received per device */
  comm_time time;
} comm_kind;
enum { COMM_KINDS = 128 };
/* Returns their number; kinds beyond COMM_KINDS are added to the last. */
int comm_kinds(const program *p, const mesh *m, const comm_time *each, comm_kind out[COMM_KINDS]);
/* The mesh axes of a collective: "dp,tp". */
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
