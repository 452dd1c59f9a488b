#include "compile/order.h"

#include "compile/inplace.h"

#include <string.h>

void order_free(order_problem *q) {
  mem_free(q->value_of);
  mem_free(q->duration);
  mem_free(q->stream);
  mem_free(q->keep);
  mem_free(q->filled);
  mem_free(q->given);
  mem_free(q->bytes);
  mem_free(q->tier);
  mem_free(q->def);
  mem_free(q->use0);
  mem_free(q->use);
  mem_free(q->dep0);
  mem_free(q->dep);
  vec_free(&q->edges);
}

static uint32_t root_of(const program *p, uint32_t b) { return p->buffers.at[b].root; }

/* --- values -----------------------------------------------------------------------------------
 *
 * A result that overwrites an operand in every order continues the operand's value: the operand
 * must have no other reader. */

/* By buffer: how many instructions touch it, and the last of them. */
typedef struct {
  uint32_t *touches, *last;
} touching;

static void count_touches(const program *p, touching *t) {
  for (uint32_t i = 0; i < p->insts.len; i++) {
    const prog_inst *n = program_inst(p, i);
    for (int k = 0; k < n->n_in + n->n_out; k++) {
      uint32_t b = root_of(p, program_args(p, n)[k]);
      if (t->touches[b] && t->last[b] == i) continue;
      t->touches[b]++;
      t->last[b] = i;
    }
  }
}

static bool is_overwritten(const program *p, const touching *t, uint32_t i, int k, int o) {
  const prog_inst *n = program_inst(p, i);
  uint32_t a = program_args(p, n)[k], b = program_args(p, n)[n->n_in + o];
  const prog_buffer *in = &p->buffers.at[a], *out = &p->buffers.at[b];
  bool whole = in->root == a && out->root == b && in->bytes == out->bytes && in->tier == out->tier;
  if (!whole || in->place != PLACE_WORK || out->place != PLACE_WORK || a == b) return false;
  if (in->flags & BUFFER_OUTPUT || t->last[a] != i) return false;
  if (t->touches[a] != (in->flags & BUFFER_INPUT ? 1 : 2)) return false;
  for (int j = 0; j < n->n_in; j++)
    if (j != k && root_of(p, program_args(p, n)[j]) == a) return false;
  return inplace_inst(p, n, k, o);
}

/* Results that continue the value of an operand, each operand's at most once. */
static hp_status join_values(order_problem *q) {
  const program *p = q->p;
  touching t = {mem_calloc(p->buffers.len, sizeof *t.touches),
                mem_calloc(p->buffers.len, sizeof *t.last)};
  hp_status st = t.touches && t.last ? HP_OK : HP_ERR_OOM;
  if (!st) count_touches(p, &t);
  for (uint32_t i = 0; !st && i < q->n; i++) {
    const prog_inst *n = program_inst(p, i);
    for (int o = 0; o < n->n_out; o++) {
      int k = 0;
      while (k < n->n_in && !is_overwritten(p, &t, i, k, o)) k++;
      if (k == n->n_in) continue;
      uint32_t a = program_args(p, n)[k], b = program_args(p, n)[n->n_in + o];
      q->keep[q->value_of[a]] |= q->keep[q->value_of[b]];
      q->bytes[q->value_of[b]] = 0;
      q->value_of[b] = q->value_of[a];
      t.touches[a] = 0; /* taken */
    }
  }
  mem_free(t.touches);
  mem_free(t.last);
  return st;
}

static void number_values(order_problem *q) {
  const program *p = q->p;
  for (uint32_t b = 0; b < p->buffers.len; b++) {
    const prog_buffer *f = &p->buffers.at[b];
    q->value_of[b] = PROG_NONE;
    if (f->place != PLACE_WORK || f->root != b || (f->flags & BUFFER_WORKSPACE)) continue;
    q->value_of[b] = (uint32_t)q->values;
    q->bytes[q->values] = f->bytes;
    q->tier[q->values] = f->tier;
    q->def[q->values] = LIST_INPUT;
    q->given[q->values] = (f->flags & BUFFER_INPUT) != 0;
    q->keep[q->values++] = (f->flags & BUFFER_OUTPUT) != 0;
  }
}

/* Is i the first instruction that writes to the value? */
static bool makes(const order_problem *q, uint32_t v, uint32_t i) {
  return !q->given[v] && (q->def[v] == LIST_INPUT || q->def[v] == i);
}

/* A work buffer is given, or made by the first instruction that writes to it: later ones write
 * the rest of it. */
static hp_status find_values(order_problem *q) {
  const program *p = q->p;
  q->value_of = mem_calloc(p->buffers.len, sizeof *q->value_of);
  q->bytes = mem_calloc(p->buffers.len, sizeof *q->bytes);
  q->tier = mem_calloc(p->buffers.len, 1);
  q->def = mem_calloc(p->buffers.len, sizeof *q->def);
  q->keep = mem_calloc(p->buffers.len, 1);
  q->filled = mem_calloc(p->buffers.len, 1);
  q->given = mem_calloc(p->buffers.len, sizeof *q->given);
  q->use0 = mem_calloc(p->buffers.len + 2, sizeof *q->use0);
  q->use = mem_calloc(p->args.len + 1, sizeof *q->use);
  if (!q->value_of || !q->bytes || !q->tier || !q->def || !q->keep || !q->filled || !q->given ||
      !q->use0 || !q->use)
    return HP_ERR_OOM;
  number_values(q);
  HP_TRY(join_values(q));
  for (int fill = 0; fill < 2; fill++) {
    for (uint32_t i = 0; i < q->n; i++) {
      const prog_inst *n = program_inst(p, i);
      for (int k = 0; k < n->n_in + n->n_out; k++) {
        uint32_t v = q->value_of[root_of(p, program_args(p, n)[k])];
        if (v == PROG_NONE) continue;
        if (k >= n->n_in && makes(q, v, i)) q->def[v] = i;
        else if (fill) q->use[q->use0[v + 1]++] = i;
        else q->use0[v + 2]++;
        q->filled[v] |= k >= n->n_in && q->def[v] != i;
      }
    }
    for (size_t v = 0; !fill && v <= q->values; v++) q->use0[v + 1] += q->use0[v];
  }
  return HP_OK;
}

hp_status order_after(order_problem *q, uint32_t before, uint32_t after) {
  return vec_push(&q->edges, ((list_edge){before, after})) ? HP_OK : HP_ERR_OOM;
}

static hp_status add_edge(order_problem *q, uint32_t before_plus_one, uint32_t after) {
  if (!before_plus_one || before_plus_one - 1 == after) return HP_OK;
  return order_after(q, before_plus_one - 1, after);
}

/* The memory of an argument.  Two buffers that carry a value from run to run share it: the second
 * is written after all uses of the first. */
static uint32_t memory_of(const order_problem *q, uint32_t a) {
  uint32_t b = root_of(q->p, a), carries = q->p->buffers.at[b].carries;
  bool computed = carries && q->p->buffers.at[carries - 1].place == PLACE_WORK;
  return computed ? carries - 1 : b;
}

/* Must the order of writers and readers of b be kept?  For a tensor of the device, for a buffer
 * with several writers, and for a value that is carried. */
static bool keeps_order(const order_problem *q, uint32_t b) {
  const prog_buffer *f = &q->p->buffers.at[b];
  uint32_t v = q->value_of[b];
  return f->place == PLACE_STATE || f->carries || (v != PROG_NONE && q->filled[v]);
}

static hp_status find_edges(order_problem *q) {
  const program *p = q->p;
  uint32_t *writer = mem_calloc(p->buffers.len, sizeof *writer);
  uint32_t *reader = mem_calloc(p->buffers.len, sizeof *reader),
           *next = mem_calloc(p->args.len, sizeof *next),
           *user = mem_calloc(p->args.len, sizeof *user); /* by argument: its reader */
  hp_status st = writer && reader && next && user ? HP_OK : HP_ERR_OOM;
  for (uint32_t i = 0; !st && i < q->n; i++) {
    const prog_inst *n = program_inst(p, i);
    for (int k = 0; !st && k < n->n_in + n->n_out; k++) {
      uint32_t a = n->arg0 + (uint32_t)k, b = memory_of(q, p->args.at[a]);
      if (!keeps_order(q, b)) continue;
      st = add_edge(q, writer[b], i);
      if (k < n->n_in) { /* readers of b since the last write, as a list through `next` */
        user[a] = i;
        next[a] = reader[b];
        reader[b] = a + 1;
        continue;
      }
      for (uint32_t r = reader[b]; !st && r; r = next[r - 1]) st = add_edge(q, user[r - 1] + 1, i);
      reader[b] = 0;
      writer[b] = i + 1;
    }
  }
  mem_free(writer);
  mem_free(reader);
  mem_free(next);
  mem_free(user);
  return st;
}

static hp_status list_deps(order_problem *q) {
  mem_free(q->dep0);
  mem_free(q->dep);
  q->dep0 = mem_calloc(q->n + 2, sizeof *q->dep0);
  q->dep = mem_calloc(q->edges.len + 1, sizeof *q->dep);
  if (!q->dep0 || !q->dep) return HP_ERR_OOM;
  for (size_t i = 0; i < q->edges.len; i++) q->dep0[q->edges.at[i].after + 2]++;
  for (size_t i = 0; i < q->n; i++) q->dep0[i + 2] += q->dep0[i + 1];
  for (size_t i = 0; i < q->edges.len; i++)
    q->dep[q->dep0[q->edges.at[i].after + 1]++] = q->edges.at[i].before;
  return HP_OK;
}

hp_status order_list(order_problem *q) {
  for (size_t v = 0; v < q->values; v++)
    for (uint32_t u = q->use0[v]; u < q->use0[v + 1] && q->def[v] != LIST_INPUT; u++)
      HP_TRY(order_after(q, q->def[v], q->use[u]));
  return list_deps(q);
}

hp_status order_build(const program *p, order_problem *q) {
  *q = (order_problem){.p = p, .n = p->insts.len};
  q->duration = mem_calloc(q->n, sizeof *q->duration);
  q->stream = mem_calloc(q->n, 1);
  if (!q->duration || !q->stream) return HP_ERR_OOM;
  for (size_t i = 0; i < q->n; i++) q->stream[i] = p->insts.at[i].stream;
  HP_TRY(find_values(q));
  return find_edges(q);
}

_Static_assert((int)LIST_TIERS == (int)TIER_COUNT, "the scheduler's tiers are those of programs");

hp_status order_schedule(order_problem *q, const uint64_t *workspace,
                         const uint64_t cap[TIER_COUNT], bool keep_order, list_schedule *out,
                         uint64_t needed[TIER_COUNT]) {
  HP_TRY(list_deps(q));
  list_problem lp = {.n = q->n,
                     .streams = STREAM_COUNT,
                     .duration_s = q->duration,
                     .stream = q->stream,
                     .workspace = workspace,
                     .dep0 = q->dep0,
                     .dep = q->dep,
                     .n_values = q->values,
                     .bytes = q->bytes,
                     .tier = q->tier,
                     .def = q->def,
                     .use0 = q->use0,
                     .use = q->use,
                     .keep = q->keep,
                     .keep_order = keep_order};
  memcpy(lp.cap, cap, sizeof lp.cap);
  return list_schedule_make(&lp, out, needed);
}

hp_status order_apply(program *p, const uint32_t *order) {
  size_t n = p->insts.len;
  prog_inst *inst = mem_calloc(n, sizeof *inst);
  HP_TRY_MEM(inst);
  for (size_t i = 0; i < n; i++) inst[i] = p->insts.at[order[i]];
  if (n) memcpy(p->insts.at, inst, n * sizeof *inst);
  mem_free(inst);
  return HP_OK;
}
