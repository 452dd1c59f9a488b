/* Passes: each reads one graph and builds another.  The order is that of pass.def. */
#ifndef PASS_PASS_H
#define PASS_PASS_H

#include "ir/graph.h"

typedef struct {
  bool remat;           /* recompute all forward values inside blocks, not only cheap ones */
  bool one_type;        /* products take operands of one type, as library engines do */
  uint64_t piece_bytes; /* larger values are made in pieces of so many bytes; 0: the pass chooses */
  str *notes; /* what a pass did, or could not do, in lines for people; NULL = not asked */
  const char *dump_dir; /* write the text after every pass there; NULL = no */
} pass_options;

enum { PASS_PIECE = 64 << 20 };

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

/* --- what passes are written with ----------------------------------------------------- */

/* A new graph being made from an old one: map[v] is the new id of old value v, 0 = none yet. */
typedef struct {
  const hp_graph *from;
  hp_graph *to;
  val *map;
} rewrite;
hp_status rewrite_begin(rewrite *r, const hp_graph *from);
/* Copies node n with mapped operands and maps its results. */
void rewrite_copy(rewrite *r, uint32_t n);
/* Gives new nodes the place (block, phase, stage, group, loc) of old node n, and whether they
 * compute something again. */
void rewrite_place(rewrite *r, const ir_node *n);
/* Ends it: on success *out is the new graph, else it is freed. */
hp_status rewrite_end(rewrite *r, hp_status st, hp_graph **out);
/* The same, and nodes that no output, assign or input depends on are left out. */
hp_status rewrite_end_live(rewrite *r, hp_status st, hp_graph **out);

/* Users of every value: nodes use[use0[v]] .. use[use0[v + 1] - 1], in node order. */
typedef struct {
  uint32_t *use0, *use;
} use_lists;
hp_status use_lists_build(const hp_graph *g, use_lists *out);
void use_lists_free(use_lists *u);

#endif
