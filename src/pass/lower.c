#include "pass/lower.h"

#include "mem/timeline.h"
#include "ops/ops.h"
#include "pass/inplace.h"

#include <string.h>

typedef struct {
  const hp_graph *g;
  program *p;
  uint32_t *buffer_of; /* by value id */
  uint32_t *last_use;  /* by root value id: last node that reads it, 0 = none */
  val *root;           /* by value id: itself, or the value that it is a reshape of */
  val *assigned;       /* by value id: a param whose new value it is, 0 = none */
  val *becomes;        /* by value id of a param: its new value, 0 = none */
} lowering;

static uint32_t add_buffer(lowering *l, prog_buffer b) {
  b.root = (uint32_t)l->p->buffers.len;
  return vec_push(&l->p->buffers, b) ? b.root : PROG_NONE;
}

/* The same memory with another shape. */
static uint32_t add_view(lowering *l, uint32_t of, const ir_value *type) {
  prog_buffer b = l->p->buffers.at[of];
  b.type = *type;
  if (!vec_push(&l->p->buffers, b)) return PROG_NONE;
  return (uint32_t)l->p->buffers.len - 1;
}

static uint8_t class_of(const ir_node *n) {
  return (uint8_t)(n->phase == PHASE_BACKWARD ? MEM_GRAD : MEM_ACTIVATION);
}

/* A work buffer for value v. */
static uint32_t new_work(lowering *l, val v) {
  const ir_value *t = graph_value(l->g, v);
  return add_buffer(l, (prog_buffer){.place = PLACE_WORK,
                                     .tier = TIER_DEVICE,
                                     .class = class_of(graph_node(l->g, t->def)),
                                     .bytes = (uint64_t)value_bytes(t),
                                     .type = *t});
}

static hp_status add_inst(lowering *l, prog_inst n, const uint32_t *in, const uint32_t *out) {
  program *p = l->p;
  n.arg0 = (uint32_t)p->args.len;
  n.workspace = PROG_NONE;
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
                 .bytes = 2 * (double)l->p->buffers.at[from].bytes};
  return add_inst(l, n, &from, &to);
}

/* Reads of values, and which value each param becomes.  Outputs and assigns read after all other
 * nodes. */
static hp_status scan(lowering *l) {
  for (size_t i = 0; i < l->g->nodes.len; i++) {
    const ir_node *n = graph_node(l->g, (uint32_t)i);
    const val *in = graph_in(l->g, n);
    for (int k = 0; k < n->n_out; k++) l->root[n->out0 + (val)k] = n->out0 + (val)k;
    if (n->op == OP_RESHAPE) l->root[n->out0] = l->root[in[0]];
    if (n->op == OP_ASSIGN) {
      if (l->becomes[in[0]])
        HP_FAIL(HP_ERR_ARG, "param \"%s\" is assigned twice; give it one new value",
                attr_str(l->g, graph_def(l->g, in[0]), "name"));
      l->becomes[in[0]] = in[1];
      l->assigned[in[1]] = in[0];
    }
    uint32_t at = n->op == OP_ASSIGN || n->op == OP_OUTPUT ? UINT32_MAX : (uint32_t)i;
    for (int k = n->op == OP_ASSIGN; k < n->n_in; k++)
      if (at > l->last_use[l->root[in[k]]]) l->last_use[l->root[in[k]]] = at;
  }
  return HP_OK;
}

/* May the kernel of node n write its result k over param p, if it reads p at all? */
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

/* The result v of node i can be written straight into the param that it is assigned to. */
static bool writes_param(const lowering *l, val v, uint32_t i) {
  val p = l->assigned[v];
  if (!p) return false;
  const ir_node *n = graph_node(l->g, i);
  if (n->op == OP_PARAM || n->op == OP_INPUT || n->op == OP_RESHAPE) return false;
  return l->last_use[p] <= i && may_overwrite(l, n, (int)(v - n->out0), p);
}

static int stream_of(int op) {
  return op == OP_FETCH ? STREAM_COPY_IN : op == OP_OFFLOAD ? STREAM_COPY_OUT : STREAM_COMPUTE;
}

static uint8_t tier_of(const lowering *l, const ir_node *n) {
  return n->op == OP_OFFLOAD ? (uint8_t)attr_int(l->g, n, "tier") : TIER_DEVICE;
}

static hp_status lower_leaf(lowering *l, const ir_node *n) {
  const ir_value *t = graph_value(l->g, n->out0);
  prog_buffer b = {.place = n->op == OP_PARAM ? PLACE_STATE : PLACE_WORK,
                   .tier = TIER_DEVICE,
                   .flags = n->op == OP_INPUT ? BUFFER_INPUT : 0,
                   .class = n->op == OP_PARAM ? MEM_PARAM : MEM_ACTIVATION,
                   .bytes = (uint64_t)value_bytes(t),
                   .type = *t};
  b.name = graph_string(l->p->names, attr_str(l->g, n, "name"));
  uint32_t id = add_buffer(l, b);
  l->buffer_of[n->out0] = id;
  return id == PROG_NONE || !b.name ? HP_ERR_OOM : HP_OK;
}

/* A named result: the value's own buffer, or a copy when that is a leaf or named already. */
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

static hp_status lower_node(lowering *l, uint32_t i) {
  const ir_node *n = graph_node(l->g, i);
  const val *in = graph_in(l->g, n);
  if (n->op == OP_INPUT || n->op == OP_PARAM) return HP_OK;   /* before everything else */
  if (n->op == OP_ASSIGN || n->op == OP_OUTPUT) return HP_OK; /* after everything else */
  if (n->op == OP_RESHAPE) {
    uint32_t view = add_view(l, l->buffer_of[in[0]], graph_value(l->g, n->out0));
    l->buffer_of[n->out0] = view;
    return view == PROG_NONE ? HP_ERR_OOM : HP_OK;
  }
  uint32_t operand[255], result[255];
  for (int k = 0; k < n->n_in; k++) operand[k] = l->buffer_of[in[k]];
  for (int k = 0; k < n->n_out; k++) {
    val v = n->out0 + (val)k;
    bool direct = writes_param(l, v, i);
    result[k] = direct ? l->buffer_of[l->assigned[v]] : new_work(l, v);
    if (result[k] == PROG_NONE) return HP_ERR_OOM;
    if (direct) l->assigned[v] = 0;
    else l->p->buffers.at[result[k]].tier = tier_of(l, n);
    l->buffer_of[v] = result[k];
  }
  op_cost cost = op_meanings[n->op].cost(l->g, n);
  prog_inst inst = {.op = n->op,
                    .n_in = n->n_in,
                    .n_out = n->n_out,
                    .stream = (uint8_t)stream_of(n->op),
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

/* Will an assign overwrite what value x is, the old value of a param? */
static bool is_overwritten(const lowering *l, val x) {
  return graph_def(l->g, l->root[x])->op == OP_PARAM && l->becomes[l->root[x]];
}

/* Assigns that could not be written in place: first copies of sources that another assign
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
  if (!l.buffer_of || !l.last_use || !l.assigned || !l.becomes || !l.root) st = HP_ERR_OOM;
  if (st) goto done;
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
  if (st) program_free(l.p);
  else *out = l.p;
  return st;
}
