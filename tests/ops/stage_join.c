#include "ops/stage_join.h"

#include "ir/attr.h"
#include "ops/random_graph.h"
#include "pass/stage_cut.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
  hp_graph *part;
  val *map; /* of its values to those of the joined graph */
  uint32_t at;
} stage_part;

typedef struct {
  const stage_crossings *x;
  val *made;   /* [crossings] values of the joined graph */
  bool *taken; /* and by the stage that they go to */
  hp_graph *to;
} joiner;

/* The crossing of such a name, from or to that stage; -1: none. */
static int find(const stage_crossings *x, const char *name, int from, int to) {
  for (size_t i = 0; i < x->len; i++)
    if (!strcmp(x->at[i].name, name) && (from < 0 || x->at[i].from == from) &&
        (to < 0 || x->at[i].to == to))
      return (int)i;
  return -1;
}

/* Adds the next node; false: what it reads is not there yet. */
static bool add_next(joiner *j, stage_part *p, int stage) {
  const ir_node *n = graph_node(p->part, p->at);
  const char *name = n->op == OP_INPUT || n->op == OP_OUTPUT ? attr_str(p->part, n, "name") : "";
  int in = n->op == OP_INPUT ? find(j->x, name, -1, stage) : -1;
  int out = n->op == OP_OUTPUT ? find(j->x, name, stage, -1) : -1;
  val operands[255], made;
  if (in >= 0) {
    made = j->made[find(j->x, name, -1, -1)];
    if (!made) return false;
    const ir_value *a = graph_value(p->part, n->out0), *b = graph_value(j->to, made);
    CHECK(a->dtype == b->dtype && a->rank == b->rank && a->layout == b->layout);
    CHECK(!memcmp(a->dim, b->dim, sizeof a->dim));
    j->taken[in] = true;
    p->map[n->out0] = made;
    p->at++;
    return true;
  }
  for (int k = 0; k < n->n_in; k++) operands[k] = p->map[graph_in(p->part, n)[k]];
  if (out >= 0) j->made[find(j->x, name, -1, -1)] = operands[0];
  else {
    made = graph_add_like(j->to, p->part, n, operands);
    for (int k = 0; k < n->n_out; k++) p->map[n->out0 + (val)k] = made + (val)k;
  }
  p->at++;
  return true;
}

static void check_places(const hp_graph *g, stage_part *p, int stages) {
  size_t effects = 0, want = 0;
  for (int s = 0; s < stages; s++)
    for (uint32_t i = 0; i < p[s].part->nodes.len; i++) {
      const ir_node *n = graph_node(p[s].part, i);
      effects += n->op == OP_ASSIGN;
      CHECK(n->op != OP_PARAM || n->stage == s || strstr(attr_str(p[s].part, n, "name"), "rope."));
    }
  for (uint32_t i = 0; i < g->nodes.len; i++) want += graph_node(g, i)->op == OP_ASSIGN;
  CHECK_EQ(effects, want);
}

hp_graph *stage_cut_and_join(const hp_graph *g, int stages, stage_crossings *x) {
  hp_graph *cut[16];
  stage_part p[16] = {0};
  CHECK(stages <= 16);
  stage_edges edges = {0};
  CHECK_OK(stage_cut(g, &(stage_placement){stages, stages, NULL}, cut, x, &edges));
  vec_free(&edges);
  joiner j = {.x = x, .made = calloc(x->len + 1, sizeof *j.made), .taken = calloc(x->len + 1, 1)};
  CHECK_OK(graph_create(g, &j.to));
  for (int s = 0; s < stages; s++)
    p[s] = (stage_part){cut[s], calloc(cut[s]->values.len, sizeof(val)), 0};
  check_places(g, p, stages);
  for (bool moved = true; moved;) {
    moved = false;
    for (int s = 0; s < stages; s++)
      while (p[s].at < p[s].part->nodes.len && add_next(&j, &p[s], s)) moved = true;
  }
  for (int s = 0; s < stages; s++) {
    CHECK_EQ(p[s].at, p[s].part->nodes.len);
    free(p[s].map);
    graph_free(cut[s]);
  }
  for (size_t i = 0; i < x->len; i++) CHECK(j.taken[i]);
  CHECK_OK(graph_status(j.to));
  free(j.made);
  free(j.taken);
  return j.to;
}

hp_graph *stage_join_random(hp_graph *g, int stages, uint64_t seed) {
  rng r = {.seed = seed, .at = 1 << 24};
  stage_crossings x = {0};
  for (uint32_t i = 0; i < g->nodes.len; i++)
    g->nodes.at[i].stage = (uint16_t)rng_below(&r, stages);
  hp_graph *joined = stage_cut_and_join(g, stages, &x);
  for (uint32_t i = 0; i < g->nodes.len; i++) g->nodes.at[i].stage = 0;
  vec_free(&x);
  return joined;
}
