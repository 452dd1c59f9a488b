/* Passes: each reads one graph and builds another.  The order is that of pass.def. */
#ifndef PASS_PASS_H
#define PASS_PASS_H

#include "ir/rewrite.h"

typedef struct {
  bool remat;           /* recompute all forward values inside blocks, not only cheap ones */
  bool one_type;        /* products take operands of one type, as library engines do */
  uint64_t chunk_bytes; /* larger values are made in chunks of so many bytes; 0: the pass chooses */
  str *notes; /* what a pass did, or could not do, in lines for people; NULL = not asked */
  const char *dump_dir; /* write the text after every pass there; NULL = no */
} pass_options;

enum { PASS_CHUNK_BYTES = 64 << 20 };

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

/* Runs all passes; `in` stays the caller's. */
hp_status pass_run_all(const hp_graph *in, const pass_options *o, hp_graph **out);

#endif
