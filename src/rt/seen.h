/* What attention sees of its keys where spans that a run is given say so: in sessions a cache has
 * room for more keys than there are, in packed sequences a document sees itself alone. */
#ifndef RT_SEEN_H
#define RT_SEEN_H

#include "prog/program.h"

typedef struct {
  double pairs; /* of query and key, for one head; 0: not known */
  double keys;  /* that some query sees, of all sequences */
} seen_keys;

/* The input of the program that is the span of instruction n; NULL: there is none. */
const prog_buffer *seen_input(const program *p, const prog_inst *n);
/* What n sees by that span [B,T,2]. */
seen_keys seen_by(const program *p, const prog_inst *n, const int32_t *span);
/* Operations and bytes of n, when it sees no more than that. */
void seen_work(const program *p, const prog_inst *n, seen_keys seen, double *flops, double *bytes);

#endif
