/* chunk: computes values that are too large to be stored, and their users, chunk by chunk
 * (src/pass/chunk.h).  All nodes of a region run for one chunk of rows after the other: operands
 * from outside are sliced, results concatenated, and contractions over the rows continue their
 * chains from chunk to chunk.  So no bit of f32 changes, and nothing is computed twice.
 *
 * In a language model these are the linear layer of the vocabulary, the loss, and the gradients
 * of both: the logits of all tokens are never stored. */
#include "pass/chunk.h"

#include "base/hash.h"
#include "ops/ops.h"
#include "shard/rule_node.h"

#include <string.h>

enum { CONCAT_MAX = 255, CHUNKS_MAX = 64 };

/* The range of an original value for the current chunk, along these dims. */
typedef struct {
  val old, part;
  int8_t along[HP_MAX_RANK];
} part;

typedef struct {
  rewrite r;
  const chunk_finder *f;
  const uint32_t *region_of; /* by node, from 1; 0 = none */
  const chunk_region *k;
  int64_t lo[HP_MAX_RANK], hi[HP_MAX_RANK]; /* of the chunk, by axis */
  val *local;      /* by original value: what members computed in this chunk */
  VEC(part) parts; /* of values from outside */
  VEC(val) kept;   /* of every chunk, the results that are used outside */
} chunk;

/* The dims of a tensor in the chunk; false: all of it. */
static bool chunk_dims(const chunk *c, const int8_t *along, ir_value *type) {
  bool less = false;
  for (int a = 0; a < c->k->axes; a++) {
    if (along[a] == CHUNK_WHOLE) continue;
    type->dim[along[a]] = c->hi[a] - c->lo[a];
    less |= type->dim[along[a]] != c->k->size[a];
  }
  return less;
}

/* The range of a value from outside that the chunk needs. */
static val sliced(chunk *c, val old, const int8_t *along) {
  for (size_t i = 0; i < c->parts.len; i++)
    if (c->parts.at[i].old == old && !memcmp(c->parts.at[i].along, along, (size_t)c->k->axes))
      return c->parts.at[i].part;
  int64_t start[HP_MAX_RANK] = {0}, stop[HP_MAX_RANK], step[HP_MAX_RANK];
  ir_value type = *graph_value(c->r.from, old);
  for (int d = 0; d < type.rank; d++) {
    stop[d] = type.dim[d];
    step[d] = 1;
  }
  if (!chunk_dims(c, along, &type)) return c->r.map[old];
  for (int a = 0; a < c->k->axes; a++)
    if (along[a] != CHUNK_WHOLE) start[along[a]] = c->lo[a], stop[along[a]] = c->hi[a];
  part p = {.old = old, .part = ops_slice(c->r.to, c->r.map[old], start, stop, step)};
  memcpy(p.along, along, sizeof p.along);
  if (!vec_push(&c->parts, p)) graph_poison(c->r.to, HP_ERR_OOM);
  return p.part;
}

/* A contraction over the rows continues the chains of the previous chunk, in f32. */
static void go_on(chunk *c, const ir_node *n, const val *in) {
  const char *eq = attr_str(c->r.from, n, "eq");
  val sum = c->r.map[n->out0];
  if (!sum && n->n_in == 3) sum = ops_cast(c->r.to, in[2], HP_F32);
  c->r.map[n->out0] = sum ? ops_einsum_onto(c->r.to, eq, in[0], in[1], sum)
                          : ops_einsum(c->r.to, eq, in[0], in[1], HP_F32);
}

static void emit_member(chunk *c, const chunk_member *m) {
  const ir_node *n = graph_node(c->r.from, m->node);
  const val *old = graph_in(c->r.from, n);
  val in[CHUNK_TENSORS];
  rewrite_place(&c->r, n);
  for (int i = 0; i < n->n_in; i++) {
    bool inside = c->region_of[graph_value(c->f->g, old[i])->def] == c->region_of[m->node];
    in[i] = inside ? c->local[old[i]] : sliced(c, old[i], m->dim[i]);
  }
  if (m->sums) {
    go_on(c, n, in);
    return;
  }
  ir_value type = *graph_value(c->r.from, n->out0);
  chunk_dims(c, m->dim[n->n_in], &type);
  attr_record a = rule_local_attrs(c->r.from, n, &type);
  val v = ops_add(c->r.to, n->op, in, n->n_in, &a);
  for (int o = 0; o < n->n_out; o++) c->local[n->out0 + (val)o] = v ? v + (val)o : 0;
}

/* The next chunk, row-major; false after the last. */
static bool next_chunk(chunk *c) {
  for (int a = c->k->axes - 1; a >= 0; a--) {
    bool more = c->hi[a] < c->k->size[a];
    c->lo[a] = more ? c->hi[a] : 0;
    c->hi[a] = c->lo[a] + c->k->step[a];
    if (c->hi[a] > c->k->size[a]) c->hi[a] = c->k->size[a];
    if (more) return true;
  }
  return false;
}

/* Is the value used outside of region `own`? */
static bool leaves(const chunk *c, val v) {
  for (uint32_t u = c->f->uses.use0[v]; u < c->f->uses.use0[v + 1]; u++)
    if (c->region_of[c->f->uses.use[u]] != c->region_of[graph_value(c->f->g, v)->def]) return true;
  return false;
}

/* Concatenates x[0..n) along a dim; x is overwritten. */
static val join(chunk *c, val *x, int64_t n, int axis) {
  while (n > 1) {
    int64_t less = 0;
    for (int64_t i = 0; i < n; i += CONCAT_MAX)
      x[less++] = ops_concat(c->r.to, x + i, (int)(n - i < CONCAT_MAX ? n - i : CONCAT_MAX), axis);
    n = less;
  }
  return x[0];
}

/* Concatenates chunks x, which are row-major, from the innermost axis on. */
static val join_all(chunk *c, val *x, const int8_t *along) {
  const chunk_region *k = c->k;
  int64_t n = k->chunks;
  for (int a = k->axes - 1; a >= 0; a--) {
    int64_t parts = (k->size[a] + k->step[a] - 1) / k->step[a];
    n /= parts;
    for (int64_t i = 0; i < n; i++) x[i] = join(c, x + i * parts, parts, along[a]);
  }
  return x[0];
}

/* Calls for the values that leave the region, in order: a member's result, and the dims along
 * which it is split. */
typedef hp_status (*visit)(chunk *c, val v, const int8_t *along, int number);
static hp_status visit_leaving(chunk *c, visit what) {
  int number = 0;
  for (int m = 0; m < c->k->n; m++) {
    const chunk_member *k = &c->k->at[m];
    const ir_node *n = graph_node(c->f->g, k->node);
    rewrite_place(&c->r, n);
    for (int o = 0; o < n->n_out && !k->sums; o++)
      if (leaves(c, n->out0 + (val)o))
        HP_TRY(what(c, n->out0 + (val)o, k->dim[n->n_in + o], number++));
  }
  return HP_OK;
}

static hp_status keep_chunk(chunk *c, val v, const int8_t *along, int number) {
  (void)along;
  (void)number;
  return vec_push(&c->kept, c->local[v]) ? HP_OK : HP_ERR_OOM;
}

static hp_status join_result(chunk *c, val v, const int8_t *along, int number) {
  size_t chunks = (size_t)c->k->chunks, results = c->kept.len / chunks;
  val *x = mem_calloc(chunks, sizeof *x);
  HP_TRY_MEM(x);
  for (size_t i = 0; i < chunks; i++) x[i] = c->kept.at[i * results + (size_t)number];
  c->r.map[v] = join_all(c, x, along);
  mem_free(x);
  return graph_status(c->r.to);
}

static hp_status emit_region(chunk *c, const chunk_region *k) {
  c->k = k;
  c->kept.len = 0;
  for (int a = 0; a < k->axes; a++) c->lo[a] = 0, c->hi[a] = k->step[a];
  do {
    for (int m = 0; m < k->n; m++) emit_member(c, &k->at[m]);
    HP_TRY(visit_leaving(c, keep_chunk));
    c->parts.len = 0;
    HP_TRY(graph_status(c->r.to));
  } while (next_chunk(c));
  for (int m = 0; m < k->n; m++) {
    val v = graph_node(c->f->g, k->at[m].node)->out0;
    rewrite_place(&c->r, graph_node(c->f->g, k->at[m].node));
    if (k->at[m].sums)
      c->r.map[v] = ops_cast(c->r.to, c->r.map[v], (hp_dtype)graph_value(c->f->g, v)->dtype);
  }
  return visit_leaving(c, join_result);
}

/* --- the graph with its regions in chunks ----------------------------------------------------- */

/* Does node n read results of the region, or nodes that were postponed? */
static bool comes_after(const chunk *c, const ir_node *n, uint32_t region, const bool *late) {
  for (int i = 0; i < n->n_in; i++) {
    uint32_t d = graph_value(c->f->g, graph_in(c->f->g, n)[i])->def;
    if (c->region_of[d] == region || late[d]) return true;
  }
  return false;
}

/* A region runs at the position of its last node; earlier nodes that need it run after it. */
static hp_status emit_range(chunk *c, const chunk_region *k, bool *late) {
  uint32_t first = k->at[0].node, last = k->at[k->n - 1].node, own = c->region_of[first];
  for (uint32_t i = first; i <= last; i++) {
    if (c->region_of[i] == own) continue;
    late[i] = comes_after(c, graph_node(c->f->g, i), own, late);
    if (!late[i]) rewrite_copy(&c->r, i);
  }
  HP_TRY(emit_region(c, k));
  for (uint32_t i = first; i <= last; i++) {
    if (late[i]) rewrite_copy(&c->r, i);
    late[i] = false;
  }
  return graph_status(c->r.to);
}

typedef VEC(chunk_region) regions;

static hp_status emit_all(chunk *c, const regions *all, hp_graph **out) {
  const hp_graph *g = c->f->g;
  bool *late = mem_calloc(g->nodes.len, sizeof *late);
  c->local = mem_calloc(g->values.len, sizeof *c->local);
  hp_status st = late && c->local ? rewrite_begin(&c->r, g) : HP_ERR_OOM;
  if (!st) {
    uint32_t i = 0;
    for (size_t k = 0; !st && k < all->len; k++) {
      while (i < all->at[k].at[0].node) rewrite_copy(&c->r, i++);
      st = emit_range(c, &all->at[k], late);
      i = all->at[k].at[all->at[k].n - 1].node + 1;
    }
    while (i < g->nodes.len) rewrite_copy(&c->r, i++);
    st = rewrite_end(&c->r, st, out);
  }
  mem_free(late);
  mem_free(c->local);
  vec_free(&c->parts);
  vec_free(&c->kept);
  return st;
}

/* --- finding them ----------------------------------------------------------------------------- */

/* Has the value memory of its own?  Not if it will be inside a fused loop. */
static bool is_stored(const ir_node *n) {
  return !(op_flags((op_id)n->op) & OPF_ELEMENTWISE) && op_table[n->op].linearity != LIN_MOVE;
}

typedef struct {
  str text;
  map values; /* the values with a note */
} chunk_notes;

/* Of similar values one is reported: f32[4,256,32000] of einsum "lm_head" (125.0 MiB): ... */
static hp_status add_note(chunk_notes *notes, const hp_graph *g, val v, const char *what) {
  const ir_node *n = graph_def(g, v);
  str value = {0};
  value_print(graph_value(g, v), &value);
  str_printf(&value, " of %s \"%s\" (%.1f MiB): ", op_table[n->op].name, graph_str(g, n->loc),
             (double)value_bytes(graph_value(g, v)) / 0x1p20);
  hp_status st = str_status(&value);
  uint32_t noted;
  if (!st && !map_get(&notes->values, value.at, value.len, &noted)) {
    str_printf(&notes->text, "%s%s\n", value.at, what);
    st = map_set(&notes->values, value.at, value.len, 1);
  }
  str_free(&value);
  return st;
}

/* Tries value v as the seed of a region. */
static hp_status try_value(chunk_finder *f, val v, regions *all, uint32_t *region_of,
                           chunk_notes *notes) {
  chunk_region k;
  bool found;
  str text = {0};
  uint32_t free_from = 0;
  if (all->len) free_from = all->at[all->len - 1].at[all->at[all->len - 1].n - 1].node + 1;
  hp_status st = chunk_find(f, v, &k, &found, &text);
  if (!st && !found) {
    str why = {0};
    str_printf(&why, "stored, because %s", text.at ? text.at : "?");
    st = add_note(notes, f->g, v, why.at ? why.at : "");
    str_free(&why);
  } else if (!st && k.at[0].node >= free_from) {
    str_printf(&text, "in %lld chunks, never stored", (long long)k.chunks);
    st = add_note(notes, f->g, v, text.at ? text.at : "");
    if (!st && !vec_push(all, k)) st = HP_ERR_OOM;
    for (int m = 0; m < k.n; m++) region_of[k.at[m].node] = (uint32_t)all->len;
  }
  str_free(&text);
  return st;
}

/* Regions in node order; none begins before the previous one has ended. */
static hp_status find_all(chunk_finder *f, regions *all, uint32_t *region_of, chunk_notes *notes) {
  for (val v = 1; v < f->g->values.len; v++) {
    uint32_t d = graph_value(f->g, v)->def;
    if (chunk_too_large(f, v) && is_stored(graph_node(f->g, d)) && !region_of[d])
      HP_TRY(try_value(f, v, all, region_of, notes));
  }
  return HP_OK;
}

/* One round: the graph with all regions that can be split at once; if none is left, *out is 0. */
static hp_status cut_once(const hp_graph *g, const chunk_limits *limits, chunk_notes *notes,
                          hp_graph **out) {
  chunk_finder f;
  regions all = {0};
  *out = NULL;
  HP_TRY(chunk_finder_begin(g, limits, &f));
  uint32_t *region_of = mem_calloc(g->nodes.len, sizeof *region_of);
  hp_status st = region_of ? find_all(&f, &all, region_of, notes) : HP_ERR_OOM;
  chunk c = {.f = &f, .region_of = region_of};
  if (!st && all.len) st = emit_all(&c, &all, out);
  mem_free(region_of);
  vec_free(&all);
  chunk_finder_end(&f);
  return st;
}

/* The default size of a chunk in bytes.  Each chunk adds nodes to compile and run: the largest
 * value has at most CHUNKS_MAX chunks, in any number of rounds, for any batch size. */
static uint64_t usual_bytes(const hp_graph *g, const capabilities *can) {
  uint64_t largest = 0;
  for (val v = 1; v < g->values.len; v++) {
    uint64_t bytes = (uint64_t)value_bytes(graph_value(g, v));
    if (graph_def(g, v)->n_in && bytes > largest) largest = bytes;
  }
  return largest / CHUNKS_MAX > can->chunk_bytes ? largest / CHUNKS_MAX : can->chunk_bytes;
}

hp_status pass_chunk(const hp_graph *in, const pass_options *o, hp_graph **out) {
  chunk_notes notes = {.values = {0}};
  rewrite r;
  hp_graph *next;
  HP_TRY(rewrite_begin(&r, in));
  for (uint32_t i = 0; i < in->nodes.len; i++) rewrite_copy(&r, i);
  HP_TRY(rewrite_end(&r, HP_OK, out));
  hp_status st = HP_OK;
  uint64_t given = o->options->chunk_bytes;
  chunk_limits limits = {.bytes = given ? given : usual_bytes(in, o->can),
                         .flops_per_byte = given ? 0 : o->can->flops_per_byte};
  while (limits.bytes && !(st = cut_once(*out, &limits, &notes, &next)) && next) {
    graph_free(*out);
    *out = next;
  }
  if (st) graph_free(*out);
  else if (o->notes && notes.text.at) str_add(o->notes, notes.text.at);
  str_free(&notes.text);
  map_free(&notes.values);
  return st;
}
