/* What passes over graphs are written with: a new graph made from an old one, and the users of
 * values.  A graph is never edited in place. */
#ifndef IR_REWRITE_H
#define IR_REWRITE_H

#include "ir/graph.h"

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
