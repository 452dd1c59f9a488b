#include "pass/stage_cut.h"

#include "base/mem.h"
#include "ir/attr.h"
#include "ir/rewrite.h"
#include "ops/ops.h"

#include <stdio.h>
#include <string.h>

enum { FREE = UINT16_MAX };

typedef struct {
  const hp_graph *g;
  const stage_placement *at;
  uint16_t *place;  /* [nodes] its stage; FREE: of every mesh that reads it */
  val *same;        /* [values] what stands for a value: the first param of its name, or itself */
  bool *reads;      /* [values][meshes] nodes of the mesh read it */
  bool *live;       /* [nodes] in the graph of a mesh */
  uint16_t *bounds; /* [meshes][2] the lowest and the highest of its stages */
} cutter;

static uint16_t mesh_of(const cutter *c, uint16_t stage) {
  return c->at->mesh_of ? c->at->mesh_of[stage] : stage;
}

/* --- where each node is ----------------------------------------------------------------------- */

static val operand(const cutter *c, const ir_node *n, int k) {
  return c->same[graph_in(c->g, n)[k]];
}

static uint16_t place_of(const cutter *c, val v) { return c->place[graph_value(c->g, v)->def]; }

/* Params of one name are one, where the first of them is. */
static hp_status join_params(cutter *c) {
  const hp_graph *g = c->g;
  map first = {0}; /* attributes, the name among them -> value */
  hp_status st = HP_OK;
  for (val v = 0; v < g->values.len; v++) c->same[v] = v;
  for (uint32_t i = 0; !st && i < g->nodes.len; i++) {
    const ir_node *n = graph_node(g, i);
    uint32_t known;
    if (n->op != OP_PARAM) continue;
    if (map_get(&first, &n->attr, sizeof n->attr, &known)) c->same[n->out0] = known;
    else st = map_set(&first, &n->attr, sizeof n->attr, n->out0);
  }
  map_free(&first);
  return st;
}

/* Marks params that are read as tables alone: they are no part of the model, and the same for all.
 */
static void find_tables(const cutter *c, bool *table) {
  for (val v = 1; v < c->g->values.len; v++) table[v] = graph_def(c->g, v)->op == OP_PARAM;
  for (uint32_t i = 0; i < c->g->nodes.len; i++) {
    const ir_node *n = graph_node(c->g, i);
    for (int k = 0; k < n->n_in; k++)
      if (!k || !(op_flags((op_id)n->op) & OPF_TABLES)) table[operand(c, n, k)] = false;
  }
}

/* Made of inputs, constants and tables alone. */
static bool is_free(const cutter *c, const ir_node *n, const bool *table) {
  if (n->op == OP_PARAM) return table[c->same[n->out0]];
  if (n->op == OP_OUTPUT || n->op == OP_ASSIGN) return false;
  for (int k = 0; k < n->n_in; k++)
    if (place_of(c, operand(c, n, k)) != FREE) return false;
  return true;
}

static hp_status refuse_stage(const cutter *c, const ir_node *n) {
  const char *at = graph_str(c->g, n->loc);
  HP_FAIL(HP_ERR_ARG, "%s%s%s is of stage %u; the pipeline has stages 0 to %d",
          op_table[n->op].name, *at ? " at " : "", at, n->stage, c->at->stages - 1);
}

/* An output is where its value is, and an assign where its param is. */
static hp_status place_nodes(cutter *c, const bool *table) {
  for (uint32_t i = 0; i < c->g->nodes.len; i++) {
    const ir_node *n = graph_node(c->g, i);
    bool follows = n->op == OP_OUTPUT || n->op == OP_ASSIGN;
    uint16_t followed = follows ? place_of(c, operand(c, n, 0)) : FREE;
    if (n->stage >= c->at->stages) return refuse_stage(c, n);
    c->place[i] = is_free(c, n, table) ? FREE : followed != FREE ? followed : n->stage;
  }
  return HP_OK;
}

/* --- crossings -------------------------------------------------------------------------------- */

static bool *reads_of(const cutter *c, val v, uint16_t mesh) {
  return &c->reads[(size_t)v * (size_t)c->at->meshes + mesh];
}

static bool crosses(const cutter *c, val v, uint16_t to) {
  uint16_t from = place_of(c, v);
  return from != FREE && mesh_of(c, from) != to && *reads_of(c, v, to);
}

static void find_readers(cutter *c) {
  for (uint32_t i = 0; i < c->g->nodes.len; i++) {
    const ir_node *n = graph_node(c->g, i);
    uint16_t stage = c->place[i];
    for (int k = 0; stage != FREE && k < n->n_in; k++)
      *reads_of(c, operand(c, n, k), mesh_of(c, stage)) = true;
  }
}

static bool is_assigned(const cutter *c, val v) {
  for (uint32_t i = 0; i < c->g->nodes.len; i++) {
    const ir_node *n = graph_node(c->g, i);
    if (n->op == OP_ASSIGN && operand(c, n, 0) == v) return true;
  }
  return false;
}

static bool goes_as_it_is(const cutter *c, val v) {
  const ir_node *n = graph_def(c->g, v);
  return n->op == OP_PARAM && (n->phase != PHASE_UPDATE || !is_assigned(c, v));
}

static hp_status add_crossings(const cutter *c, stage_crossings *out) {
  for (val v = 1; v < c->g->values.len; v++)
    for (uint16_t to = 0; to < c->at->meshes; to++) {
      const ir_node *n = graph_def(c->g, v);
      if (!crosses(c, v, to)) continue;
      uint16_t stage = place_of(c, v);
      stage_crossing x = {.from = mesh_of(c, stage),
                          .to = to,
                          .phase = n->phase,
                          .is_param = goes_as_it_is(c, v),
                          .value = v};
      snprintf(x.name, sizeof x.name, "stage%u.value%u", stage, v);
      if (!vec_push(out, x)) return HP_ERR_OOM;
    }
  return HP_OK;
}

/* --- edges between stages --------------------------------------------------------------------- */

static hp_status add_edge(map *known, stage_edge e, stage_edges *out) {
  const uint16_t key[] = {e.from, e.to};
  uint32_t there;
  if (map_get(known, key, sizeof key, &there)) return HP_OK;
  HP_TRY(map_set(known, key, sizeof key, 1));
  return vec_push(out, e) ? HP_OK : HP_ERR_OOM;
}

/* In the backward a stage waits for those that come after it, whichever of the two reads. */
static hp_status add_read(const cutter *c, map *known, uint32_t i, val v, stage_edges *out) {
  const ir_node *n = graph_node(c->g, i), *made = graph_def(c->g, v);
  stage_edge e = {.from = place_of(c, v), .to = c->place[i], .node = i};
  if (e.from == FREE || e.from == e.to) return HP_OK;
  if (n->phase == PHASE_UPDATE || made->phase == PHASE_UPDATE) return HP_OK;
  bool forward = n->phase == PHASE_FORWARD && made->phase == PHASE_FORWARD;
  if (!forward && e.from > e.to) e.from = e.to, e.to = place_of(c, v);
  return add_edge(known, e, out);
}

static hp_status find_edges(const cutter *c, stage_edges *out) {
  map known = {0};
  hp_status st = HP_OK;
  for (uint32_t i = 0; i < c->g->nodes.len; i++) {
    const ir_node *n = graph_node(c->g, i);
    for (int k = 0; !st && c->place[i] != FREE && k < n->n_in; k++)
      st = add_read(c, &known, i, operand(c, n, k), out);
  }
  map_free(&known);
  return st;
}

/* --- the graph of a mesh ---------------------------------------------------------------------- */

/* Nodes of its stages, and what it computes itself of inputs and constants, for its nodes read it.
 */
static void find_live(const cutter *c, uint16_t mesh, bool *live) {
  memset(live, 0, c->g->nodes.len);
  for (size_t i = c->g->nodes.len; i-- > 0;) {
    const ir_node *n = graph_node(c->g, (uint32_t)i);
    live[i] = live[i] || (c->place[i] != FREE && mesh_of(c, c->place[i]) == mesh);
    for (int k = 0; live[i] && k < n->n_in; k++) {
      uint32_t def = graph_value(c->g, operand(c, n, k))->def;
      if (c->place[def] == FREE) live[def] = true;
    }
  }
}

/* Callers give all inputs of a graph: one that nothing needs is on the mesh of its own stage. */
static hp_status place_unused_inputs(cutter *c) {
  bool *used = mem_calloc(c->g->nodes.len + 1, sizeof *used);
  HP_TRY_MEM(used);
  for (int m = 0; m < c->at->meshes; m++) {
    find_live(c, (uint16_t)m, c->live);
    for (size_t i = 0; i < c->g->nodes.len; i++) used[i] |= c->live[i];
  }
  for (uint32_t i = 0; i < c->g->nodes.len; i++) {
    const ir_node *n = graph_node(c->g, i);
    if (n->op == OP_INPUT && !used[i]) c->place[i] = n->stage;
  }
  mem_free(used);
  return HP_OK;
}

/* The first crossing of a value: all of them have its name; NULL: it crosses nowhere. */
static const stage_crossing *find_crossing(const stage_crossings *x, val v) {
  size_t low = 0, high = x->len;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (x->at[middle].value < v) low = middle + 1;
    else high = middle;
  }
  return low < x->len && x->at[low].value == v ? &x->at[low] : NULL;
}

static void take_value(const cutter *c, rewrite *r, val v, const char *name) {
  const ir_value *type = graph_value(c->g, v);
  val in = ops_leaf(r->to, OP_INPUT, name, (hp_dtype)type->dtype, type->dim, type->rank);
  if (in) r->to->values.at[in].layout = type->layout;
  r->map[v] = in;
}

/* The stage of the node that was copied last: where it is; of what the mesh computes of inputs and
 * constants, that of its first row. */
static void set_stage(const cutter *c, rewrite *r, uint32_t i, uint16_t mesh) {
  const ir_node *n = graph_node(c->g, i);
  const uint16_t *bounds = &c->bounds[2 * mesh];
  ir_node *copy = &r->to->nodes.at[r->to->nodes.len - 1];
  if (c->place[i] != FREE) copy->stage = c->place[i];
  else if (n->op != OP_INPUT && n->op != OP_PARAM) /* no instruction */
    copy->stage = bounds[n->phase == PHASE_BACKWARD];
}

static void add_node(const cutter *c, rewrite *r, uint32_t i, uint16_t mesh, bool is_live,
                     const stage_crossings *x) {
  const ir_node *n = graph_node(c->g, i);
  if (is_live && n->n_out && c->same[n->out0] != n->out0) is_live = false; /* there already */
  if (is_live) {
    for (int k = 0; k < n->n_in; k++) {
      val v = graph_in(c->g, n)[k];
      r->map[v] = r->map[c->same[v]];
    }
    rewrite_copy(r, i);
    set_stage(c, r, i, mesh);
  }
  rewrite_place(r, n);
  for (val v = n->out0; v < n->out0 + n->n_out; v++) {
    const stage_crossing *k = find_crossing(x, v);
    if (!k) continue;
    if (k->from == mesh) ops_output(r->to, k->name, r->map[v]);
    else if (crosses(c, v, mesh)) take_value(c, r, v, k->name);
  }
}

static hp_status cut_mesh(const cutter *c, uint16_t mesh, const stage_crossings *x,
                          hp_graph **out) {
  rewrite r;
  HP_TRY(rewrite_begin(&r, c->g));
  find_live(c, mesh, c->live);
  for (uint32_t i = 0; i < c->g->nodes.len; i++) add_node(c, &r, i, mesh, c->live[i], x);
  return rewrite_end(&r, HP_OK, out);
}

static void find_bounds(const cutter *c) {
  for (int m = 0; m < c->at->meshes; m++) c->bounds[2 * m] = FREE;
  for (uint16_t s = 0; s < c->at->stages; s++) {
    uint16_t *b = &c->bounds[2 * mesh_of(c, s)];
    if (b[0] == FREE) b[0] = s;
    b[1] = s;
  }
}

static hp_status cut_all(cutter *c, hp_graph **out, stage_crossings *x, stage_edges *edges) {
  bool *table = mem_calloc(c->g->values.len, sizeof *table);
  HP_TRY_MEM(table);
  hp_status st = join_params(c);
  if (!st) find_tables(c, table);
  if (!st) st = place_nodes(c, table);
  mem_free(table);
  HP_TRY(st);
  find_bounds(c);
  find_readers(c);
  HP_TRY(add_crossings(c, x));
  HP_TRY(find_edges(c, edges));
  HP_TRY(place_unused_inputs(c));
  for (int m = 0; m < c->at->meshes; m++) HP_TRY(cut_mesh(c, (uint16_t)m, x, &out[m]));
  return HP_OK;
}

hp_status stage_cut(const hp_graph *g, const stage_placement *p, hp_graph **out, stage_crossings *x,
                    stage_edges *edges) {
  size_t values = g->values.len, all;
  HP_TRY(graph_status(g));
  if (p->stages < 1 || p->stages >= FREE || !size_mul(values, (size_t)p->meshes, &all))
    HP_FAIL(HP_ERR_ARG, "%d stages; expected 1 to %d", p->stages, FREE - 1);
  cutter c = {.g = g,
              .at = p,
              .place = mem_calloc(g->nodes.len + 1, sizeof *c.place),
              .same = mem_calloc(values, sizeof *c.same),
              .reads = mem_calloc(all, sizeof *c.reads),
              .live = mem_calloc(g->nodes.len + 1, sizeof *c.live),
              .bounds = mem_calloc((size_t)p->meshes, 2 * sizeof *c.bounds)};
  memset(out, 0, (size_t)p->meshes * sizeof *out);
  bool room = c.place && c.same && c.reads && c.live && c.bounds;
  hp_status st = room ? cut_all(&c, out, x, edges) : HP_ERR_OOM;
  for (int m = 0; st && m < p->meshes; m++) {
    graph_free(out[m]);
    out[m] = NULL;
  }
  mem_free(c.place);
  mem_free(c.same);
  mem_free(c.reads);
  mem_free(c.live);
  mem_free(c.bounds);
  return st;
}
