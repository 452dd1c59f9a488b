#include "rt/value_chain.h"

#include "base/tier.h"
#include "sim/predict.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
  const program *p;
  const inst_times *t;
  value_chains *c;
  uint32_t *parent;  /* by root buffer: of the same value; itself: it describes the value */
  uint32_t *stay_of; /* by root buffer: number in the stays of its value */
} maker;

static bool is_copy(const prog_inst *n) { return op_flags((op_id)n->op) & OPF_MOVE; }

/* --- values -------------------------------------------------------------------------------------
 */

static uint32_t find(uint32_t *parent, uint32_t b) {
  while (parent[b] != b) b = parent[b] = parent[parent[b]];
  return b;
}

/* Describes a value better: a named tensor, then an input or output, then what is on the device. */
static int rank_of(const program *p, uint32_t b) {
  const prog_buffer *f = &p->buffers.at[b];
  if (f->place == PLACE_STATE) return 3;
  if (f->name) return 2;
  return f->tier == TIER_DEVICE;
}

static void join(maker *m, uint32_t a, uint32_t b) {
  a = find(m->parent, a);
  b = find(m->parent, b);
  int x = rank_of(m->p, a), y = rank_of(m->p, b);
  if (x > y || (x == y && a < b)) m->parent[b] = a;
  else m->parent[a] = b;
}

static void join_all(maker *m) {
  const program *p = m->p;
  for (uint32_t b = 0; b < p->buffers.len; b++) m->parent[b] = b;
  for (uint32_t b = 0; b < p->buffers.len; b++) {
    const prog_buffer *f = &p->buffers.at[b];
    if (f->root == b && f->carries) join(m, b, p->buffers.at[f->carries - 1].root);
  }
  for (size_t i = 0; i < p->insts.len; i++) {
    const prog_inst *n = program_inst(p, i);
    if (is_copy(n)) join(m, program_arg(p, n, 0)->root, program_arg(p, n, n->n_in)->root);
  }
}

static uint32_t value_of(const maker *m, uint32_t buffer) {
  return m->c->value_of[m->p->buffers.at[buffer].root];
}

/* Numbers the values that an instruction touches, and counts the room for their touches. */
static hp_status number_values(maker *m) {
  const program *p = m->p;
  value_chains *c = m->c;
  uint32_t touches = 0;
  for (size_t b = 0; b < p->buffers.len; b++) c->value_of[b] = PROG_NONE;
  for (size_t i = 0; i < p->insts.len; i++) {
    const prog_inst *n = program_inst(p, i);
    for (int k = 0; k < n->n_in + n->n_out; k++) {
      uint32_t b = find(m->parent, program_arg(p, n, k)->root);
      if (c->value_of[b] == PROG_NONE) {
        c->value[c->values] = (value_chain){.buffer = b, .make_s = -1};
        c->value_of[b] = (uint32_t)c->values++;
      }
      c->value[c->value_of[b]].touches++;
    }
  }
  for (size_t b = 0; b < p->buffers.len; b++) {
    const prog_buffer *f = &p->buffers.at[b];
    uint32_t v = f->root == b ? c->value_of[find(m->parent, (uint32_t)b)] : PROG_NONE;
    c->value_of[b] = v;
    if (v == PROG_NONE) continue;
    value_chain *value = &c->value[v];
    value->stays += f->tier == TIER_DEVICE;
    if (f->tier > value->tier) value->tier = f->tier;
    value->is_io |= (f->flags & (BUFFER_INPUT | BUFFER_OUTPUT)) != 0;
    value->is_state |= f->place == PLACE_STATE;
  }
  uint32_t stays = 0;
  for (size_t v = 0; v < c->values; v++) {
    value_chain *value = &c->value[v];
    value->touch0 = touches;
    value->stay0 = stays;
    touches += value->touches;
    stays += value->stays;
    value->touches = value->stays = 0;
  }
  c->touch = mem_calloc(touches, sizeof *c->touch);
  c->stay = mem_calloc(stays, sizeof *c->stay);
  return c->touch && c->stay ? HP_OK : HP_ERR_OOM;
}

/* --- stays --------------------------------------------------------------------------------------
 */

static chain_stay *stay_at(const value_chains *c, const value_chain *v, uint32_t number) {
  return &c->stay[v->stay0 + number];
}

static void begin_stay(maker *m, uint32_t b, double start_s) {
  const prog_buffer *f = &m->p->buffers.at[b];
  value_chain *v = &m->c->value[m->c->value_of[b]];
  bool is_home = f->place == PLACE_STATE;
  m->stay_of[b] = v->stays;
  *stay_at(m->c, v, v->stays++) =
      (chain_stay){.buffer = b,
                   .start_s = start_s,
                   .end_s = start_s,
                   .at_start = is_home || f->flags & (BUFFER_INPUT | BUFFER_CARRIED_IN)};
}

/* What the device holds when the run begins. */
static void begin_first_stays(maker *m) {
  for (uint32_t b = 0; b < m->p->buffers.len; b++) {
    const prog_buffer *f = &m->p->buffers.at[b];
    bool is_there = f->place == PLACE_STATE || f->flags & (BUFFER_INPUT | BUFFER_CARRIED_IN);
    m->stay_of[b] = PROG_NONE;
    if (m->c->value_of[b] != PROG_NONE && f->tier == TIER_DEVICE && is_there) begin_stay(m, b, 0);
  }
}

/* Where a run leaves it; until then the stay goes on. */
static void end_last_stays(maker *m) {
  for (uint32_t b = 0; b < m->p->buffers.len; b++) {
    const prog_buffer *f = &m->p->buffers.at[b];
    bool stays = f->place == PLACE_STATE || f->flags & (BUFFER_OUTPUT | BUFFER_CARRIED_OUT);
    if (m->stay_of[b] == PROG_NONE || !stays) continue;
    chain_stay *s = stay_at(m->c, &m->c->value[m->c->value_of[b]], m->stay_of[b]);
    s->at_end = true;
    s->end_s = m->c->run_s;
  }
}

/* Does the result overwrite an operand of the instruction?  Then it is in the operand's stay. */
static uint32_t find_overwritten(const maker *m, const prog_inst *n, uint32_t b) {
  const prog_buffer *f = &m->p->buffers.at[b];
  for (int k = 0; k < n->n_in; k++) {
    uint32_t a = program_arg(m->p, n, k)->root;
    const prog_buffer *in = &m->p->buffers.at[a];
    bool same = m->c->value_of[a] == m->c->value_of[b] && in->tier == f->tier && a != b;
    if (same && in->offset == f->offset && in->place == f->place) return m->stay_of[a];
  }
  return PROG_NONE;
}

static void touch_stay(maker *m, uint32_t i, uint32_t b, chain_touch *touch) {
  const prog_inst *n = program_inst(m->p, i);
  if (m->p->buffers.at[b].tier != TIER_DEVICE) return;
  if (m->stay_of[b] == PROG_NONE) m->stay_of[b] = find_overwritten(m, n, b);
  if (m->stay_of[b] == PROG_NONE) begin_stay(m, b, m->t[i].start_s);
  chain_stay *s = stay_at(m->c, &m->c->value[m->c->value_of[b]], m->stay_of[b]);
  touch->stay = m->stay_of[b];
  if (m->t[i].start_s < s->start_s) s->start_s = m->t[i].start_s;
  if (m->t[i].end_s > s->end_s) s->end_s = m->t[i].end_s;
}

/* --- touches ------------------------------------------------------------------------------------
 */

static void count_copy(maker *m, uint32_t i, value_chain *v) {
  const prog_inst *n = program_inst(m->p, i);
  bool in = program_arg(m->p, n, n->n_in)->tier == TIER_DEVICE;
  v->fetches += in;
  v->offloads += !in;
  v->moved_bytes += program_arg(m->p, n, 0)->bytes;
  v->copy_s += m->t[i].end_s - m->t[i].start_s;
  v->exposed_s += m->c->exposed[i];
}

static void add_touch(maker *m, uint32_t i, int k) {
  const prog_inst *n = program_inst(m->p, i);
  uint32_t b = program_arg(m->p, n, k)->root;
  value_chain *v = &m->c->value[value_of(m, b)];
  chain_touch *touch = &m->c->touch[v->touch0 + v->touches];
  bool writes = k >= n->n_in, again = v->touches && touch[-1].inst == i;
  if (again) touch--;
  else {
    *touch = (chain_touch){.inst = i, .stay = PROG_NONE};
    v->touches++;
    if (is_copy(n)) count_copy(m, i, v);
    else v->uses++;
  }
  touch_stay(m, i, b, touch);
  if (is_copy(n))
    touch->what = program_arg(m->p, n, n->n_in)->tier == TIER_DEVICE ? TOUCH_FETCH : TOUCH_OFFLOAD;
  else {
    if (writes && !(touch->what & TOUCH_WRITE)) v->writes++;
    touch->what |= writes ? TOUCH_WRITE : TOUCH_READ;
  }
}

/* What it would cost to make the value once more: for results that one instruction makes. */
static void price_making(const maker *m, value_chain *v) {
  const chain_touch *first = &m->c->touch[v->touch0];
  if (v->is_state || v->is_io || v->writes != 1 || first->what != TOUCH_WRITE) return;
  if (op_flags((op_id)program_inst(m->p, first->inst)->op) & OPF_RENDEZVOUS) return;
  v->make_s = m->t[first->inst].end_s - m->t[first->inst].start_s;
}

static int by_start(const void *a, const void *b) {
  const chain_stay *x = a, *y = b;
  if (x->start_s != y->start_s) return x->start_s < y->start_s ? -1 : 1;
  return x->buffer < y->buffer ? -1 : x->buffer > y->buffer;
}

/* Stays were numbered in the order of instructions, which starts of copies need not have. */
static hp_status sort_stays(maker *m, const value_chain *v) {
  value_chains *c = m->c;
  chain_stay *stay = c->stay + v->stay0;
  bool sorted = true;
  for (uint32_t k = 1; k < v->stays; k++) sorted = sorted && by_start(&stay[k - 1], &stay[k]) <= 0;
  if (sorted) return HP_OK;
  chain_stay *old = mem_calloc(v->stays, sizeof *old);
  HP_TRY_MEM(old);
  memcpy(old, stay, v->stays * sizeof *old);
  qsort(stay, v->stays, sizeof *stay, by_start);
  for (uint32_t k = 0; k < v->touches; k++) {
    chain_touch *touch = &c->touch[v->touch0 + k];
    for (uint32_t s = 0; touch->stay != PROG_NONE && s < v->stays; s++)
      if (stay[s].buffer == old[touch->stay].buffer) {
        touch->stay = s;
        break;
      }
  }
  mem_free(old);
  return HP_OK;
}

static hp_status make(maker *m) {
  const program *p = m->p;
  value_chains *c = m->c;
  c->run_s = inst_times_end(m->t, p->insts.len);
  HP_TRY(exposed_copies(p, m->t, c->exposed, &c->exposed_s));
  join_all(m);
  HP_TRY(number_values(m));
  begin_first_stays(m);
  for (uint32_t i = 0; i < p->insts.len; i++) {
    const prog_inst *n = program_inst(p, i);
    for (int k = 0; k < n->n_in + n->n_out; k++) add_touch(m, i, k);
  }
  end_last_stays(m);
  for (size_t v = 0; v < c->values; v++) {
    price_making(m, &c->value[v]);
    HP_TRY(sort_stays(m, &c->value[v]));
    c->copy_s += c->value[v].copy_s;
  }
  return HP_OK;
}

hp_status value_chains_make(const program *p, const inst_times *t, value_chains *out) {
  size_t n = p->buffers.len;
  *out = (value_chains){.value_of = mem_calloc(n, sizeof *out->value_of),
                        .value = mem_calloc(n, sizeof *out->value),
                        .exposed = mem_calloc(p->insts.len, sizeof *out->exposed)};
  maker m = {.p = p,
             .t = t,
             .c = out,
             .parent = mem_calloc(n, sizeof *m.parent),
             .stay_of = mem_calloc(n, sizeof *m.stay_of)};
  bool made = out->value_of && out->value && out->exposed && m.parent && m.stay_of;
  hp_status st = made ? make(&m) : HP_ERR_OOM;
  mem_free(m.parent);
  mem_free(m.stay_of);
  return st;
}

void value_chains_free(value_chains *c) {
  mem_free(c->value_of);
  mem_free(c->value);
  mem_free(c->touch);
  mem_free(c->stay);
  mem_free(c->exposed);
  *c = (value_chains){0};
}

/* --- gaps ---------------------------------------------------------------------------------------
 */

uint32_t value_gaps(const value_chain *v) {
  if (!v->uses) return 0;
  return v->is_state ? v->uses : v->uses - 1;
}

uint32_t value_gaps_away(const value_chains *c, const value_chain *v) {
  if (!v->stays || v->tier == TIER_DEVICE) return 0;
  const chain_stay *first = stay_at(c, v, 0), *last = stay_at(c, v, v->stays - 1);
  return v->stays - 1 + (v->is_state && !(first->at_start && last->at_end));
}
