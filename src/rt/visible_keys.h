/* The keys that attention can see where spans that a run is given say so: in sessions a cache has
 * room for more keys than there are, in packed sequences a document sees itself alone. */
#ifndef RT_VISIBLE_KEYS_H
#define RT_VISIBLE_KEYS_H

#include "prog/program.h"

typedef struct {
  double pairs; /* of query and key, for one head; 0: not known */
  double keys;  /* that some query sees, of all sequences */
} visible_keys;

/* The input of the program that is the span of instruction n; NULL: there is none. */
const prog_buffer *visible_keys_input(const program *p, const prog_inst *n);
/* The keys that the queries of n attend to, by that span [B,T,2]. */
visible_keys visible_keys_count(const program *p, const prog_inst *n, const int32_t *span);
/* Operations and bytes of n, when it sees no more than that. */
void visible_keys_cost(const program *p, const prog_inst *n, visible_keys visible, double *flops,
                       double *bytes);

#endif
