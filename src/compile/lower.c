#include "compile/lower.h"

#include "codegen/loop.h"
#include "mem/timeline.h"
#include "ops/ops.h"
#include "compile/inplace.h"
#include "ops/views.h"

#include <string.h>

typedef struct {
  const hp_graph *g;
  program *p;
  uint32_t *buffer_of; /* by value id; PROG_NONE: none yet */
  uint32_t *last_use;  /* by root value id: last node that reads it, 0 = none */
  val *root;           /* by value id: the value whose memory it shares, or itself */
  val *within;         /* by value id: the value in whose memory it is computed, 0 = its own */
  uint64_t *at;        /* its first byte there */
  val *assigned;       /* by value id: a param whose new value it is, 0 = none */
  val *becomes;        /* by value id of a param: its new value, 0 = none */
  uint8_t *pool_tier;  /* by value id of a param: the tier whose ops read and write its blocks */
  map work_of;         /* attributes of a loop -> place in work */
  VEC(op_cost) work;
} lowering;

static uint32_t add_buffer(lowering *l, prog_buffer b) {
  b.root = (uint32_t)l->p->buffers.len;
  return vec_push(&l->p->buffers, b) ? b.root : PROG_NONE;
}

/* A view of a buffer from byte `at` on, with another shape. */
static uint32_t add_view(lowering *l, uint32_t of, uint64_t at, const ir_value *type) {
  prog_buffer b = l->p->buffers.at[of];
  b.type = *type;
  b.at += at;
  b.bytes = (uint64_t)value_bytes(type);
  if (!vec_push(&l->p->buffers, b)) return PROG_NONE;
  return (uint32_t)l->p->buffers.len - 1;
}

static uint8_t class_of(const hp_graph *g, val v) {
  bool backward = graph_def(g, v)->phase == PHASE_BACKWARD;
  return (uint8_t)(backward && !graph_is_recomputed(g, v) ? MEM_GRAD : MEM_ACTIVATION);
}

/* A work buffer for value v. */
static uint32_t new_work(lowering *l, val v) {
  const ir_value *t = graph_value(l->g, v);
  return add_buffer(l, (prog_buffer){.place = PLACE_WORK,
                                     .tier = TIER_DEVICE,
                                     .class = class_of(l->g, v),
                                     .bytes = (uint64_t)value_bytes(t),
                                     .type = *t});
}

/* A buffer for a result: its own, or inside the value that it becomes a part of. */
static uint32_t new_result(lowering *l, val v) {
  val whole = l->within[v];
  if (!whole) return new_work(l, v);
  if (l->buffer_of[whole] == PROG_NONE) l->buffer_of[whole] = new_work(l, whole);
  if (l->buffer_of[whole] == PROG_NONE) return PROG_NONE;
  return add_view(l, l->buffer_of[whole], l->at[v], graph_value(l->g, v));
}

static hp_status add_inst(lowering *l, prog_inst n, const uint32_t *in, const uint32_t *out) {
  program *p = l->p;
  n.arg0 = (uint32_t)p->args.len;
  n.workspace = PROG_NONE;
  n.kernel = (uint32_t)p->insts.len;
  for (int i = 0; i < n.n_in; i++)
    if (!vec_push(&p->args, in[i])) return HP_ERR_OOM;
  for (int i = 0; i < n.n_out; i++)
    if (!vec_push(&p->args, out[i])) return HP_ERR_OOM;
  return vec_push(&p->insts, n) ? HP_OK : HP_ERR_OOM;
}

static hp_status add_copy(lowering *l, uint32_t from, uint32_t to, const ir_node *place) {
  prog_inst n = {.op = OP_COPY,
                 .n_in = 1,
                 .n_out = 1,
                 .stream = STREAM_COMPUTE,
                 .loc = place->loc,
                 .phase = place->phase,
                 .stage = place->stage,
                 .bytes = 2 * (double)l->p->buffers.at[from].bytes};
  return add_inst(l, n, &from, &to);
}

static bool is_view(const lowering *l, const ir_node *n, uint64_t *from) {
  *from = 0;
  return n->op == OP_RESHAPE || views_part(l->g, n, from);
}

/* Can the node that computes v write it into the memory of another value? */
static bool may_place(const lowering *l, val v) {
  const ir_node *n = graph_def(l->g, v);
  bool made = n->op != OP_INPUT && n->op != OP_PARAM && n->op != OP_OFFLOAD;
  return made && !(op_flags((op_id)n->op) & OPF_RENDEZVOUS) && !l->within[v] && !l->assigned[v];
}

/* Operands of concats are computed in their final place; outer concats before inner ones. */
static void place_parts(lowering *l) {
  for (size_t i = l->g->nodes.len; i-- > 0;) {
    const ir_node *n = graph_node(l->g, (uint32_t)i);
    if (!views_join(l->g, n) || l->assigned[n->out0]) continue;
    val whole = l->within[n->out0] ? l->within[n->out0] : n->out0;
    uint64_t at = l->at[n->out0];
    for (int k = 0; k < n->n_in; k++) {
      val v = graph_in(l->g, n)[k], root = l->root[v];
      const ir_value *t = graph_value(l->g, v), *r = graph_value(l->g, root);
      if (value_bytes(t) == value_bytes(r) && may_place(l, root)) {
        l->within[root] = whole;
        l->at[root] = at;
      }
      at += (uint64_t)value_bytes(t);
    }
  }
}

/* Last reads of values, and the new value of each param.  Outputs and assigns read after all
 * other nodes. */
static hp_status scan(lowering *l) {
  for (size_t i = 0; i < l->g->nodes.len; i++) {
    const ir_node *n = graph_node(l->g, (uint32_t)i);
    const val *in = graph_in(l->g, n);
    uint64_t from;
    for (int k = 0; k < n->n_out; k++) l->root[n->out0 + (val)k] = n->out0 + (val)k;
    if (is_view(l, n, &from)) l->root[n->out0] = l->root[in[0]];
    if (n->op == OP_ASSIGN) {
      if (l->becomes[in[0]])
        HP_FAIL(HP_ERR_ARG, "param \"%s\" is assigned twice; give it one new value",
                attr_str(l->g, graph_def(l->g, in[0]), "name"));
      l->becomes[in[0]] = in[1];
      l->assigned[in[1]] = in[0];
    }
    if ((n->op == OP_PAGED_FETCH || n->op == OP_PAGED_STORE) &&
        graph_def(l->g, in[0])->op == OP_PARAM)
      l->pool_tier[in[0]] = (uint8_t)attr_int(l->g, n, "tier");
    uint32_t at = n->op == OP_ASSIGN || n->op == OP_OUTPUT ? UINT32_MAX : (uint32_t)i;
    for (int k = n->op == OP_ASSIGN; k < n->n_in; k++)
      if (at > l->last_use[l->root[in[k]]]) l->last_use[l->root[in[k]]] = at;
  }
  place_parts(l);
  return HP_OK;
}

/* May the kernel of node n overwrite param p, if it reads p, with its result k? */
static bool may_overwrite(const lowering *l, const ir_node *n, int k, val p) {
  const val *in = graph_in(l->g, n);
  for (int i = 0; i < n->n_in; i++) {
    if (l->root[in[i]] != p) continue;
    bool fits = n->op == OP_FUSED ? inplace_loop(attr_str(l->g, n, "body"), i, k)
                                  : inplace_op((op_id)n->op, i, k);
    if (!fits) return false;
  }
  return true;
}

/* Can result v of node i be written directly into the param that it is assigned to? */
static bool writes_param(const lowering *l, val v, uint32_t i) {
  val p = l->assigned[v];
  if (!p) return false;
  const ir_node *n = graph_node(l->g, i);
  uint64_t from;
  if (n->op == OP_PARAM || n->op == OP_INPUT || is_view(l, n, &from)) return false;
  return l->last_use[p] <= i && may_overwrite(l, n, (int)(v - n->out0), p);
}

/* Blocks of a pool on flash have streams of their own, as the copies of a plan have. */
static int stream_of(const lowering *l, const ir_node *n) {
  bool blocks = n->op == OP_PAGED_FETCH || n->op == OP_PAGED_STORE;
  bool in = n->op == OP_FETCH || n->op == OP_PAGED_FETCH;
  if (!(op_flags((op_id)n->op) & OPF_MOVE)) return STREAM_COMPUTE;
  if (blocks && attr_int(l->g, n, "tier") == TIER_FLASH)
    return in ? STREAM_FLASH_IN : STREAM_FLASH_OUT;
  return in ? STREAM_COPY_IN : STREAM_COPY_OUT;
}

static uint8_t tier_of(const lowering *l, const ir_node *n) {
  bool away = n->op == OP_OFFLOAD || n->op == OP_PAGED_STORE;
  return away ? (uint8_t)attr_int(l->g, n, "tier") : TIER_DEVICE;
}

static hp_status lower_leaf(lowering *l, const ir_node *n) {
  const ir_value *t = graph_value(l->g, n->out0);
  prog_buffer b = {.place = n->op == OP_PARAM ? PLACE_STATE : PLACE_WORK,
                   .tier = l->pool_tier[n->out0],
                   .flags = n->op == OP_INPUT ? BUFFER_INPUT : 0,
                   .class = n->op == OP_PARAM ? MEM_PARAM : MEM_ACTIVATION,
                   .bytes = (uint64_t)value_bytes(t),
                   .type = *t};
  b.name = graph_string(l->p->names, attr_str(l->g, n, "name"));
  uint32_t id = add_buffer(l, b);
  l->buffer_of[n->out0] = id;
  return id == PROG_NONE || !b.name ? HP_ERR_OOM : HP_OK;
}

/* A named result: the value's own buffer, or a copy if that is a leaf or has a name already. */
static hp_status lower_output(lowering *l, const ir_node *n) {
  val v = graph_in(l->g, n)[0];
  uint32_t id = l->buffer_of[v];
  const prog_buffer *b = &l->p->buffers.at[id];
  if (b->place == PLACE_STATE || b->name || b->root != id) {
    uint32_t copy = new_work(l, v);
    if (copy == PROG_NONE) return HP_ERR_OOM;
    HP_TRY(add_copy(l, id, copy, n));
    id = copy;
  }
  l->p->buffers.at[id].flags |= BUFFER_OUTPUT;
  l->p->buffers.at[id].name = graph_string(l->p->names, attr_str(l->g, n, "name"));
  return graph_status(l->p->names);
}

/* Copies operands that were not computed in their final place. */
static hp_status lower_join(lowering *l, const ir_node *n) {
  if (l->buffer_of[n->out0] == PROG_NONE) l->buffer_of[n->out0] = new_result(l, n->out0);
  uint32_t whole = l->buffer_of[n->out0];
  if (whole == PROG_NONE) return HP_ERR_OOM;
  uint64_t at = 0;
  for (int k = 0; k < n->n_in; k++) {
    val v = graph_in(l->g, n)[k];
    const prog_buffer *b = &l->p->buffers.at[l->buffer_of[v]], *to = &l->p->buffers.at[whole];
    if (b->root != to->root || b->at != to->at + at) {
      uint32_t part = add_view(l, whole, at, graph_value(l->g, v));
      if (part == PROG_NONE) return HP_ERR_OOM;
      HP_TRY(add_copy(l, l->buffer_of[v], part, n));
    }
    at += (uint64_t)value_bytes(graph_value(l->g, v));
  }
  return HP_OK;
}

/* The work of a loop is that of its body, which many nodes share.  The backend refuses an
 * invalid body when it makes the kernel. */
static hp_status work_of(lowering *l, const ir_node *n, op_cost *out) {
  uint32_t i;
  *out = op_meanings[n->op].cost(l->g, n);
  if (n->op != OP_FUSED) return HP_OK;
  if (map_get(&l->work_of, &n->attr, sizeof n->attr, &i)) {
    *out = l->work.at[i];
    return HP_OK;
  }
  loop body;
  const char *text = attr_str(l->g, n, "body");
  hp_status st = loop_parse(text, strlen(text), "body", &body);
  if (st == HP_ERR_OOM) return st;
  if (!st) {
    loop_cost(&body, &out->flops, &out->bytes);
    loop_free(&body);
  }
  if (st) err_clear();
  HP_TRY(map_set(&l->work_of, &n->attr, sizeof n->attr, (uint32_t)l->work.len));
  return vec_push(&l->work, *out) ? HP_OK : HP_ERR_OOM;
}

static hp_status lower_node(lowering *l, uint32_t i) {
  const ir_node *n = graph_node(l->g, i);
  const val *in = graph_in(l->g, n);
  if (n->op == OP_INPUT || n->op == OP_PARAM) return HP_OK;   /* before everything else */
  if (n->op == OP_ASSIGN || n->op == OP_OUTPUT) return HP_OK; /* after everything else */
  uint64_t from;
  if (is_view(l, n, &from)) {
    uint32_t view = add_view(l, l->buffer_of[in[0]], from, graph_value(l->g, n->out0));
    l->buffer_of[n->out0] = view;
    return view == PROG_NONE ? HP_ERR_OOM : HP_OK;
  }
  if (!l->assigned[n->out0] && views_join(l->g, n)) return lower_join(l, n);
  uint32_t operand[255], result[255];
  for (int k = 0; k < n->n_in; k++) operand[k] = l->buffer_of[in[k]];
  for (int k = 0; k < n->n_out; k++) {
    val v = n->out0 + (val)k;
    bool direct = writes_param(l, v, i);
    result[k] = direct ? l->buffer_of[l->assigned[v]] : new_result(l, v);
    if (result[k] == PROG_NONE) return HP_ERR_OOM;
    if (direct) l->assigned[v] = 0;
    else l->p->buffers.at[result[k]].tier = tier_of(l, n);
    l->buffer_of[v] = result[k];
  }
  op_cost cost;
  HP_TRY(work_of(l, n, &cost));
  prog_inst inst = {.op = n->op,
                    .n_in = n->n_in,
                    .n_out = n->n_out,
                    .stream = (uint8_t)stream_of(l, n),
                    .phase = n->phase,
                    .group = n->group,
                    .block = n->block,
                    .stage = n->stage,
                    .attr = n->attr,
                    .loc = n->loc,
                    .flops = cost.flops,
                    .bytes = cost.bytes};
  return add_inst(l, inst, operand, result);
}

/* Will an assign overwrite value x, which is the old value of a param? */
static bool is_overwritten(const lowering *l, val x) {
  return graph_def(l->g, l->root[x])->op == OP_PARAM && l->becomes[l->root[x]];
}

/* Assigns that could not be done in place: first copies of sources that another assign
 * overwrites, then the copies into the params.  from[i] is the source of the assign at node i. */
static hp_status copy_assigns(lowering *l, uint32_t *from) {
  for (int round = 0; round < 2; round++)
    for (size_t i = 0; i < l->g->nodes.len; i++) {
      const ir_node *n = graph_node(l->g, (uint32_t)i);
      if (n->op != OP_ASSIGN) continue;
      val p = graph_in(l->g, n)[0], x = graph_in(l->g, n)[1];
      uint32_t to = l->buffer_of[p];
      if (l->buffer_of[x] == to) continue; /* done in place, or nothing to do */
      if (round == 1) {
        HP_TRY(add_copy(l, from[i], to, n));
        continue;
      }
      from[i] = l->buffer_of[x];
      if (!is_overwritten(l, x)) continue;
      uint32_t copy = new_work(l, x);
      if (copy == PROG_NONE) return HP_ERR_OOM;
      HP_TRY(add_copy(l, from[i], copy, n));
      from[i] = copy;
    }
  return HP_OK;
}

static hp_status lower_assigns(lowering *l) {
  uint32_t *from = mem_calloc(l->g->nodes.len, sizeof *from);
  HP_TRY_MEM(from);
  hp_status st = copy_assigns(l, from);
  mem_free(from);
  return st;
}

hp_status lower_graph(const hp_graph *g, program **out) {
  lowering l = {.g = g};
  hp_status st = program_create(g, &l.p);
  HP_TRY(st);
  l.buffer_of = mem_calloc(g->values.len, sizeof *l.buffer_of);
  l.last_use = mem_calloc(g->values.len, sizeof *l.last_use);
  l.assigned = mem_calloc(g->values.len, sizeof *l.assigned);
  l.becomes = mem_calloc(g->values.len, sizeof *l.becomes);
  l.root = mem_calloc(g->values.len, sizeof *l.root);
  l.within = mem_calloc(g->values.len, sizeof *l.within);
  l.at = mem_calloc(g->values.len, sizeof *l.at);
  l.pool_tier = mem_calloc(g->values.len, sizeof *l.pool_tier);
  if (!l.pool_tier || !l.buffer_of || !l.last_use || !l.assigned || !l.becomes || !l.root ||
      !l.within || !l.at)
    st = HP_ERR_OOM;
  if (st) goto done;
  for (size_t v = 0; v < g->values.len; v++) l.buffer_of[v] = PROG_NONE;
  HP_TRY_GOTO(scan(&l), st);
  for (uint32_t i = 0; i < g->nodes.len; i++) { /* a result may be written into a later param */
    const ir_node *n = graph_node(g, i);
    if (n->op == OP_INPUT || n->op == OP_PARAM) HP_TRY_GOTO(lower_leaf(&l, n), st);
  }
  for (uint32_t i = 0; i < g->nodes.len; i++) HP_TRY_GOTO(lower_node(&l, i), st);
  for (uint32_t i = 0; i < g->nodes.len; i++)
    if (graph_node(g, i)->op == OP_OUTPUT) HP_TRY_GOTO(lower_output(&l, graph_node(g, i)), st);
  HP_TRY_GOTO(lower_assigns(&l), st);
done:
  mem_free(l.buffer_of);
  mem_free(l.last_use);
  mem_free(l.assigned);
  mem_free(l.becomes);
  mem_free(l.root);
  mem_free(l.within);
  mem_free(l.at);
  mem_free(l.pool_tier);
  map_free(&l.work_of);
  vec_free(&l.work);
  if (st) program_free(l.p);
  else *out = l.p;
  return st;
}
