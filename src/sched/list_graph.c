#include "sched/list_graph.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

#define BYTES_MAX (UINT64_C(1) << 61) /* all values together: sums stay in an int64_t */

void list_graph_free(list_graph *g) {
  mem_free(g->read0);
  mem_free(g->read);
  mem_free(g->made0);
  mem_free(g->made);
  mem_free(g->reader0);
  mem_free(g->reader);
  mem_free(g->pred0);
  mem_free(g->pred);
  mem_free(g->succ0);
  mem_free(g->succ);
  for (int t = 0; t < LIST_TIERS; t++) mem_free(g->need[t]);
  mem_free(g->tail_s);
  mem_free(g->lead_s);
  mem_free(g->near_s);
  *g = (list_graph){0};
}

static hp_status check_rows(const char *what, const uint32_t *row0, size_t n) {
  if (row0[0] != 0) HP_FAIL(HP_ERR_ARG, "%s 0 start at %u, want 0", what, row0[0]);
  for (size_t i = 0; i < n; i++)
    if (row0[i + 1] < row0[i])
      HP_FAIL(HP_ERR_ARG, "%s %zu end at %u, before their start %u", what, i, row0[i + 1], row0[i]);
  return HP_OK;
}

static hp_status check_nodes(const list_problem *p) {
  for (size_t i = 0; i < p->n; i++) {
    if (p->stream[i] >= p->streams)
      HP_FAIL(HP_ERR_ARG, "node %zu is on stream %u; there are streams 0..%u", i, p->stream[i],
              p->streams - 1);
    if (!isfinite(p->duration_s[i]) || p->duration_s[i] < 0)
      HP_FAIL(HP_ERR_ARG, "node %zu takes %g seconds; expected a finite time of at least 0", i,
              p->duration_s[i]);
  }
  if (!p->dep0) return HP_OK;
  HP_TRY(check_rows("dependencies of node", p->dep0, p->n));
  for (size_t i = 0; i < p->n; i++)
    for (uint32_t k = p->dep0[i]; k < p->dep0[i + 1]; k++)
      if (p->dep[k] >= i)
        HP_FAIL(HP_ERR_ARG, "node %zu depends on node %u, which does not come before it", i,
                p->dep[k]);
  return HP_OK;
}

static hp_status check_values(const list_problem *p) {
  uint64_t total = 0;
  if (p->n_values) HP_TRY(check_rows("readers of value", p->use0, p->n_values));
  for (size_t v = 0; v < p->n_values; v++) {
    if (p->def[v] != LIST_INPUT && p->def[v] >= p->n)
      HP_FAIL(HP_ERR_ARG, "value %zu is made by node %u; there are %zu nodes", v, p->def[v], p->n);
    for (uint32_t k = p->use0[v]; k < p->use0[v + 1]; k++)
      if (p->use[k] >= p->n || (p->def[v] != LIST_INPUT && p->use[k] <= p->def[v]))
        HP_FAIL(HP_ERR_ARG,
                "value %zu, made by node %u, is read by node %u of %zu; readers come later", v,
                p->def[v], p->use[k], p->n);
    if (p->tier && p->tier[v] >= LIST_TIERS)
      HP_FAIL(HP_ERR_ARG, "value %zu is in tier %u; there are tiers 0..%d", v, p->tier[v],
              LIST_TIERS - 1);
    if (p->bytes[v] > BYTES_MAX || (total += p->bytes[v]) > BYTES_MAX)
      HP_FAIL(HP_ERR_ARG, "value %zu has %llu bytes: all values add up to more than 2^61", v,
              (unsigned long long)p->bytes[v]);
  }
  for (size_t i = 0; p->workspace && i < p->n; i++)
    if (p->workspace[i] > BYTES_MAX || (total += p->workspace[i]) > BYTES_MAX)
      HP_FAIL(HP_ERR_ARG, "node %zu needs %llu bytes of workspace: all add up to more than 2^61", i,
              (unsigned long long)p->workspace[i]);
  return HP_OK;
}

/* Counts become the starts of rows: count[i + 1] holds the count of row i on entry. */
static void to_starts(uint32_t *count, size_t n) {
  for (size_t i = 0; i < n; i++) count[i + 1] += count[i];
}

/* The same edges seen from the other end; rows come out ascending. */
static hp_status turn_around(const uint32_t *row0, const uint32_t *row, size_t n, size_t n_out,
                             uint32_t **out0, uint32_t **out) {
  *out0 = mem_calloc(n_out + 2, sizeof **out0);
  *out = mem_calloc(row0[n], sizeof **out);
  if (!*out0 || !*out) return HP_ERR_OOM;
  for (uint32_t k = 0; k < row0[n]; k++) (*out0)[row[k] + 2]++;
  to_starts(*out0 + 1, n_out);
  for (size_t i = 0; i < n; i++)
    for (uint32_t k = row0[i]; k < row0[i + 1]; k++) (*out)[(*out0)[row[k] + 1]++] = (uint32_t)i;
  return HP_OK;
}

/* reads[]: values of each node without repeats, and from them readers[]. */
static hp_status link_values(list_graph *g) {
  const list_problem *p = g->p;
  uint32_t none = 0, total = p->n_values ? p->use0[p->n_values] : 0;
  HP_TRY(
      turn_around(p->n_values ? p->use0 : &none, p->use, p->n_values, p->n, &g->read0, &g->read));
  uint32_t len = 0, start = 0;
  for (size_t i = 0; i < p->n && total; i++) { /* a row is ascending: repeats are neighbours */
    uint32_t end = g->read0[i + 1], first = len;
    for (uint32_t k = start; k < end; k++)
      if (len == first || g->read[len - 1] != g->read[k]) g->read[len++] = g->read[k];
    start = end;
    g->read0[i + 1] = len;
  }
  HP_TRY(turn_around(g->read0, g->read, p->n, p->n_values, &g->reader0, &g->reader));
  g->made0 = mem_calloc(p->n + 2, sizeof *g->made0);
  g->made = mem_calloc(p->n_values, sizeof *g->made);
  if (!g->made0 || !g->made) return HP_ERR_OOM;
  for (size_t v = 0; v < p->n_values; v++)
    if (p->def[v] != LIST_INPUT) g->made0[p->def[v] + 2]++;
  to_starts(g->made0 + 1, p->n);
  for (size_t v = 0; v < p->n_values; v++)
    if (p->def[v] != LIST_INPUT) g->made[g->made0[p->def[v] + 1]++] = (uint32_t)v;
  return HP_OK;
}

static hp_status link_nodes(list_graph *g) {
  const list_problem *p = g->p;
  size_t most = (size_t)g->read0[p->n] + (p->dep0 ? p->dep0[p->n] : 0);
  if (most >= UINT32_MAX) HP_FAIL(HP_ERR_ARG, "%zu edges between nodes are too many", most);
  g->pred0 = mem_calloc(p->n + 1, sizeof *g->pred0);
  g->pred = mem_calloc(most, sizeof *g->pred);
  if (!g->pred0 || !g->pred) return HP_ERR_OOM;
  uint32_t len = 0;
  for (size_t i = 0; i < p->n; i++) {
    for (uint32_t k = g->read0[i]; k < g->read0[i + 1]; k++)
      if (p->def[g->read[k]] != LIST_INPUT) g->pred[len++] = p->def[g->read[k]];
    for (uint32_t k = p->dep0 ? p->dep0[i] : 0; p->dep0 && k < p->dep0[i + 1]; k++)
      g->pred[len++] = p->dep[k];
    g->pred0[i + 1] = len;
  }
  return turn_around(g->pred0, g->pred, p->n, p->n, &g->succ0, &g->succ);
}

static hp_status count_needs(list_graph *g) {
  const list_problem *p = g->p;
  for (int t = 0; t < LIST_TIERS; t++) {
    g->need[t] = mem_calloc(p->n, sizeof *g->need[t]);
    HP_TRY_MEM(g->need[t]);
  }
  for (size_t i = 0; p->workspace && i < p->n; i++) g->need[0][i] = p->workspace[i];
  for (uint32_t v = 0; v < p->n_values; v++)
    if (p->def[v] != LIST_INPUT) g->need[list_tier(g, v)][p->def[v]] += p->bytes[v];
  return HP_OK;
}

static hp_status find_paths(list_graph *g) {
  const list_problem *p = g->p;
  g->tail_s = mem_calloc(p->n, sizeof *g->tail_s);
  g->lead_s = mem_calloc(p->n, sizeof *g->lead_s);
  g->near_s = mem_calloc(p->n, sizeof *g->near_s);
  if (!g->tail_s || !g->lead_s || !g->near_s) return HP_ERR_OOM;
  for (size_t i = p->n; i-- > 0;) {
    for (uint32_t k = g->succ0[i]; k < g->succ0[i + 1]; k++) {
      uint32_t x = g->succ[k];
      bool same = p->stream[x] == p->stream[i];
      double lead = same ? g->lead_s[x] : g->tail_s[x];
      if (g->tail_s[x] > g->tail_s[i]) g->tail_s[i] = g->tail_s[x];
      if (lead <= g->lead_s[i]) continue;
      g->lead_s[i] = lead;
      g->near_s[i] = same ? g->near_s[x] : 0;
    }
    g->tail_s[i] += p->duration_s[i];
    g->near_s[i] += p->duration_s[i];
  }
  return HP_OK;
}

hp_status list_graph_build(const list_problem *p, list_graph *out) {
  list_graph g = {.p = p};
  hp_status st;
  if (p->streams < 1 || p->streams > LIST_STREAMS)
    HP_FAIL(HP_ERR_ARG, "%u streams: 1 to %d are possible", p->streams, LIST_STREAMS);
  if (p->n >= (size_t)1 << 30 || p->n_values >= (size_t)1 << 30)
    HP_FAIL(HP_ERR_ARG, "%zu nodes and %zu values are too many", p->n, p->n_values);
  HP_TRY(check_nodes(p));
  HP_TRY(check_values(p));
  HP_TRY_GOTO(link_values(&g), st);
  HP_TRY_GOTO(link_nodes(&g), st);
  HP_TRY_GOTO(count_needs(&g), st);
  HP_TRY_GOTO(find_paths(&g), st);
  *out = g;
  return HP_OK;
done:
  list_graph_free(&g);
  return st;
}

void list_bytes_at_start(const list_graph *g, uint64_t bytes[LIST_TIERS]) {
  memset(bytes, 0, LIST_TIERS * sizeof *bytes);
  for (uint32_t v = 0; v < g->p->n_values; v++)
    if (g->p->def[v] == LIST_INPUT && list_is_held(g, v)) bytes[list_tier(g, v)] += g->p->bytes[v];
}

void list_order_peak(const list_graph *g, const uint32_t *order, uint32_t *left,
                     uint64_t peak[LIST_TIERS]) {
  const list_problem *p = g->p;
  uint64_t now[LIST_TIERS];
  list_bytes_at_start(g, now);
  memcpy(peak, now, sizeof now);
  for (uint32_t v = 0; v < p->n_values; v++) left[v] = g->reader0[v + 1] - g->reader0[v];
  for (size_t i = 0; i < p->n; i++) {
    uint32_t x = order[i];
    for (int t = 0; t < LIST_TIERS; t++)
      if (now[t] + g->need[t][x] > peak[t]) peak[t] = now[t] + g->need[t][x];
    for (uint32_t k = g->made0[x]; k < g->made0[x + 1]; k++) {
      uint32_t v = g->made[k];
      if (list_is_held(g, v)) now[list_tier(g, v)] += p->bytes[v];
    }
    for (uint32_t k = g->read0[x]; k < g->read0[x + 1]; k++) {
      uint32_t v = g->read[k];
      if (!--left[v] && !list_is_kept(g, v)) now[list_tier(g, v)] -= p->bytes[v];
    }
  }
}

/* Ready nodes in a tree of maxima by index: the best one, and a change of one, in O(log n). */
typedef struct {
  const list_graph *g;
  int64_t *gain; /* [n] bytes that a node frees minus those that it adds */
  int64_t *most; /* [2 * leaves] gain of ready nodes, INT64_MIN for others */
  uint32_t leaves;
  uint32_t *left;   /* [n_values] readers to come */
  uint64_t *sum;    /* [n_values] sum of their numbers: the number itself when one is left */
  uint32_t *before; /* [n] predecessors to come */
  bool *ready;      /* [n] */
} minimum_memory;

static void show(minimum_memory *f, uint32_t i) {
  uint32_t node = f->leaves + i;
  f->most[node] = f->ready[i] ? f->gain[i] : INT64_MIN;
  for (node /= 2; node; node /= 2) {
    int64_t a = f->most[2 * node], b = f->most[2 * node + 1];
    f->most[node] = a > b ? a : b;
  }
}

static void free_minimum_memory(minimum_memory *f) {
  mem_free(f->gain);
  mem_free(f->most);
  mem_free(f->left);
  mem_free(f->sum);
  mem_free(f->before);
  mem_free(f->ready);
}

/* Bytes of v in tiers with a cap. */
static int64_t counted(const list_graph *g, uint32_t v) {
  return g->p->cap[list_tier(g, v)] ? (int64_t)g->p->bytes[v] : 0;
}

/* One reader of v is left: running it will free v. */
static void last_reader(minimum_memory *f, uint32_t v) {
  uint32_t x = (uint32_t)f->sum[v];
  if (list_is_kept(f->g, v)) return;
  f->gain[x] += counted(f->g, v);
  if (f->ready[x]) show(f, x);
}

static hp_status start_minimum_memory(const list_graph *g, minimum_memory *f) {
  size_t n = g->p->n, n_values = g->p->n_values;
  f->g = g;
  f->leaves = 1;
  while (f->leaves < n) f->leaves *= 2;
  f->gain = mem_calloc(n, sizeof *f->gain);
  f->most = mem_calloc(2 * (size_t)f->leaves, sizeof *f->most);
  f->left = mem_calloc(n_values, sizeof *f->left);
  f->sum = mem_calloc(n_values, sizeof *f->sum);
  f->before = mem_calloc(n, sizeof *f->before);
  f->ready = mem_calloc(n, sizeof *f->ready);
  if (!f->gain || !f->most || !f->left || !f->sum || !f->before || !f->ready) return HP_ERR_OOM;
  for (size_t i = 0; i < 2 * (size_t)f->leaves; i++) f->most[i] = INT64_MIN;
  for (uint32_t v = 0; v < n_values; v++) {
    for (uint32_t k = g->reader0[v]; k < g->reader0[v + 1]; k++) f->sum[v] += g->reader[k];
    f->left[v] = g->reader0[v + 1] - g->reader0[v];
    if (f->left[v] == 1) last_reader(f, v);
    if (g->p->def[v] != LIST_INPUT && list_is_held(g, v)) f->gain[g->p->def[v]] -= counted(g, v);
  }
  for (uint32_t i = 0; i < n; i++) {
    f->before[i] = g->pred0[i + 1] - g->pred0[i];
    f->ready[i] = !f->before[i];
    if (f->ready[i]) show(f, i);
  }
  return HP_OK;
}

hp_status list_minimum_memory_order(const list_graph *g, uint32_t *order) {
  minimum_memory f = {0};
  hp_status st = start_minimum_memory(g, &f);
  for (size_t done = 0; !st && done < g->p->n; done++) {
    uint32_t x = 1;
    while (x < f.leaves) x = 2 * x + (f.most[2 * x] < f.most[2 * x + 1]);
    x -= f.leaves;
    order[done] = x;
    f.ready[x] = false;
    show(&f, x);
    for (uint32_t k = g->read0[x]; k < g->read0[x + 1]; k++) {
      uint32_t v = g->read[k];
      f.sum[v] -= x;
      if (--f.left[v] == 1) last_reader(&f, v);
    }
    for (uint32_t k = g->succ0[x]; k < g->succ0[x + 1]; k++)
      if (!--f.before[g->succ[k]]) {
        f.ready[g->succ[k]] = true;
        show(&f, g->succ[k]);
      }
  }
  free_minimum_memory(&f);
  return st;
}
