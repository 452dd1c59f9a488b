#include "pass/chunk.h"

#include "base/round.h"
#include "ir/einsum_eq.h"
#include "ops/ops.h"
#include "shard/rule_node.h"

#include <string.h>

enum { IN = 1, AFTER = 2, BEFORE = 4 };

hp_status chunk_finder_begin(const hp_graph *g, const chunk_limits *limits, chunk_finder *f) {
  *f = (chunk_finder){.g = g, .limits = *limits};
  hp_status st = use_lists_build(g, &f->uses);
  f->mark = mem_calloc(g->nodes.len, sizeof *f->mark);
  f->dim = mem_calloc(g->values.len, sizeof *f->dim);
  f->rules = mem_calloc(CHUNK_MEMBERS, sizeof *f->rules);
  if (!st && (!f->mark || !f->dim || !f->rules)) st = HP_ERR_OOM;
  if (st) chunk_finder_end(f);
  return st;
}

void chunk_finder_end(chunk_finder *f) {
  use_lists_free(&f->uses);
  mem_free(f->mark);
  mem_free(f->dim);
  mem_free(f->rules);
}

static uint64_t bytes_of(const chunk_finder *f, val v) {
  return (uint64_t)value_bytes(graph_value(f->g, v));
}

/* Leaves are stored anyway. */
bool chunk_too_large(const chunk_finder *f, val v) {
  return bytes_of(f, v) > f->limits.bytes && graph_def(f->g, v)->n_in > 0;
}

/* --- who belongs to it ------------------------------------------------------------------------ */

typedef struct {
  chunk_finder *f;
  chunk_region *r;
  uint32_t first, last; /* nodes of the region are between them */
  str *why;
} search;

static const ir_node *node_of(const search *s, int member) {
  return graph_node(s->f->g, s->r->at[member].node);
}

static bool is_in(const search *s, uint32_t node) { return s->f->mark[node] & IN; }

static const char *place(const search *s, uint32_t node) {
  const char *loc = graph_str(s->f->g, graph_node(s->f->g, node)->loc);
  return *loc ? loc : "?";
}

/* Sets the reason why there is no such region; always false. */
static bool refuse(search *s, uint32_t node, const char *what) {
  str_printf(s->why, "%s of \"%s\" %s", op_table[graph_node(s->f->g, node)->op].name,
             place(s, node), what);
  return false;
}

/* Of the size that must not be stored: as many elements as the seed, like its casts. */
static bool is_kind(const search *s, val v) {
  const hp_graph *g = s->f->g;
  return value_elements(graph_value(g, v)) >= value_elements(graph_value(g, s->r->seed)) &&
         graph_def(g, v)->n_in > 0;
}

static bool add(search *s, uint32_t node) {
  const ir_node *n = graph_node(s->f->g, node);
  if (is_in(s, node)) return true;
  if (!n->n_out) return refuse(s, node, "needs all of it");
  if (n->n_in + n->n_out > CHUNK_TENSORS) return refuse(s, node, "has too many operands");
  if (s->r->n == CHUNK_MEMBERS) {
    str_printf(s->why, "too many nodes are between its users, up to %s of \"%s\"",
               op_table[n->op].name, place(s, node));
    return false;
  }
  s->r->at[s->r->n++].node = node;
  s->f->mark[node] |= IN;
  if (node < s->first) s->first = node;
  if (node > s->last) s->last = node;
  return true;
}

static bool add_users(search *s, val v) {
  for (uint32_t u = s->f->uses.use0[v]; u < s->f->uses.use0[v + 1]; u++)
    if (!add(s, s->f->uses.use[u])) return false;
  return true;
}

static bool used_inside(const search *s, val v) {
  for (uint32_t u = s->f->uses.use0[v]; u < s->f->uses.use0[v + 1]; u++)
    if (!is_in(s, s->f->uses.use[u])) return false;
  return true;
}

/* All users of a member's result of this size; the makers of values that are only used inside. */
static bool add_neighbours(search *s, int member) {
  const ir_node *n = node_of(s, member);
  const val *in = graph_in(s->f->g, n);
  for (val v = n->out0; v < n->out0 + n->n_out; v++)
    if (is_kind(s, v) && !add_users(s, v)) return false;
  for (int i = 0; i < n->n_in; i++)
    if (is_kind(s, in[i]) && used_inside(s, in[i]) && !add(s, graph_value(s->f->g, in[i])->def))
      return false;
  return true;
}

/* Nodes on a path from one member to another: without them the region could not run without
 * interruption. */
static bool add_between(search *s) {
  const hp_graph *g = s->f->g;
  uint8_t *mark = s->f->mark;
  uint32_t first = s->first, last = s->last;
  for (uint32_t i = first; i <= last; i++) {
    const ir_node *n = graph_node(g, i);
    mark[i] &= IN;
    bool after = mark[i] & IN;
    for (int k = 0; k < n->n_in && !after; k++) {
      uint32_t d = graph_value(g, graph_in(g, n)[k])->def;
      after = d >= first && mark[d] & AFTER;
    }
    if (after) mark[i] |= AFTER;
  }
  for (uint32_t i = last + 1; i-- > first;) {
    const ir_node *n = graph_node(g, i);
    if (!(mark[i] & (IN | BEFORE))) continue;
    if (mark[i] & AFTER && !add(s, i)) return false;
    for (int k = 0; k < n->n_in; k++) {
      uint32_t d = graph_value(g, graph_in(g, n)[k])->def;
      if (d >= first) mark[d] |= BEFORE;
    }
  }
  return true;
}

static bool collect(search *s) {
  uint32_t def = graph_value(s->f->g, s->r->seed)->def;
  s->first = s->last = def;
  if (!add(s, def)) return false;
  for (int done = 0, closed = 0; closed < s->r->n;) {
    while (done < s->r->n)
      if (!add_neighbours(s, done++)) return false;
    closed = s->r->n;
    if (!add_between(s)) return false;
    for (int m = 0; m < closed && s->r->n == closed; m++) /* an operand may be used inside now */
      if (!add_neighbours(s, m)) return false;
  }
  for (int a = 1; a < s->r->n; a++) /* few, and mostly sorted */
    for (int b = a; b > 0 && s->r->at[b].node < s->r->at[b - 1].node; b--) {
      chunk_member t = s->r->at[b];
      s->r->at[b] = s->r->at[b - 1];
      s->r->at[b - 1] = t;
    }
  return true;
}

/* --- along which dims ------------------------------------------------------------------------- */

static int tensors(const ir_node *n) { return n->n_in + n->n_out; }

static val value_at(const search *s, const ir_node *n, int k) {
  return k < n->n_in ? graph_in(s->f->g, n)[k] : n->out0 + (val)(k - n->n_in);
}

static const rule_tensor *tensor_at(const rule *r, const ir_node *n, int k) {
  return k < n->n_in ? &r->in[k] : &r->out[k - n->n_in];
}

/* The dim of t that consists of this factor only; CHUNK_WHOLE: t does not have it. */
static bool dim_of(const rule_tensor *t, int factor, int8_t *dim) {
  *dim = CHUNK_WHOLE;
  for (int d = 0; !t->absent && d < t->rank; d++) {
    if (!memchr(t->factor[d], factor, t->n[d])) continue;
    if (t->n[d] != 1) return false;
    *dim = (int8_t)d;
  }
  return true;
}

/* The factor of a member along which its known values are split; -1: not yet known. */
static bool factor_of(search *s, int member, int *factor) {
  const ir_node *n = node_of(s, member);
  const rule *r = &s->f->rules[member];
  *factor = -1;
  for (int k = 0; k < tensors(n); k++) {
    int8_t d = s->f->dim[value_at(s, n, k)];
    const rule_tensor *t = tensor_at(r, n, k);
    bool inside = k >= n->n_in || is_in(s, graph_value(s->f->g, value_at(s, n, k))->def);
    if (!inside || d == CHUNK_WHOLE) continue;
    if (t->absent || t->n[d] != 1) return refuse(s, s->r->at[member].node, "splits or merges dims");
    if (*factor >= 0 && *factor != t->factor[d][0])
      return refuse(s, s->r->at[member].node, "combines rows");
    *factor = t->factor[d][0];
  }
  return true;
}

/* Can a node of the region be computed for a range of the factor? */
static bool may_cut(search *s, int member, int factor) {
  const ir_node *n = node_of(s, member);
  const rule *r = &s->f->rules[member];
  bool taken = false;
  int8_t d;
  for (int k = 0; k < n->n_in; k++) taken |= dim_of(&r->in[k], factor, &d) && d != CHUNK_WHOLE;
  if (r->factor[factor].replicated || r->factor[factor].index || !taken)
    return refuse(s, s->r->at[member].node, "must see all rows at once");
  return true;
}

/* Dims of the operands and results of a member, from its factor; *more: the dim of another value
 * is now known. */
static bool spread(search *s, int member, int factor, int axis, bool *more) {
  const ir_node *n = node_of(s, member);
  chunk_member *m = &s->r->at[member];
  for (int k = 0; k < tensors(n); k++) {
    val v = value_at(s, n, k);
    int8_t d;
    if (!dim_of(tensor_at(&s->f->rules[member], n, k), factor, &d))
      return refuse(s, m->node, "splits or merges dims");
    m->dim[k][axis] = d;
    bool inside = k < n->n_in && is_in(s, graph_value(s->f->g, v)->def);
    if (inside && d == CHUNK_WHOLE) return refuse(s, m->node, "needs a sum over all rows");
    if (k < n->n_in && !inside) continue;
    *more |= s->f->dim[v] != d;
    s->f->dim[v] = d;
  }
  return true;
}

/* The letters that an einsum sums, in the order of its chains, without those of size 1. */
static int chain_letters(const search *s, const ir_node *n, const einsum_eq *eq,
                         char out[EINSUM_LETTERS_MAX + 1]) {
  const char *letters[2] = {eq->a, eq->b};
  int count = 0;
  for (int k = 0; k < 2; k++)
    for (int d = 0; letters[k][d]; d++) {
      bool twice = k == 1 && strchr(eq->a, letters[k][d]);
      int64_t size = graph_value(s->f->g, graph_in(s->f->g, n)[k])->dim[d];
      if (!twice && size != 1 && !strchr(eq->out, letters[k][d])) out[count++] = letters[k][d];
    }
  return count;
}

/* Can a node that sums over the axis continue the same chains from chunk to chunk?  A
 * contraction can if it sums over the axes first, in their order. */
static bool goes_on(search *s, int member, int axis) {
  const ir_node *n = node_of(s, member);
  const chunk_member *m = &s->r->at[member];
  einsum_eq eq;
  char letters[EINSUM_LETTERS_MAX + 1];
  if (n->op != OP_EINSUM || einsum_parse(attr_str(s->f->g, n, "eq"), &eq))
    return refuse(s, m->node, "sums over rows in an order of its own");
  int k = m->dim[0][axis] == CHUNK_WHOLE, count = chain_letters(s, n, &eq, letters);
  char own = (k ? eq.b : eq.a)[m->dim[k][axis]];
  if (axis < count && letters[axis] == own) return true;
  return refuse(s, m->node, "sums over rows in another order");
}

/* Dims of all values along one axis, which is dim d of the seed. */
static bool walk(search *s, int axis, int d) {
  int factor[CHUNK_MEMBERS];
  for (int m = 0; m < s->r->n; m++)
    for (int k = 0; k < tensors(node_of(s, m)); k++)
      s->f->dim[value_at(s, node_of(s, m), k)] = CHUNK_WHOLE;
  s->f->dim[s->r->seed] = (int8_t)d;
  for (bool more = true; more;) {
    more = false;
    for (int m = 0; m < s->r->n; m++) {
      if (!factor_of(s, m, &factor[m])) return false;
      if (factor[m] >= 0 && !spread(s, m, factor[m], axis, &more)) return false;
    }
  }
  for (int m = 0; m < s->r->n; m++) {
    const ir_node *n = node_of(s, m);
    chunk_member *c = &s->r->at[m];
    if (factor[m] < 0) return refuse(s, c->node, "has no rows");
    if (!may_cut(s, m, factor[m])) return false;
    bool sums = c->dim[n->n_in][axis] == CHUNK_WHOLE;
    for (int k = n->n_in; k < tensors(n); k++)
      if (sums != (c->dim[k][axis] == CHUNK_WHOLE))
        return refuse(s, c->node, "sums over some rows");
    if (axis && sums != c->sums) return refuse(s, c->node, "sums over some rows");
    c->sums = sums;
    if (sums && !goes_on(s, m, axis)) return false;
  }
  return true;
}

/* The leading dims of the seed along which all nodes can be split. */
static bool find_axes(search *s) {
  const ir_value *seed = graph_value(s->f->g, s->r->seed);
  for (int m = 0; m < s->r->n; m++)
    if (rule_of_node(s->f->g, node_of(s, m), &s->f->rules[m])) {
      err_clear();
      return refuse(s, s->r->at[m].node, "has no rule");
    }
  for (int d = 0; d < seed->rank; d++) {
    if (seed->dim[d] == 1) continue;
    if (!walk(s, s->r->axes, d)) break;
    s->r->size[s->r->axes++] = seed->dim[d];
  }
  if (s->r->axes) str_clear(s->why);
  return s->r->axes > 0;
}

/* --- how many chunks -------------------------------------------------------------------------- */

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* Arithmetic of n, in bf16 counted half: half the time or less on processors with bf16
 * instructions; on others chunks are longer than necessary. */
static double work_of(const hp_graph *g, const ir_node *n) {
  double flops = op_meanings[n->op].cost(g, n).flops;
  for (int k = 0; k < n->n_in; k++)
    if (graph_value(g, graph_in(g, n)[k])->dtype == HP_BF16) return flops / 2;
  return flops;
}

/* Number of chunks above which they would wait for memory that each of them reads again:
 * operands that are not split, and results that are summed. */
static double most_chunks(const search *s) {
  double flops = 0, again = 1;
  for (int m = 0; m < s->r->n; m++) {
    const ir_node *n = node_of(s, m);
    const chunk_member *c = &s->r->at[m];
    flops += work_of(s->f->g, n);
    for (int k = 0; k < tensors(n); k++)
      if (c->dim[k][0] == CHUNK_WHOLE)
        again += (k < n->n_in ? 1 : 2) * (double)bytes_of(s->f, value_at(s, n, k));
  }
  return flops / (again * s->f->limits.flops_per_byte);
}

/* Splits the rows: single indices of the outer axes, equal ranges along one, the inner ones
 * completely.  A range is limited by its bytes, but not shorter than is efficient. */
static bool cut(search *s) {
  chunk_region *r = s->r;
  int64_t rows = 1, inner = 1;
  for (int a = 0; a < r->axes; a++) rows *= r->size[a];
  double chunks = (double)bytes_of(s->f, r->seed) / (double)s->f->limits.bytes;
  double most = s->f->limits.flops_per_byte > 0 ? most_chunks(s) : chunks;
  bool pays = most < chunks;
  if (pays) chunks = most;
  int64_t run = chunks > 1 ? (int64_t)((double)rows / chunks) : rows;
  int along = r->axes - 1;
  while (along > 0 && inner * r->size[along] <= run) inner *= r->size[along--];
  r->chunks = 1;
  for (int a = 0; a < r->axes; a++) {
    r->step[a] = a < along ? 1 : r->size[a];
    if (a < along) r->chunks *= r->size[a];
  }
  int64_t step = larger(pays ? div_up(run, inner) : run / inner, 1);
  int64_t n = pays ? larger(r->size[along] / step, 1) : div_up(r->size[along], step);
  int64_t tile = along == r->axes - 1 ? 16 : 1;
  r->step[along] = smaller(div_up(div_up(r->size[along], n), tile) * tile, r->size[along]);
  r->chunks *= div_up(r->size[along], r->step[along]);
  if (r->chunks > 1) return true;
  str_add(s->why, "small chunks would spend too much time reading their common operands again");
  return false;
}

/* A region runs at its last node.  Between a forward and a backward that needs a gradient of
 * another mesh of a pipeline, that mesh needs what the forward makes. */
static bool runs_at_once(search *s) {
  for (uint32_t i = s->first; i <= s->last; i++) {
    const ir_node *n = graph_node(s->f->g, i);
    if (n->op == OP_INPUT && n->phase == PHASE_BACKWARD)
      return refuse(s, s->r->at[0].node, "comes before a gradient of another stage");
  }
  return true;
}

hp_status chunk_find(chunk_finder *f, val v, chunk_region *out, bool *found, str *why) {
  search s = {.f = f, .r = out, .why = why};
  memset(out, 0, sizeof *out);
  out->seed = v;
  *found = collect(&s) && runs_at_once(&s) && find_axes(&s) && cut(&s);
  for (int m = 0; m < out->n; m++) f->mark[out->at[m].node] = 0;
  for (uint32_t i = s.first; i <= s.last; i++) f->mark[i] = 0;
  return str_status(why);
}
