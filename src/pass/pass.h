/* Passes: each reads one graph and builds another.  The order is that of pass.def;
 * compile/stages.def has their place among all stages. */
#ifndef PASS_PASS_H
#define PASS_PASS_H

#include "ir/rewrite.h"
#include "topo/capabilities.h"

typedef struct {
  const hp_compile_options *options; /* the caller's */
  const capabilities *can;           /* capabilities of the target's kernels */
  str *notes; /* what a pass did, or could not do, in lines for people; NULL = not needed */
} pass_options;

typedef hp_status (*pass_fn)(const hp_graph *in, const pass_options *o, hp_graph **out);
typedef struct {
  const char *name;
  pass_fn run;
  const char *doc;
} pass_row;
/* All passes in order; the last row has a NULL name. */
extern const pass_row pass_table[];

#define PASS(name, doc)                                                                            \
  hp_status pass_##name(const hp_graph *in, const pass_options *o, hp_graph **out);
#include "pass/pass.def"
#undef PASS

#endif
