/* The keys that attention can see if spans are an input of the run: in sessions a cache has room
 * for more keys than it holds, in packed sequences a document sees only itself. */
#ifndef RT_VISIBLE_KEYS_H
#define RT_VISIBLE_KEYS_H

#include "prog/program.h"

typedef struct {
  double pairs; /* of query and key, per head; 0: not known */
  double keys;  /* visible to some query, of all sequences */
} visible_keys;

/* The input of the program that is the span of instruction n; NULL: none. */
const prog_buffer *visible_keys_input(const program *p, const prog_inst *n);
/* The keys visible to the queries of n, by that span [B,T,2]. */
visible_keys visible_keys_count(const program *p, const prog_inst *n, const int32_t *span);
/* Operations and bytes of n with these visible keys. */
void visible_keys_cost(const program *p, const prog_inst *n, visible_keys visible, double *flops,
                       double *bytes);

#endif
