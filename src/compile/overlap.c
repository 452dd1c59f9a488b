#include "compile/overlap.h"

#include "compile/order.h"
#include "compile/streams.h"
#include "sim/predict.h"

#include <string.h>

typedef struct {
  program *p;
  const overlap_options *o;
  order_problem q;
  bool *given;    /* by buffer: what it holds depends on inputs of the run */
  uint32_t *last; /* by instruction: the last that reads what it makes, or what is made of that
                     without inputs of the run; itself when there is none */
} overlap;

static bool is_rendezvous(const prog_inst *n) { return op_flags((op_id)n->op) & OPF_RENDEZVOUS; }

static uint32_t root_at(const program *p, const prog_inst *n, int k) {
  return p->buffers.at[program_args(p, n)[k]].root;
}

/* --- prefetch -----------------------------------------------------------------------------------
 *
 * What is gathered of params alone could be gathered at once.  It may be ahead of its use by so
 * many bytes: a gather waits for the last use of the one that is so far before it. */

/* Instructions whose operands depend on inputs of the run get last[i] = i, the others the last use
 * of what they make. */
static void find_last_uses(overlap *w) {
  const program *p = w->p;
  for (size_t b = 0; b < p->buffers.len; b++) w->given[b] = p->buffers.at[b].flags & BUFFER_INPUT;
  for (uint32_t i = 0; i < p->insts.len; i++) {
    const prog_inst *n = program_inst(p, i);
    bool given = false;
    for (int k = 0; k < n->n_in; k++) given |= w->given[root_at(p, n, k)];
    for (int k = n->n_in; k < n->n_in + n->n_out; k++) w->given[root_at(p, n, k)] |= given;
  }
  for (uint32_t i = (uint32_t)p->insts.len; i-- > 0;) {
    const prog_inst *n = program_inst(p, i);
    w->last[i] = i;
    for (int k = n->n_in; k < n->n_in + n->n_out; k++) {
      uint32_t b = root_at(p, n, k), v = w->q.value_of[b];
      if (w->given[b] || v == PROG_NONE) continue;
      for (uint32_t u = w->q.use0[v]; u < w->q.use0[v + 1]; u++)
        if (w->last[w->q.use[u]] > w->last[i]) w->last[i] = w->last[w->q.use[u]];
    }
  }
}

static bool is_prefetch(const overlap *w, const prog_inst *n) {
  return n->op == OP_ALL_GATHER && !w->given[root_at(w->p, n, 1)];
}

static uint64_t result_bytes(const overlap *w, const prog_inst *n) {
  return program_arg(w->p, n, 1)->bytes;
}

/* The gathers of the largest block, in one phase, and the largest gather. */
static uint64_t usual_window(const overlap *w) {
  uint64_t block = 0, most = 0, largest = 0;
  const prog_inst *before = NULL;
  for (size_t i = 0; i < w->p->insts.len; i++) {
    const prog_inst *n = program_inst(w->p, i);
    if (!is_prefetch(w, n)) continue;
    bool same = before && n->block && before->block == n->block && before->phase == n->phase;
    block = same ? block + result_bytes(w, n) : result_bytes(w, n);
    if (n->block && block > most) most = block;
    if (result_bytes(w, n) > largest) largest = result_bytes(w, n);
    before = n;
  }
  return most + largest;
}

/* Gathers in a row of at most `window` bytes together are under way or wait for their use.  They
 * keep the order in which they stand, so that what one waits for holds for those behind it too. */
static hp_status bound_prefetch(overlap *w) {
  uint64_t window = w->o->prefetch ? w->o->prefetch : usual_window(w), held = 0;
  uint32_t *row = mem_calloc(w->q.n, sizeof *row), first = 0, end = 0;
  hp_status st = row ? HP_OK : HP_ERR_OOM;
  for (uint32_t i = 0; !st && i < w->q.n; i++) {
    const prog_inst *n = program_inst(w->p, i);
    if (!is_prefetch(w, n)) continue;
    if (end) st = order_after(&w->q, row[end - 1], i);
    row[end++] = i;
    for (held += result_bytes(w, n); !st && held > window && first < end - 1; first++) {
      held -= result_bytes(w, program_inst(w->p, row[first]));
      if (w->last[row[first]] < i) st = order_after(&w->q, w->last[row[first]], i);
    }
  }
  mem_free(row);
  return st;
}

/* --- the order -------------------------------------------------------------------------------- */

/* Bytes that the order may take: without a limit, what the instructions need in the order in which
 * they stand and a quarter more, and the gathers ahead of their use. */
static hp_status memory_cap(overlap *w, uint64_t *cap) {
  list_schedule s = {0};
  uint64_t needed = 0;
  *cap = w->o->limit;
  if (*cap) return HP_OK;
  HP_TRY(order_schedule(&w->q, w->o->workspace, 0, true, &s, &needed));
  list_schedule_free(&s);
  *cap = needed + needed / 4 + (w->o->prefetch ? w->o->prefetch : usual_window(w));
  return HP_OK;
}

/* Puts the instructions in the order found; what it needs beside data becomes waits. */
static hp_status apply(overlap *w, const list_schedule *s) {
  uint32_t *place = mem_calloc(w->q.n, sizeof *place);
  HP_TRY_MEM(place);
  hp_status st = HP_OK;
  for (size_t k = 0; !st && k < s->n_edges; k++)
    st = order_after(&w->q, s->edge[k].before, s->edge[k].after);
  for (uint32_t i = 0; i < w->q.n; i++) place[s->order[i]] = i;
  for (size_t k = 0; k < w->q.edges.len; k++)
    w->q.edges.at[k] = (list_edge){place[w->q.edges.at[k].before], place[w->q.edges.at[k].after]};
  mem_free(place);
  if (!st) st = order_apply(w->p, NULL, s->order);
  return st ? st : place_waits(w->p, w->q.edges.at, w->q.edges.len);
}

/* *fits: an order below the limit was found. */
static hp_status schedule(overlap *w, bool *fits) {
  list_schedule s = {0};
  uint64_t cap, needed = 0;
  w->given = mem_calloc(w->p->buffers.len, sizeof *w->given);
  w->last = mem_calloc(w->p->insts.len, sizeof *w->last);
  if (!w->given || !w->last) return HP_ERR_OOM;
  for (size_t i = 0; i < w->q.n; i++)
    w->q.duration[i] = predict_inst(w->o->cluster, w->o->mesh, w->p, program_inst(w->p, i));
  find_last_uses(w);
  HP_TRY(memory_cap(w, &cap));
  HP_TRY(bound_prefetch(w));
  hp_status st = order_schedule(&w->q, w->o->workspace, cap, false, &s, &needed);
  *fits = st != HP_ERR_OOM || needed <= cap;
  if (!st) st = apply(w, &s);
  list_schedule_free(&s);
  return st;
}

bool overlap_is(const program *p) {
  for (size_t i = 0; i < p->insts.len; i++)
    if (p->insts.at[i].stream == STREAM_COMM) return true;
  return false;
}

static bool set_collective_stream(program *p, uint8_t stream) {
  bool any = false;
  for (size_t i = 0; i < p->insts.len; i++) {
    if (!is_rendezvous(program_inst(p, i))) continue;
    p->insts.at[i].stream = stream;
    any = true;
  }
  return any;
}

void overlap_undo(program *p) { set_collective_stream(p, STREAM_COMPUTE); }

hp_status overlap_schedule(program *p, const overlap_options *o) {
  overlap w = {.p = p, .o = o};
  bool fits = true;
  if (!set_collective_stream(p, STREAM_COMM)) return place_waits(p, NULL, 0);
  hp_status st = order_build(p, &w.q);
  if (!st) st = schedule(&w, &fits);
  order_free(&w.q);
  mem_free(w.given);
  mem_free(w.last);
  if (fits) return st;
  err_clear();
  overlap_undo(p);
  return place_waits(p, NULL, 0);
}
