/* The graph: one static single assignment program over tensors, as if there were one device.
 *
 * Ids, not pointers: a value is an index (0 = none), a node an index.  Node order is a valid
 * schedule.  Strings and attribute records are interned in a pool that graphs made from one
 * another share, so equality is ==.  A pass reads one graph and builds another.  Views, in-place
 * and memory are not here: the memory pass decides them.  A failed build call poisons the graph:
 * later calls do nothing, and graph_status reports the first failure. */
#ifndef IR_GRAPH_H
#define IR_GRAPH_H

#include "base/hash.h"
#include "base/str.h"
#include "base/vec.h"
#include "ir/op.h"

typedef hp_tensor val;

typedef enum { PHASE_FORWARD, PHASE_BACKWARD, PHASE_UPDATE } ir_phase;

typedef struct {
  uint16_t op;
  uint8_t n_in, n_out;
  uint32_t in0;   /* first operand in graph->ins */
  val out0;       /* results are out0 .. out0 + n_out - 1 */
  uint32_t attr;  /* interned record, 0 = no attributes */
  uint32_t loc;   /* interned name of the place in the model, 0 = none */
  uint16_t block; /* repeated part of the model (layer), from 1; 0 = none */
  uint8_t phase;  /* ir_phase */
  uint8_t group;  /* HyperMPMD process group */
  uint16_t stage; /* pipeline stage */
  /* Bit k: result k is a value of the forward that the backward computes again. */
  uint16_t recomputed;
} ir_node;
enum { RECOMPUTED_MOST = 16 }; /* results that have such a bit */

typedef struct {
  uint32_t def; /* node that makes it */
  uint8_t dtype, rank;
  uint32_t layout; /* interned layout, 0 = not declared */
  int64_t dim[HP_MAX_RANK];
} ir_value;

typedef struct ir_pool { /* shared by graphs made from one another */
  int refs;
  interner strings, attrs;
} ir_pool;

struct hp_graph {
  ir_pool *pool;
  VEC(ir_node) nodes;
  VEC(ir_value) values; /* values.at[0] is unused */
  VEC(val) ins;
  uint16_t stage, block; /* given to nodes that are added */
  uint8_t phase, group;
  bool recomputed; /* all results */
  uint32_t loc;
  /* The public function that adds nodes now, NULL outside of one, and the names of its operands in
   * order, "a b"; a last one that ends in [ is a list.  For messages. */
  const char *caller, *operands;
  uint32_t tag;       /* bits that ids have outside, of this graph alone; 0: none */
  err_report failure; /* the first */
};

/* A new graph; `like` (may be NULL) shares its pool, so that ids of strings and attrs carry over.
 */
hp_status graph_create(const hp_graph *like, hp_graph **out);
void graph_free(hp_graph *g);
hp_status graph_status(const hp_graph *g);
/* Poisons the graph with the failure of this thread, or with `code` when there is none. */
void graph_poison(hp_graph *g, hp_status code);

/* Appends a node whose results have the given types; shapes are not checked here (ops_add does).
 * Returns the first result, or 0 when there is none or the graph is poisoned. */
val graph_add(hp_graph *g, int op, const val *in, int n_in, uint32_t attr, const ir_value *out,
              int n_out);
/* Appends a copy of node n of `from` with other operands (same pool). */
val graph_add_like(hp_graph *g, const hp_graph *from, const ir_node *n, const val *in);

/* Two names of places in the model: the characters of the name of what both lie in. */
size_t graph_common_place(const char *a, const char *b);

uint32_t graph_string(hp_graph *g, const char *s);
const char *graph_str(const hp_graph *g, uint32_t id); /* "" for 0 */

static inline const ir_node *graph_node(const hp_graph *g, uint32_t n) { return &g->nodes.at[n]; }
static inline const ir_value *graph_value(const hp_graph *g, val v) { return &g->values.at[v]; }
static inline const val *graph_in(const hp_graph *g, const ir_node *n) {
  return &g->ins.at[n->in0];
}
static inline const ir_node *graph_def(const hp_graph *g, val v) {
  return &g->nodes.at[g->values.at[v].def];
}
/* The bits of `recomputed` for a node of so many results. */
static inline uint16_t graph_all_results(int n) {
  return n >= RECOMPUTED_MOST ? UINT16_MAX : (uint16_t)((1u << n) - 1);
}
static inline bool graph_is_recomputed(const hp_graph *g, val v) {
  const ir_node *n = graph_def(g, v);
  return v - n->out0 < RECOMPUTED_MOST && n->recomputed >> (v - n->out0) & 1;
}
/* Elements and bytes of a value; saturate at INT64_MAX. */
int64_t value_elements(const ir_value *v);
int64_t value_bytes(const ir_value *v);
/* Can every element be addressed?  Dims of 0 do not make up for large ones: strides are products.
 */
bool value_fits(const ir_value *v);
hp_shape value_shape(const ir_value *v);
bool value_same_shape(const ir_value *a, const ir_value *b);
/* "f32[64,2048]" appended to s. */
void value_print(const ir_value *v, str *s);

#endif
