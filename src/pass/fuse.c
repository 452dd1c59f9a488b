/* fuse: chains of elementwise ops, with one stage of reductions, become loop kernels.
 *
 * Every fusable node starts as a group of its own at its place in the order and is merged with
 * the groups that make its operands, latest first.  A group runs at one position `pos`, so a
 * merge is legal if some position lies after all values that the group reads from outside and
 * before all outside readers of its values.  Then maps that read the same values are merged.  A
 * group has one iteration space and one kind: map, row (reduces the last dim; values with one
 * element per row may be used again) or col (reduces all dims but the last).  Finally sums over
 * columns become folds of loops over rows that make, or read, their summands: the rows are then
 * read once.  docs/internals/pass.md shows an example. */
#include "pass/fuse_emit.h"
#include "pass/pass.h"
#include "ops/views.h"

#include <string.h>

enum { MEMBERS_MAX = 56, OPERANDS_MAX = 24, SIBLINGS = 8 };
/* Rows of a loop that also sums columns: its work items are blocks of rows, and there must be
 * enough for the threads.  And columns: enough for a loop, and few enough for their sums to fit
 * in a near cache. */
enum { FOLD_ROWS = 1024, FOLD_COLUMNS = 128, FOLD_COLUMNS_MAX = 1 << 16 };

/* May n be part of a loop?  Generated values are made in the loops that use them; contiguous
 * views of an operand need no loop. */
static bool fusable(const hp_graph *g, const ir_node *n) {
  uint64_t at;
  if (views_part(g, n, &at)) return false;
  return fuse_is_view(n) || fuse_is_reduction(n) || op_flags((op_id)n->op) & OPF_ELEMENTWISE;
}

typedef struct {
  const hp_graph *g;
  use_lists uses;
  uint32_t *group_of; /* by node: index into groups, from 1; 0 = not in one */
  VEC(fuse_group) groups;
} fuse;

static fuse_group *group_of(const fuse *f, uint32_t node) {
  uint32_t k = f->group_of[node];
  return k ? &f->groups.at[k - 1] : NULL;
}

/* When a node runs: its index, or its group's position. */
static uint32_t position(const fuse *f, uint32_t node) {
  const fuse_group *k = group_of(f, node);
  return k ? k->pos : node;
}

static bool inside(const fuse *f, uint32_t node, uint32_t a, uint32_t b) {
  return f->group_of[node] == a || f->group_of[node] == b;
}

/* Latest position of the values that groups a and b read from outside, -1: none; the number of
 * operands. */
static int64_t reads_until(const fuse *f, uint32_t a, uint32_t b, int *operands) {
  const uint32_t both[2] = {a, b};
  int64_t after = -1;
  *operands = 0;
  for (int s = 0; s < 2; s++) {
    const fuse_group *k = &f->groups.at[both[s] - 1];
    for (int m = 0; m < k->n; m++) {
      const ir_node *n = graph_node(f->g, k->member[m]);
      for (int i = 0; i < n->n_in; i++) {
        uint32_t d = graph_value(f->g, graph_in(f->g, n)[i])->def;
        if (inside(f, d, a, b)) continue;
        ++*operands;
        if (position(f, d) > after) after = position(f, d);
      }
    }
  }
  return after;
}

/* Does an outside reader of groups a and b run at `pos` or before?  `now` is the current node:
 * later nodes have no position yet.  The search ends with the first such reader, because a value
 * may have as many readers as the graph has nodes. */
static bool is_read_by(const fuse *f, uint32_t a, uint32_t b, uint32_t now, uint32_t pos) {
  const uint32_t both[2] = {a, b};
  for (int s = 0; s < 2; s++) {
    const fuse_group *k = &f->groups.at[both[s] - 1];
    for (int m = 0; m < k->n; m++) {
      const ir_node *n = graph_node(f->g, k->member[m]);
      for (val v = n->out0; v < n->out0 + n->n_out; v++)
        for (uint32_t u = f->uses.use0[v]; u < f->uses.use0[v + 1]; u++) {
          uint32_t user = f->uses.use[u];
          if (user > now) break;
          if (!inside(f, user, a, b) && position(f, user) <= pos) return true;
        }
    }
  }
  return false;
}

static bool same_dims(const ir_value *a, const ir_value *b) { return value_same_shape(a, b); }

/* Does a have one element per row of space b? */
static bool row_scalar_of(const ir_value *a, const ir_value *b) {
  if (a->rank != b->rank || b->rank < 1 || a->dim[a->rank - 1] != 1) return false;
  return !memcmp(a->dim, b->dim, (size_t)(a->rank - 1) * sizeof *a->dim);
}

/* All operands of n are one-per-row values of group k, or constants. */
static bool reads_row_scalars(const fuse *f, const ir_node *n, uint32_t k) {
  bool any = false;
  for (int i = 0; i < n->n_in; i++) {
    const ir_value *v = graph_value(f->g, graph_in(f->g, n)[i]);
    if (f->group_of[v->def] == k && fuse_is_reduced(&f->groups.at[k - 1], v->def)) any = true;
    else if (graph_node(f->g, v->def)->op != OP_CONST) return false;
  }
  return any;
}

/* Kind of the union of group a (of operands) and b (of the node n), or -1 if they do not fit. */
static int union_kind(const fuse *f, uint32_t a, uint32_t b, const ir_node *n, bool *scalar) {
  const fuse_group *ga = &f->groups.at[a - 1], *gb = &f->groups.at[b - 1];
  *scalar = false;
  if (fuse_is_view(n)) return -1;
  if (!same_dims(&ga->space, &gb->space)) {
    *scalar = gb->n == 1 && gb->kind == LOOP_MAP && ga->kind == LOOP_ROW &&
              row_scalar_of(&gb->space, &ga->space) && reads_row_scalars(f, n, a);
    return *scalar ? LOOP_ROW : -1;
  }
  if (ga->kind == gb->kind) return ga->kind;
  if (ga->kind == LOOP_MAP) return gb->kind;
  return gb->kind == LOOP_MAP ? (int)ga->kind : -1;
}

/* In a col loop every operand must be able to iterate over the leading dims as one. */
static bool col_fits(const fuse *f, const fuse_group *k) {
  for (int m = 0; m < k->n; m++) {
    const ir_node *n = graph_node(f->g, k->member[m]);
    for (int i = 0; i < n->n_in; i++) {
      val x = graph_in(f->g, n)[i];
      const ir_value *v = graph_value(f->g, x);
      if (fuse_is_view(n) || !fuse_leading_dims_merge(v, &k->space)) return false;
      if (!fuse_inlines(f->g, n, x)) continue;
      uint16_t leaf = graph_def(f->g, x)->op;
      if (leaf == OP_UNIFORM || (leaf == OP_IOTA && k->space.rank > 2)) return false;
    }
  }
  return true;
}

/* A view in group b reads an element of group a at another index than the loop's, so they cannot
 * be one loop. */
static bool view_reads(const fuse *f, uint32_t b, uint32_t a) {
  const fuse_group *k = &f->groups.at[b - 1];
  for (int m = 0; m < k->n; m++) {
    const ir_node *n = graph_node(f->g, k->member[m]);
    if (fuse_is_view(n) && f->group_of[graph_value(f->g, graph_in(f->g, n)[0])->def] == a)
      return true;
  }
  return false;
}

/* Values of group `maker` with one element per row that group `reader` uses as if they were
 * columns: a sum without its last dim would be broadcast from the right, along the columns. */
static bool rows_line_up(const fuse *f, uint32_t reader, uint32_t maker) {
  const fuse_group *k = &f->groups.at[reader - 1], *made = &f->groups.at[maker - 1];
  if (made->kind != LOOP_ROW) return true;
  for (int m = 0; m < k->n; m++) {
    const ir_node *n = graph_node(f->g, k->member[m]);
    for (int i = 0; i < n->n_in; i++) {
      const ir_value *v = graph_value(f->g, graph_in(f->g, n)[i]);
      if (f->group_of[v->def] != maker || !fuse_is_reduced(made, v->def)) continue;
      if (!row_scalar_of(v, &made->space) && value_elements(v) != 1) return false;
    }
  }
  return true;
}

/* May a node at position `from` run at the earlier position `to`?  Not if it would move from the
 * backward into the forward: its results would be kept from then on. */
static bool may_move(const fuse *f, uint32_t from, uint32_t to) {
  return graph_node(f->g, to)->phase != PHASE_FORWARD ||
         graph_node(f->g, from)->phase == PHASE_FORWARD;
}

static bool read_outside(const fuse *f, val v, uint32_t a, uint32_t b) {
  for (uint32_t u = f->uses.use0[v]; u < f->uses.use0[v + 1]; u++)
    if (!inside(f, f->uses.use[u], a, b)) return true;
  return false;
}

/* Do the sums of groups a and b read elements that others read, too?  A column loop would
 * compute them twice, for its sums and to store them; reading the stored ones is better. */
static bool sums_stored(const fuse *f, uint32_t a, uint32_t b) {
  const fuse_group *k[2] = {&f->groups.at[a - 1], &f->groups.at[b - 1]};
  uint32_t feeds[2 * MEMBERS_MAX];
  int n = 0;
  for (int s = 0; s < 2; s++)
    for (int m = 0; m < k[s]->n; m++)
      if (fuse_is_reduction(graph_node(f->g, k[s]->member[m]))) feeds[n++] = k[s]->member[m];
  for (int i = 0; i < n; i++) {
    const ir_node *x = graph_node(f->g, feeds[i]);
    for (int j = 0; j < x->n_in; j++) {
      val v = graph_in(f->g, x)[j];
      uint32_t d = graph_value(f->g, v)->def;
      bool seen = !inside(f, d, a, b) || fuse_is_reduction(graph_node(f->g, d));
      for (int t = 0; !seen && t < n; t++) seen = feeds[t] == d;
      if (seen) continue;
      if (read_outside(f, v, a, b)) return true;
      feeds[n++] = d;
    }
  }
  return false;
}

static bool col_merges(const fuse *f, uint32_t a, uint32_t b) {
  return col_fits(f, &f->groups.at[a - 1]) && col_fits(f, &f->groups.at[b - 1]) &&
         !sums_stored(f, a, b);
}

/* Stages of a pipeline run at times of their own. */
static bool same_stage(const fuse *f, const fuse_group *a, const fuse_group *b) {
  return graph_node(f->g, a->member[0])->stage == graph_node(f->g, b->member[0])->stage;
}

/* Merges group b into group a, as a loop of that kind, if a position is legal for both; nodes up
 * to `now` have positions.  scalar: b has one value per row of a. */
static void merge_as(fuse *f, uint32_t a, uint32_t b, loop_kind kind, bool scalar, uint32_t now) {
  fuse_group *ga = &f->groups.at[a - 1], *gb = &f->groups.at[b - 1];
  int operands;
  if (ga->n + gb->n > MEMBERS_MAX || !same_stage(f, ga, gb)) return;
  if (view_reads(f, a, b) || view_reads(f, b, a)) return;
  if (!rows_line_up(f, a, b) || !rows_line_up(f, b, a)) return;
  int64_t after = reads_until(f, a, b, &operands);
  if (operands > OPERANDS_MAX) return;
  uint32_t late = ga->pos > gb->pos ? ga->pos : gb->pos,
           early = ga->pos > gb->pos ? gb->pos : ga->pos;
  uint32_t pos = late;
  if (pos <= after || is_read_by(f, a, b, now, pos)) {
    pos = early;
    if (!may_move(f, late, early)) return;
  }
  if (pos <= after || is_read_by(f, a, b, now, pos)) return;
  for (int m = 0; m < gb->n; m++) {
    ga->reduced[ga->n] = gb->reduced[m] || scalar;
    ga->member[ga->n++] = gb->member[m];
    f->group_of[gb->member[m]] = a;
  }
  ga->kind = kind;
  ga->pos = pos;
  gb->n = 0;
}

/* Merges group b, of node i, into group a if that is legal. */
static void try_merge(fuse *f, uint32_t a, uint32_t b, uint32_t i, uint32_t now) {
  bool scalar;
  int kind = union_kind(f, a, b, graph_node(f->g, i), &scalar);
  if (kind < 0 || (kind == LOOP_COL && !col_merges(f, a, b))) return;
  merge_as(f, a, b, (loop_kind)kind, scalar, now);
}

/* A group with only node i. */
static hp_status start_group(fuse *f, uint32_t i) {
  const ir_node *n = graph_node(f->g, i);
  fuse_group k = {.n = 1, .pos = i, .kind = LOOP_MAP};
  k.member[0] = i;
  k.space = *graph_value(f->g, n->out0);
  if (fuse_is_reduction(n)) {
    k.space = *graph_value(f->g, graph_in(f->g, n)[0]);
    k.kind = fuse_sums_columns(f->g, n) ? LOOP_COL : LOOP_ROW;
    k.reduced[0] = true;
  }
  if (!vec_push(&f->groups, k)) return HP_ERR_OOM;
  f->group_of[i] = (uint32_t)f->groups.len;
  return HP_OK;
}

static void grow_group(fuse *f, uint32_t i) {
  const ir_node *n = graph_node(f->g, i);
  uint32_t producer[255];
  int count = 0;
  for (int k = 0; k < n->n_in; k++) {
    uint32_t p = f->group_of[graph_value(f->g, graph_in(f->g, n)[k])->def];
    bool seen = p == 0 || p == f->group_of[i];
    for (int j = 0; j < count; j++) seen |= producer[j] == p;
    if (!seen) producer[count++] = p;
  }
  /* a stable order that does not depend on ids: by position, latest first */
  for (int a = 1; a < count; a++)
    for (int b = a;
         b > 0 && f->groups.at[producer[b] - 1].pos > f->groups.at[producer[b - 1] - 1].pos; b--) {
      uint32_t t = producer[b];
      producer[b] = producer[b - 1];
      producer[b - 1] = t;
    }
  for (int k = 0; k < count; k++) {
    uint32_t mine = f->group_of[i];
    if (producer[k] != mine && f->groups.at[producer[k] - 1].n)
      try_merge(f, producer[k], mine, i, i);
  }
}

/* The first reader of v, in order, that is not before node i. */
static const uint32_t *readers_from(const fuse *f, val v, uint32_t i) {
  const uint32_t *u = &f->uses.use[f->uses.use0[v]];
  for (size_t left = f->uses.use0[v + 1] - f->uses.use0[v]; left; left /= 2)
    if (u[left / 2] < i) u += left / 2 + 1, left--;
  return u;
}

/* Merges the map of node i with maps that read the same large values, so that these are read
 * once for both.  A value may have as many readers as the graph has nodes, so only the last few
 * are tried. */
static void fuse_siblings(fuse *f, uint32_t i) {
  const ir_node *n = graph_node(f->g, i);
  uint32_t last = (uint32_t)f->g->nodes.len - 1;
  for (int k = 0; k < n->n_in; k++) {
    val v = graph_in(f->g, n)[k];
    if (!same_dims(graph_value(f->g, v), &f->groups.at[f->group_of[i] - 1].space)) continue;
    const uint32_t *first = &f->uses.use[f->uses.use0[v]], *u = readers_from(f, v, i);
    for (int tried = 0; u > first && tried < SIBLINGS; tried++) {
      const ir_node *other = graph_node(f->g, *--u);
      uint32_t mine = f->group_of[i], its = f->group_of[*u];
      if (!its || its == mine || other->block != n->block || other->phase != n->phase) continue;
      const fuse_group *a = &f->groups.at[its - 1], *b = &f->groups.at[mine - 1];
      if (a->kind == LOOP_MAP && b->kind == LOOP_MAP) try_merge(f, its, mine, i, last);
    }
  }
}

/* Does group `reader` read a sum over columns of group `maker`?  The sum exists only after all
 * rows. */
static bool reads_column_sums(const fuse *f, uint32_t reader, uint32_t maker) {
  const fuse_group *k = &f->groups.at[reader - 1];
  for (int m = 0; m < k->n; m++) {
    const ir_node *n = graph_node(f->g, k->member[m]);
    for (int i = 0; i < n->n_in; i++) {
      uint32_t d = graph_value(f->g, graph_in(f->g, n)[i])->def;
      if (f->group_of[d] == maker && fuse_sums_columns(f->g, graph_node(f->g, d))) return true;
    }
  }
  return false;
}

/* Moves the sums over columns of group b, and their summands, into the row loop or map of group
 * a. */
static void fold_into(fuse *f, uint32_t a, uint32_t b) {
  const fuse_group *ga = &f->groups.at[a - 1], *gb = &f->groups.at[b - 1];
  int64_t columns = gb->space.dim[gb->space.rank - 1];
  if (ga->kind == LOOP_COL || !same_dims(&ga->space, &gb->space)) return;
  if (columns < FOLD_COLUMNS || columns > FOLD_COLUMNS_MAX) return;
  if (value_elements(&gb->space) < FOLD_ROWS * columns) return;
  if (reads_column_sums(f, a, b) || reads_column_sums(f, b, a) || reads_column_sums(f, b, b))
    return;
  merge_as(f, a, b, LOOP_ROW, false, (uint32_t)f->g->nodes.len - 1);
}

/* Is the sum over columns of node i part of a loop over rows? */
static bool is_folded(const fuse *f, uint32_t i) { return group_of(f, i)->kind != LOOP_COL; }

/* Merges the sum over columns of node i into the loop that makes v or, in its block and phase,
 * one that reads it. */
static void fold_with(fuse *f, uint32_t i, val v) {
  const ir_node *n = graph_node(f->g, i);
  const uint32_t *reader = &f->uses.use[f->uses.use0[v]];
  const int64_t readers = f->uses.use0[v + 1] - f->uses.use0[v];
  const int64_t at = readers_from(f, v, i) - reader;
  const uint32_t mine = f->group_of[i], maker = f->group_of[graph_value(f->g, v)->def];
  if (maker && maker != mine) fold_into(f, maker, mine);
  for (int64_t u = at > SIBLINGS ? at - SIBLINGS : 0; u < readers && u < at + SIBLINGS; u++) {
    const ir_node *other = graph_node(f->g, reader[u]);
    const uint32_t its = f->group_of[reader[u]];
    if (is_folded(f, i)) return;
    if (its && its != mine && other->block == n->block && other->phase == n->phase)
      fold_into(f, its, mine);
  }
}

/* Not a maximum: a loop that folds it cannot use vectors. */
static void fold_columns(fuse *f, uint32_t i) {
  for (int m = 0; !is_folded(f, i) && m < group_of(f, i)->n; m++) {
    const ir_node *x = graph_node(f->g, group_of(f, i)->member[m]);
    for (int k = 0; !is_folded(f, i) && k < x->n_in; k++) fold_with(f, i, graph_in(f->g, x)[k]);
  }
}

static hp_status make_groups(fuse *f) {
  const uint32_t n = (uint32_t)f->g->nodes.len;
  for (uint32_t i = 0; i < n; i++) {
    if (!fusable(f->g, graph_node(f->g, i))) continue;
    HP_TRY(start_group(f, i));
    grow_group(f, i);
  }
  for (uint32_t i = 0; i < n; i++)
    if (f->group_of[i]) fuse_siblings(f, i);
  for (uint32_t i = 0; i < n; i++)
    if (graph_node(f->g, i)->op == OP_SUM && f->group_of[i]) fold_columns(f, i);
  return HP_OK;
}

hp_status pass_fuse(const hp_graph *in, const pass_options *o, hp_graph **out) {
  (void)o;
  fuse f = {.g = in};
  rewrite r = {0};
  hp_status st = HP_OK;
  uint32_t *runs = NULL; /* by position: the group that runs there, from 1 */
  HP_TRY_GOTO(use_lists_build(in, &f.uses), st);
  f.group_of = mem_calloc(in->nodes.len, sizeof *f.group_of);
  runs = mem_calloc(in->nodes.len, sizeof *runs);
  if (!f.group_of || !runs) st = HP_ERR_OOM;
  if (!st) st = make_groups(&f);
  if (st) goto done;
  for (uint32_t k = 0; k < f.groups.len; k++) {
    fuse_group *gr = &f.groups.at[k];
    if (!gr->n) continue;
    runs[gr->pos] = k + 1;
  }
  HP_TRY_GOTO(rewrite_begin(&r, in), st);
  for (uint32_t i = 0; !st && i < in->nodes.len; i++) {
    const ir_node *n = graph_node(in, i);
    if (runs[i]) st = fuse_emit(&r, &f.uses, &f.groups.at[runs[i] - 1], f.group_of, runs[i]);
    else if (!f.group_of[i] && !fuse_is_generated(n)) {
      st = fuse_make_leaves(&r, n);
      if (!st) rewrite_copy(&r, i);
    }
  }
  st = rewrite_end(&r, st, out);
done:
  use_lists_free(&f.uses);
  mem_free(f.group_of);
  mem_free(runs);
  vec_free(&f.groups);
  return st;
}
