/* What is moved between memory tiers, and what that costs: the plan of a program compared with its
 * lower bound, bytes by class and tier, and the score of each value that moves. */
#ifndef RT_EXPLAIN_MOVED_H
#define RT_EXPLAIN_MOVED_H

#include "rt/explain_chain.h"

/* t: of a run; measured, or predicted.  Nothing for a program that uses the device alone. */
hp_status explain_moved(const program *p, const device *d, const inst_times *t, bool measured,
                        str *out);
/* The same as keys of the open map: "plan_s", "lower_bound_s" (null: not known), "copy_s",
 * "classes", "moved_values", and "moved", the largest values first, at most MOVED_LISTED. */
enum { MOVED_SHOWN = 24, MOVED_LISTED = 1000 };
hp_status put_moved(json_writer *w, const program *p, const device *d, const inst_times *t);

#endif
