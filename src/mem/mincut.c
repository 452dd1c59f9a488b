#include "mem/mincut.h"

#include "base/vec.h"

#include <string.h>

/* Flow network: value v is an arc v_in -> v_out of capacity bytes (saving it cuts the arc); an
 * input u of v is an uncuttable arc u_out -> v_in; source -> v_in where v cannot be computed again;
 * v_out -> sink where backward needs v.  A cut of finite capacity is a set of values to save from
 * which all that is needed can be computed.
 *
 * Dinic: shortest augmenting paths in phases.  A banned value hangs on the source directly, so a
 * path never needs to go through one: in layered models paths stay inside a layer, the number of
 * phases does not grow with the depth, and time is near linear. */
typedef struct {
  uint32_t to;
  uint64_t cap; /* residual; the reverse arc is the neighbour (index ^ 1) */
} arc;

typedef struct {
  size_t n;       /* nodes: v_in = 2v, v_out = 2v + 1, source = 2 values, sink = source + 1 */
  uint32_t *arc0; /* [n + 1] into list */
  uint32_t *list; /* arcs of a node */
  VEC(arc) arcs;
  uint32_t *level, *cursor, *queue; /* [n] */
  uint32_t *path;                   /* [n] arcs of the path being built */
  uint32_t source, sink;
} network;

/* Finite capacities sum to less than half of this, so an uncuttable arc keeps more than half. */
#define UNCUTTABLE (UINT64_MAX / 4)

static void network_free(network *w) {
  mem_free(w->arc0);
  mem_free(w->list);
  vec_free(&w->arcs);
  mem_free(w->level);
  mem_free(w->cursor);
  mem_free(w->queue);
  mem_free(w->path);
}

static bool add_arc(network *w, uint32_t from, uint32_t to, uint64_t cap) {
  return vec_push(&w->arcs, ((arc){to, cap})) && vec_push(&w->arcs, ((arc){from, 0}));
}

static hp_status check_graph(const mincut_graph *g) {
  uint64_t total = 0;
  if (g->n >= (size_t)1 << 30) HP_FAIL(HP_ERR_ARG, "%zu values are too many for a cut", g->n);
  for (size_t v = 0; v < g->n; v++) {
    if (__builtin_add_overflow(total, g->bytes[v], &total) || total >= UNCUTTABLE / 2)
      HP_FAIL(HP_ERR_ARG, "value %zu has %llu bytes: the sum of all values passes 2^61", v,
              (unsigned long long)g->bytes[v]);
    if (g->in0[v + 1] < g->in0[v] || (v == 0 && g->in0[0] != 0))
      HP_FAIL(HP_ERR_ARG, "inputs of value %zu go from %u to %u", v, g->in0[v], g->in0[v + 1]);
    for (uint32_t k = g->in0[v]; k < g->in0[v + 1]; k++)
      if (g->in[k] >= v)
        HP_FAIL(HP_ERR_ARG, "value %zu is computed from value %u, which does not come before it", v,
                g->in[k]);
  }
  return HP_OK;
}

/* A value with no inputs exists from the start, independent of its flags. */
static bool is_source(const mincut_graph *g, size_t v) {
  return (g->flags[v] & MINCUT_BANNED) || g->in0[v] == g->in0[v + 1];
}

static bool add_arcs(const mincut_graph *g, network *w) {
  bool ok = true;
  for (uint32_t v = 0; v < g->n && ok; v++) {
    uint32_t in = 2 * v, out = in + 1;
    ok = add_arc(w, in, out, g->flags[v] & MINCUT_NOSAVE ? UNCUTTABLE : g->bytes[v]);
    if (is_source(g, v)) {
      ok = ok && add_arc(w, w->source, in, UNCUTTABLE);
    } else {
      for (uint32_t k = g->in0[v]; k < g->in0[v + 1] && ok; k++)
        ok = add_arc(w, 2 * g->in[k] + 1, in, UNCUTTABLE);
    }
    if (g->flags[v] & MINCUT_NEEDED) ok = ok && add_arc(w, out, w->sink, UNCUTTABLE);
  }
  return ok;
}

static hp_status build_network(const mincut_graph *g, network *w) {
  w->n = 2 * g->n + 2;
  w->source = (uint32_t)(2 * g->n);
  w->sink = w->source + 1;
  if (!add_arcs(g, w)) return HP_ERR_OOM;
  w->arc0 = mem_calloc(w->n + 1, sizeof *w->arc0);
  w->list = mem_calloc(w->arcs.len, sizeof *w->list);
  w->level = mem_calloc(w->n, sizeof *w->level);
  w->cursor = mem_calloc(w->n, sizeof *w->cursor);
  w->queue = mem_calloc(w->n, sizeof *w->queue);
  w->path = mem_calloc(w->n, sizeof *w->path);
  if (!w->arc0 || !w->list || !w->level || !w->cursor || !w->queue || !w->path) return HP_ERR_OOM;
  if (w->arcs.len > UINT32_MAX) HP_FAIL(HP_ERR_ARG, "%zu arcs are too many for a cut", w->arcs.len);
  for (size_t a = 0; a < w->arcs.len; a++) w->arc0[w->arcs.at[a ^ 1].to + 1]++;
  for (size_t i = 0; i < w->n; i++) w->arc0[i + 1] += w->arc0[i];
  for (size_t i = 0; i < w->n; i++) w->cursor[i] = w->arc0[i];
  for (size_t a = 0; a < w->arcs.len; a++) w->list[w->cursor[w->arcs.at[a ^ 1].to]++] = (uint32_t)a;
  return HP_OK;
}

/* level[] = 1 + distance to the sink over arcs with capacity left; 0 = the sink is out of reach.
 * Going backwards, the last search marks exactly the sink's side of the cut nearest to it. */
static bool find_levels(network *w) {
  memset(w->level, 0, w->n * sizeof *w->level);
  size_t head = 0, tail = 0;
  w->level[w->sink] = 1;
  w->queue[tail++] = w->sink;
  while (head < tail) {
    uint32_t x = w->queue[head++];
    for (uint32_t k = w->arc0[x]; k < w->arc0[x + 1]; k++) {
      uint32_t a = w->list[k], y = w->arcs.at[a].to; /* y -> x is the neighbour of a */
      if (w->level[y] || !w->arcs.at[a ^ 1].cap) continue;
      w->level[y] = w->level[x] + 1;
      w->queue[tail++] = y;
    }
  }
  return w->level[w->source] != 0;
}

/* Saturates one arc of the path and shortens the path to before it; false if no arc of it can be
 * cut. */
static bool augment_path(network *w, size_t *len) {
  uint64_t least = UNCUTTABLE;
  for (size_t i = 0; i < *len; i++)
    if (w->arcs.at[w->path[i]].cap < least) least = w->arcs.at[w->path[i]].cap;
  if (least >= UNCUTTABLE / 2) return false;
  size_t keep = *len;
  for (size_t i = *len; i-- > 0;) {
    uint32_t a = w->path[i];
    w->arcs.at[a].cap -= least;
    w->arcs.at[a ^ 1].cap += least;
    if (!w->arcs.at[a].cap) keep = i;
  }
  *len = keep;
  return true;
}

/* One phase: all shortest paths, found by depth-first search without recursion.  Each arc is
 * abandoned at most once.  On failure *stuck is the needed value of a path that cannot be cut. */
static bool find_blocking_flow(network *w, uint32_t *stuck) {
  for (size_t i = 0; i < w->n; i++) w->cursor[i] = w->arc0[i];
  size_t len = 0;
  for (;;) {
    uint32_t x = len ? w->arcs.at[w->path[len - 1]].to : w->source;
    if (x == w->sink) {
      *stuck = w->arcs.at[w->path[len - 1] ^ 1].to / 2;
      if (!augment_path(w, &len)) return false;
      continue;
    }
    while (w->cursor[x] < w->arc0[x + 1]) {
      uint32_t a = w->list[w->cursor[x]];
      if (w->arcs.at[a].cap && w->level[w->arcs.at[a].to] + 1 == w->level[x]) break;
      w->cursor[x]++;
    }
    if (w->cursor[x] < w->arc0[x + 1]) {
      w->path[len++] = w->list[w->cursor[x]];
    } else if (len) {
      len--;
      w->cursor[w->arcs.at[w->path[len] ^ 1].to]++;
    } else {
      return true;
    }
  }
}

/* Reads the cut from the last levels: goes backwards from the backward's needs; a value whose
 * in-node is on the source's side is saved, one on the sink's side is recomputed from its
 * inputs. */
static void read_cut(const mincut_graph *g, network *w, bool *save, bool *again,
                     mincut_summary *out) {
  mincut_summary s = {0};
  uint32_t *stack = w->queue;
  size_t len = 0;
  memset(save, 0, g->n * sizeof *save);
  memset(again, 0, g->n * sizeof *again);
  for (uint32_t v = 0; v < g->n; v++)
    if (g->flags[v] & MINCUT_NEEDED) stack[len++] = v, again[v] = true;
  while (len) {
    uint32_t v = stack[--len];
    if (!w->level[2 * v]) {
      again[v] = false;
      save[v] = true;
      s.saved++;
      s.saved_bytes += g->bytes[v];
      continue;
    }
    s.recomputed++;
    for (uint32_t k = g->in0[v]; k < g->in0[v + 1]; k++)
      if (!save[g->in[k]] && !again[g->in[k]]) stack[len++] = g->in[k], again[g->in[k]] = true;
  }
  *out = s;
}

hp_status mincut_choose(const mincut_graph *g, bool *save, bool *recompute, mincut_summary *out) {
  HP_TRY(check_graph(g));
  network w = {0};
  uint32_t stuck;
  hp_status st;
  HP_TRY_GOTO(build_network(g, &w), st);
  while (find_levels(&w))
    if (!find_blocking_flow(&w, &stuck))
      HP_FAIL_GOTO(st, HP_ERR_ARG,
                   "value %u is needed by the backward pass but can be neither saved nor computed "
                   "again; allow one of the two on the way to it",
                   stuck);
  read_cut(g, &w, save, recompute, out);
done:
  network_free(&w);
  return st;
}
