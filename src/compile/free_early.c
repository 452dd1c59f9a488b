#include "compile/free_early.h"

#include "compile/order.h"

#include <stdlib.h>

typedef struct {
  const program *p;
  order_problem q;
  uint32_t *place; /* by instruction: itself, or the one that it moves up to */
} mover;

static uint32_t value_at(const mover *m, const prog_inst *n, int k) {
  return m->q.value_of[program_arg(m->p, n, k)->root];
}

/* Is i the only instruction left to read the value when all before it have run? */
static bool frees(const mover *m, uint32_t v, uint32_t i) {
  if (m->q.keep[v] || m->q.def[v] == i) return false;
  for (uint32_t u = m->q.use0[v]; u < m->q.use0[v + 1]; u++)
    if (m->q.use[u] > i) return false;
  return true;
}

/* Bytes that i frees less those that it takes; *after: the last of the other readers of the values
 * that it frees, which free nothing while these run. */
static int64_t gain(const mover *m, uint32_t i, uint32_t *after) {
  const prog_inst *n = program_inst(m->p, i);
  int64_t bytes = 0;
  for (int k = 0; k < n->n_in + n->n_out; k++) {
    uint32_t v = value_at(m, n, k);
    bool again = v == PROG_NONE;
    for (int j = 0; j < k && !again; j++) again = value_at(m, n, j) == v;
    if (again) continue;
    if (k >= n->n_in && m->q.def[v] == i) bytes -= (int64_t)m->q.bytes[v];
    if (k >= n->n_in || !frees(m, v, i)) continue;
    bytes += (int64_t)m->q.bytes[v];
    for (uint32_t u = m->q.use0[v]; u < m->q.use0[v + 1]; u++)
      if (m->q.use[u] != i && m->place[m->q.use[u]] > *after) *after = m->place[m->q.use[u]];
  }
  return bytes;
}

static bool has_buffer(const program *p, const prog_inst *n, int first, int end, uint8_t flag) {
  for (int k = first; k < end; k++)
    if (p->buffers.at[program_arg(p, n, k)->root].flags & flag) return true;
  return false;
}

/* An input may be what another stage of a pipeline makes of an output: what reads it stays behind
 * the outputs before it.  Places never come after the instruction itself, so those that stay keep
 * their conditions, and of those that move to one place the lower index goes first. */
static void find_places(mover *m) {
  uint32_t outputs = 0; /* the last place of an output so far */
  for (uint32_t i = 0; i < m->q.n; i++) {
    const prog_inst *n = program_inst(m->p, i);
    uint32_t after = has_buffer(m->p, n, 0, n->n_in, BUFFER_INPUT) ? outputs : 0;
    m->place[i] = i;
    if (gain(m, i, &after) > 0) {
      for (uint32_t k = m->q.dep0[i]; k < m->q.dep0[i + 1]; k++)
        if (m->place[m->q.dep[k]] > after) after = m->place[m->q.dep[k]];
      m->place[i] = after;
    }
    bool makes = has_buffer(m->p, n, n->n_in, n->n_in + n->n_out, BUFFER_OUTPUT);
    if (makes && m->place[i] > outputs) outputs = m->place[i];
  }
}

typedef struct {
  uint32_t place, index;
} placed;

static int by_place(const void *a, const void *b) {
  const placed *x = a, *y = b;
  if (x->place != y->place) return x->place < y->place ? -1 : 1;
  return x->index < y->index ? -1 : x->index > y->index;
}

static hp_status apply(mover *m) {
  placed *at = mem_calloc(m->q.n, sizeof *at);
  uint32_t *order = mem_calloc(m->q.n, sizeof *order);
  hp_status st = at && order ? HP_OK : HP_ERR_OOM;
  for (uint32_t i = 0; !st && i < m->q.n; i++) at[i] = (placed){m->place[i], i};
  if (!st) qsort(at, m->q.n, sizeof *at, by_place);
  for (uint32_t i = 0; !st && i < m->q.n; i++) order[i] = at[i].index;
  if (!st) st = order_apply((program *)m->p, order);
  mem_free(at);
  mem_free(order);
  return st;
}

hp_status free_early(program *p) {
  if (!program_has_rendezvous(p)) return HP_OK;
  mover m = {.p = p, .place = mem_calloc(p->insts.len, sizeof *m.place)};
  hp_status st = m.place ? order_build(p, &m.q) : HP_ERR_OOM;
  if (!st) st = order_list(&m.q);
  if (!st) find_places(&m);
  if (!st) st = apply(&m);
  order_free(&m.q);
  mem_free(m.place);
  return st;
}
