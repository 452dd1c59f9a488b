#include "compile/state_class.h"

#include "base/dtype.h"
#include "base/mem.h"

/* What is known of a value during the walk over the graph. */
typedef struct {
  uint8_t phase;               /* the earliest phase in which it can be computed */
  uint8_t first_use;           /* of a param: the earliest phase that reads or assigns it */
  bool used, assigned_forward; /* of a param */
  bool read_as_value;          /* of a param: not as a table alone */
} fact;

/* The phase of a node is that in which it is built, or a later one of its operands: sums of
 * gradients, which are built after the backward, belong to the backward. */
static uint8_t phase_of(const hp_graph *g, const ir_node *n, const fact *f) {
  uint8_t phase = n->phase;
  for (int k = 0; k < n->n_in; k++)
    if (f[graph_in(g, n)[k]].phase > phase) phase = f[graph_in(g, n)[k]].phase;
  return phase;
}

static void note_uses(const hp_graph *g, const ir_node *n, uint8_t phase, fact *f) {
  for (int k = 0; k < n->n_in; k++) {
    fact *of = &f[graph_in(g, n)[k]];
    if (!of->used || phase < of->first_use) of->first_use = phase;
    of->used = true;
    if (!(k && op_flags((op_id)n->op) & OPF_TABLES)) of->read_as_value = true;
    if (n->op == OP_ASSIGN && k == 0 && phase == PHASE_FORWARD) of->assigned_forward = true;
  }
}

static mem_class class_of(const fact *f) {
  if (!f->used) return MEM_PARAM;
  if (f->first_use == PHASE_UPDATE) return MEM_OPTIMIZER;
  if (f->first_use == PHASE_BACKWARD) return MEM_GRAD;
  return f->assigned_forward || !f->read_as_value ? MEM_OTHER : MEM_PARAM;
}

hp_status state_classes(const hp_graph *g, uint8_t *class) {
  fact *f = mem_calloc(g->values.len, sizeof *f);
  HP_TRY_MEM(f);
  for (uint32_t i = 0; i < g->nodes.len; i++) {
    const ir_node *n = graph_node(g, i);
    uint8_t phase = phase_of(g, n, f);
    note_uses(g, n, phase, f);
    for (int k = 0; k < n->n_out; k++)
      f[n->out0 + (val)k].phase = n->op == OP_PARAM ? PHASE_FORWARD : phase;
  }
  for (uint32_t i = 0; i < g->nodes.len; i++) {
    const ir_node *n = graph_node(g, i);
    for (int k = 0; k < n->n_out; k++) class[n->out0 + (val)k] = MEM_PARAM;
    if (n->op == OP_PARAM) class[n->out0] = (uint8_t)class_of(&f[n->out0]);
  }
  mem_free(f);
  return HP_OK;
}

/* By the phase that uses it first. */
static int order_of(uint32_t class) {
  return class == MEM_OPTIMIZER ? 2 : class == MEM_GRAD ? 1 : 0;
}

/* The class of each param by its name, the earliest of all graphs so far, and bytes by class. */
static hp_status add_classes(const hp_graph *g, map *of, uint64_t bytes[MEM_CLASS_COUNT]) {
  uint8_t *class = mem_calloc(g->values.len, 1);
  hp_status st = class ? state_classes(g, class) : HP_ERR_OOM;
  for (uint32_t i = 0; !st && i < g->nodes.len; i++) {
    const ir_node *n = graph_node(g, i);
    uint32_t known;
    if (n->op != OP_PARAM) continue;
    const char *name = attr_str(g, n, "name");
    uint64_t size = (uint64_t)value_bytes(graph_value(g, n->out0));
    if (map_get(of, name, strlen(name), &known)) {
      if (order_of(class[n->out0]) >= order_of(known)) continue;
      bytes[known] -= size;
    }
    bytes[class[n->out0]] += size;
    st = map_set(of, name, strlen(name), class[n->out0]);
  }
  mem_free(class);
  return st;
}

hp_status state_classes_set(const hp_graph *const *g, size_t n, program *p,
                            uint64_t bytes[MEM_CLASS_COUNT]) {
  map of = {0};
  hp_status st = HP_OK;
  memset(bytes, 0, MEM_CLASS_COUNT * sizeof *bytes);
  for (size_t i = 0; !st && i < n; i++) st = add_classes(g[i], &of, bytes);
  for (size_t b = 0; !st && b < p->buffers.len; b++) {
    prog_buffer *f = &p->buffers.at[b];
    uint32_t its;
    if (f->place != PLACE_STATE) continue;
    const char *name = program_str(p, p->buffers.at[f->root].name);
    if (map_get(&of, name, strlen(name), &its)) f->class = (uint8_t)its;
  }
  map_free(&of);
  return st;
}
