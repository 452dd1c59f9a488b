#include "shard/path.h"

#include "base/hash.h"
#include "base/vec.h"

#include <math.h>
#include <string.h>

/* With more axes, those that both layouts use alike stay unchanged. */
enum { SEARCH_AXES = 5 };

typedef struct {
  layout l;
  double cost;
  int steps;
  uint32_t from; /* previous node; 0 is the start */
  bool done;
  path_move by;
} node;

typedef struct {
  const path_request *q;
  const mesh *m;
  layout target;
  int64_t size[LAYOUT_DIMS]; /* padded */
  bool fixed[LAYOUT_AXES];   /* axes that the search does not change */
  VEC(node) nodes;
  VEC(uint32_t) heap; /* of node indices, cheapest first */
  map seen;           /* layout -> node */
  uint32_t at;        /* the node that is expanded */
  hp_status st;
} search;

/* --- cheapest first --------------------------------------------------------------------------- */

/* Costs are sums in different orders: if they differ only by rounding they are equal. */
static bool before(const node *a, const node *b) {
  if (fabs(a->cost - b->cost) > 1e-9 * (a->cost + b->cost)) return a->cost < b->cost;
  return a->steps < b->steps;
}

static void sift_up(search *s, size_t i) {
  while (i > 0) {
    size_t up = (i - 1) / 2;
    uint32_t x = s->heap.at[i], y = s->heap.at[up];
    if (!before(&s->nodes.at[x], &s->nodes.at[y])) return;
    s->heap.at[i] = y;
    s->heap.at[up] = x;
    i = up;
  }
}

static uint32_t pop(search *s) {
  uint32_t top = s->heap.at[0];
  s->heap.at[0] = s->heap.at[--s->heap.len];
  for (size_t i = 0;;) {
    size_t least = i;
    for (size_t k = 2 * i + 1; k <= 2 * i + 2 && k < s->heap.len; k++)
      if (before(&s->nodes.at[s->heap.at[k]], &s->nodes.at[s->heap.at[least]])) least = k;
    if (least == i) return top;
    uint32_t x = s->heap.at[i];
    s->heap.at[i] = s->heap.at[least];
    s->heap.at[least] = x;
    i = least;
  }
}

/* --- sizes ------------------------------------------------------------------------------------ */

static int64_t local_elements(const search *s, const layout *l) {
  int64_t n = 1;
  for (int d = 0; d < l->rank; d++) n *= s->size[d] / layout_shard_count(s->m, l, d);
  return n;
}

static int64_t axes_devices(const mesh *m, const uint8_t *axis, int n) {
  int64_t devices = 1;
  for (int i = 0; i < n; i++) devices *= m->size[axis[i]];
  return devices;
}

int64_t move_devices(const mesh *m, const path_move *move) {
  return axes_devices(m, move->axis, move->n);
}

static double bytes_of(const search *s, const path_move *move) {
  double n = (double)move_devices(s->m, move), share = (n - 1) / n;
  double here = (double)local_elements(s, &s->nodes.at[s->at].l) * s->q->element_bytes;
  switch (move->kind) {
  case MOVE_SPLIT:
  case MOVE_DROP: return 0;
  case MOVE_GATHER: return here * (n - 1);
  case MOVE_ALL_TO_ALL:
  case MOVE_REDUCE_SCATTER: return here * share;
  case MOVE_ALL_REDUCE: return 2 * here * share;
  case MOVE_PERMUTE: return here;
  }
  return 0;
}

/* --- moves ------------------------------------------------------------------------------------ */

static bool divides(const search *s, const layout *l) {
  for (int d = 0; d < l->rank; d++)
    if (s->size[d] % layout_shard_count(s->m, l, d)) return false;
  return true;
}

/* An edge from the expanded node to move->after. */
static void reach(search *s, path_move *move) {
  uint32_t i;
  if (s->st || !divides(s, &move->after)) return;
  if (s->q->peak && local_elements(s, &move->after) > s->q->peak) return;
  move->bytes = bytes_of(s, move);
  const node *here = &s->nodes.at[s->at];
  node next = {.l = move->after, .from = s->at, .steps = here->steps + 1, .by = *move};
  next.cost = here->cost + (s->q->price ? s->q->price(s->q->model, move) : move->bytes);
  if (map_get(&s->seen, &next.l, sizeof next.l, &i)) {
    if (s->nodes.at[i].done || !before(&next, &s->nodes.at[i])) return;
    s->nodes.at[i].done = true; /* its earlier entry in the heap is void */
  }
  i = (uint32_t)s->nodes.len;
  if (!vec_push(&s->nodes, next) || !vec_push(&s->heap, i) ||
      map_set(&s->seen, &next.l, sizeof next.l, i)) {
    s->st = HP_ERR_OOM;
    return;
  }
  sift_up(s, s->heap.len - 1);
}

static const layout *here(const search *s) { return &s->nodes.at[s->at].l; }

/* Every sequence of different axes of `axis`, as a split or a reduce_scatter of a dim. */
static void each_sequence(search *s, const path_move *so_far, const uint8_t *axis, int n) {
  for (int i = 0; i < n; i++) {
    if (memchr(so_far->axis, axis[i], (size_t)so_far->n)) continue;
    path_move move = *so_far;
    move.axis[move.n++] = axis[i];
    layout_append(&move.after, move.dim, axis[i]);
    move.after.partial[axis[i]] = PARTIAL_NONE;
    path_move reached = move;
    reach(s, &reached);
    each_sequence(s, &move, axis, n);
  }
}

static void splits(search *s) {
  layout l = *here(s);
  uint8_t axis[LAYOUT_AXES];
  int n = 0;
  for (int a = 0; a < s->m->axes; a++)
    if (s->m->size[a] > 1 && !s->fixed[a] && layout_is_free(&l, a)) axis[n++] = (uint8_t)a;
  for (int d = 0; d < l.rank; d++)
    each_sequence(s, &(path_move){.kind = MOVE_SPLIT, .dim = d, .after = l}, axis, n);
}

/* Axes with one partial reduction: all_reduce over every subset, reduce_scatter to every dim. */
static void reductions(search *s, partial_op op) {
  layout l = *here(s);
  uint8_t axis[LAYOUT_AXES];
  int n = 0;
  for (int a = 0; a < s->m->axes; a++)
    if (l.partial[a] == op && !s->fixed[a]) axis[n++] = (uint8_t)a;
  for (int mask = 1; mask < 1 << n; mask++) {
    path_move move = {.kind = MOVE_ALL_REDUCE, .op = op, .after = l};
    for (int i = 0; i < n; i++)
      if (mask >> i & 1) {
        move.axis[move.n++] = axis[i];
        move.after.partial[axis[i]] = PARTIAL_NONE;
      }
    reach(s, &move);
  }
  for (int d = 0; d < l.rank; d++)
    each_sequence(s, &(path_move){.kind = MOVE_REDUCE_SCATTER, .dim = d, .op = op, .after = l},
                  axis, n);
}

/* All orders in which n of the axes of an all_to_all can shard its other dim. */
static void each_cut(search *s, const path_move *so_far, int n) {
  if (n == so_far->n) {
    path_move move = *so_far;
    reach(s, &move);
    return;
  }
  for (int i = 0; i < so_far->n; i++) {
    if (memchr(so_far->cut, so_far->axis[i], (size_t)n)) continue;
    path_move move = *so_far;
    move.cut[n] = so_far->axis[i];
    layout_append(&move.after, move.to, so_far->axis[i]);
    each_cut(s, &move, n + 1);
  }
}

/* The innermost axes of every dim are gathered or moved to another dim. */
static void gathers(search *s) {
  layout l = *here(s);
  for (int d = 0; d < l.rank; d++)
    for (int k = 1; k <= l.n[d] && !s->fixed[l.axis[d][l.n[d] - k]]; k++) {
      path_move move = {.kind = MOVE_GATHER, .dim = d, .n = k, .after = l};
      memcpy(move.axis, l.axis[d] + l.n[d] - k, (size_t)k);
      layout_cut(&move.after, d, k);
      path_move moved = move;
      reach(s, &move);
      moved.kind = MOVE_ALL_TO_ALL;
      for (moved.to = 0; moved.to < l.rank; moved.to++)
        if (moved.to != d) each_cut(s, &moved, 0);
    }
}

static void drops(search *s) {
  layout l = *here(s);
  for (int a = 0; a < s->m->axes; a++) {
    if (!s->target.partial[a] || s->fixed[a] || !layout_is_free(&l, a)) continue;
    path_move move = {.kind = MOVE_DROP,
                      .op = (partial_op)s->target.partial[a],
                      .n = 1,
                      .after = l};
    move.axis[0] = (uint8_t)a;
    move.after.partial[a] = s->target.partial[a];
    reach(s, &move);
  }
}

/* Swaps axes a and b in all their uses. */
static void exchange(layout *l, int a, int b) {
  for (int d = 0; d < l->rank; d++)
    for (int i = 0; i < l->n[d]; i++)
      if (l->axis[d][i] == a) l->axis[d][i] = (uint8_t)b;
      else if (l->axis[d][i] == b) l->axis[d][i] = (uint8_t)a;
}

/* Two axes are swapped: within a dim, or anywhere if they have the same size. */
static void permutes(search *s) {
  layout l = *here(s);
  for (int a = 0; a < s->m->axes; a++)
    for (int b = a + 1; b < s->m->axes; b++) {
      int da = layout_dim_of(&l, a), db = layout_dim_of(&l, b);
      if (s->fixed[a] || s->fixed[b] || l.partial[a] || l.partial[b]) continue;
      if (da == db ? da < 0 : s->m->size[a] != s->m->size[b]) continue;
      path_move move = {.kind = MOVE_PERMUTE, .dim = da < 0 ? db : da, .n = 2, .after = l};
      move.axis[0] = (uint8_t)a;
      move.axis[1] = (uint8_t)b;
      exchange(&move.after, a, b);
      reach(s, &move);
    }
}

static void leave(search *s) {
  splits(s);
  gathers(s);
  for (int op = PARTIAL_SUM; op < PARTIAL_COUNT; op++) reductions(s, (partial_op)op);
  drops(s);
  if (s->q->permute) permutes(s);
}

/* --- the search ------------------------------------------------------------------------------- */

/* The layout without axes of one device, which have no effect. */
static layout normal(const mesh *m, const layout *l) {
  layout x = {.rank = l->rank};
  for (int d = 0; d < l->rank; d++)
    for (int i = 0; i < l->n[d]; i++)
      if (m->size[l->axis[d][i]] > 1) layout_append(&x, d, l->axis[d][i]);
  for (int a = 0; a < m->axes; a++)
    if (m->size[a] > 1) x.partial[a] = l->partial[a];
  return x;
}

static int64_t gcd(int64_t a, int64_t b) { return b ? gcd(b, a % b) : a; }

static hp_status pad(search *s, const layout *from) {
  int64_t all = 1;
  for (int d = 0; d < from->rank; d++) {
    int64_t a = layout_shard_count(s->m, from, d), b = layout_shard_count(s->m, &s->target, d);
    int64_t unit = a / gcd(a, b) * b, n = s->q->shape[d];
    if (n < 0 || n > INT64_MAX / 2 - unit)
      HP_FAIL(HP_ERR_SHAPE, "redistribution: dim %d has size %lld", d, (long long)n);
    s->size[d] = (n + unit - 1) / unit * unit;
    if (__builtin_mul_overflow(all, s->size[d] ? s->size[d] : 1, &all))
      HP_FAIL(HP_ERR_SHAPE, "redistribution: the tensor has more elements than can be counted");
  }
  return HP_OK;
}

/* With many axes: keeps those that are outermost in a dim of both layouts, or in neither layout. */
static void fix(search *s, const layout *from) {
  int axes = 0;
  for (int a = 0; a < s->m->axes; a++) axes += s->m->size[a] > 1;
  if (axes <= SEARCH_AXES) return;
  for (int d = 0; d < from->rank; d++)
    for (int i = 0; i < from->n[d] && i < s->target.n[d]; i++) {
      if (from->axis[d][i] != s->target.axis[d][i]) break;
      s->fixed[from->axis[d][i]] = true;
    }
  for (int a = 0; a < s->m->axes; a++)
    if (layout_dim_of(from, a) < 0 && layout_dim_of(&s->target, a) < 0)
      s->fixed[a] = from->partial[a] == s->target.partial[a];
}

static hp_status run(search *s, const layout *from, uint32_t *end) {
  node first = {.l = *from};
  if (!vec_push(&s->nodes, first) || !vec_push(&s->heap, 0u)) return HP_ERR_OOM;
  HP_TRY(map_set(&s->seen, from, sizeof *from, 0));
  while (s->heap.len && !s->st) {
    s->at = pop(s);
    if (s->nodes.at[s->at].done) continue;
    s->nodes.at[s->at].done = true;
    *end = s->at;
    if (layout_equal(here(s), &s->target)) return HP_OK;
    leave(s);
  }
  if (s->st) return s->st;
  HP_FAIL(HP_ERR_LAYOUT,
          "redistribution: no path keeps a device below %lld elements; raise the memory limit",
          (long long)s->q->peak);
}

static void write_path(const search *s, uint32_t end, path *out) {
  const node *last = &s->nodes.at[end];
  *out = (path){.n = last->steps, .cost = last->cost};
  HP_ASSERT(out->n <= PATH_MOVES);
  for (int i = out->n; i-- > 0; last = &s->nodes.at[last->from]) {
    int64_t held = local_elements(s, &last->l);
    out->move[i] = last->by;
    out->bytes += last->by.bytes;
    if (held > out->peak) out->peak = held;
  }
  out->local = local_elements(s, &last->l);
  if (out->local > out->peak) out->peak = out->local;
}

hp_status path_find(const path_request *q, const layout *from, const layout *to, path *out) {
  search s = {.q = q, .m = q->mesh, .target = normal(q->mesh, to)};
  layout start = normal(q->mesh, from);
  uint32_t end = 0;
  if (from->rank != to->rank)
    HP_FAIL(HP_ERR_LAYOUT, "redistribution: from %d dims to %d; both layouts are of one tensor",
            from->rank, to->rank);
  for (int d = 0; d < from->rank; d++)
    if (from->shard_size[d] || to->shard_size[d])
      HP_FAIL(HP_ERR_UNSUPPORTED,
              "redistribution: dim %d has shards of a given length; pad it first", d);
  HP_TRY(pad(&s, &start));
  fix(&s, &start);
  hp_status st = run(&s, &start, &end);
  if (!st) write_path(&s, end, out);
  vec_free(&s.nodes);
  vec_free(&s.heap);
  map_free(&s.seen);
  return st;
}

const char *move_name(move_kind kind) {
  static const char *const name[] = {"all_split",  "all_concat", "all_to_all", "reduce_scatter",
                                     "all_reduce", "drop",       "permute"};
  return name[kind];
}
