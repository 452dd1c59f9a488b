#include "hazards.h"

#include "compile/inplace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Instruction -1 stands for whoever gives the inputs, instruction n for whoever takes the outputs.
 */
typedef struct {
  int64_t inst;
  uint32_t buffer; /* root */
  bool write;
  uint64_t from, to; /* its bytes of the root */
} access;

typedef struct {
  const program *p;
  size_t n;
  bool *before; /* [n][n] before[j * n + i]: i has finished when j starts */
  VEC(access) access;
  char *why;
} search;

static bool say(search *s, const access *a, const access *b, const char *what) {
  snprintf(s->why, HAZARD_TEXT, "instruction %lld %s b%u, %lld %s b%u: %s", (long long)a->inst,
           a->write ? "writes" : "reads", a->buffer, (long long)b->inst,
           b->write ? "writes" : "reads", b->buffer, what);
  return true;
}

/* The closure of stream order and waits. */
static void find_order(search *s) {
  uint32_t *at = calloc(s->n * STREAM_COUNT + 1, sizeof *at), length[STREAM_COUNT] = {0};
  HP_ASSERT(at && s->before);
  for (size_t j = 0; j < s->n; j++) {
    const prog_inst *d = program_inst(s->p, j);
    for (int k = -1; k < d->n_wait; k++) {
      const vclock_wait *w = k < 0 ? NULL : &s->p->waits.at[d->wait0 + (uint32_t)k];
      uint32_t stream = w ? w->stream : d->stream, position = w ? w->position : length[stream] - 1;
      if (!w && !length[stream]) continue;
      HP_ASSERT(position < length[stream]); /* waits are for what is listed before */
      size_t i = at[stream * s->n + position];
      s->before[j * s->n + i] = true;
      for (size_t h = 0; h < s->n; h++) s->before[j * s->n + h] |= s->before[i * s->n + h];
    }
    at[d->stream * s->n + length[d->stream]++] = (uint32_t)j;
  }
  free(at);
}

static void add(search *s, int64_t inst, uint32_t buffer, bool write) {
  const prog_buffer *f = &s->p->buffers.at[buffer];
  access a = {inst, f->root, write, f->at, f->at + f->bytes};
  HP_ASSERT(vec_push(&s->access, a));
}

static void find_accesses(search *s) {
  const program *p = s->p;
  for (uint32_t b = 0; b < p->buffers.len; b++) {
    const prog_buffer *f = &p->buffers.at[b];
    if (f->root == b && (f->place == PLACE_STATE || f->flags & (BUFFER_INPUT | BUFFER_CARRIED_IN)))
      add(s, -1, b, true);
  }
  for (size_t i = 0; i < s->n; i++) {
    const prog_inst *d = program_inst(p, i);
    const uint32_t *arg = program_args(p, d);
    for (int k = 0; k < d->n_in + d->n_out; k++) add(s, (int64_t)i, arg[k], k >= d->n_in);
    if (d->workspace != PROG_NONE) add(s, (int64_t)i, d->workspace, true);
  }
  for (uint32_t b = 0; b < p->buffers.len; b++) {
    const prog_buffer *f = &p->buffers.at[b];
    if (f->root == b &&
        (f->place == PLACE_STATE || f->flags & (BUFFER_OUTPUT | BUFFER_CARRIED_OUT)))
      add(s, (int64_t)s->n, b, false);
  }
}

static bool overlap(const program *p, const access *a, const access *b) {
  const prog_buffer *x = &p->buffers.at[a->buffer], *y = &p->buffers.at[b->buffer];
  if (x->place != y->place) return false;
  if (x->place == PLACE_STATE) return x->name == y->name && a->from < b->to && b->from < a->to;
  return x->tier == y->tier && x->offset < y->offset + y->bytes && y->offset < x->offset + x->bytes;
}

/* May instruction i write buffer `out` where its operand `in` lies? */
static bool may_lie_over(const program *p, int64_t i, uint32_t in, uint32_t out) {
  const prog_inst *d = program_inst(p, (size_t)i);
  const uint32_t *arg = program_args(p, d);
  const prog_buffer *x = &p->buffers.at[in], *y = &p->buffers.at[out];
  if (x->offset != y->offset || x->bytes != y->bytes) return false;
  for (int o = 0; o < d->n_out; o++)
    for (int k = 0; k < d->n_in; k++) {
      if (p->buffers.at[arg[k]].root != in || arg[d->n_in + o] != out) continue;
      bool may = d->op == OP_FUSED ? inplace_loop(inst_str(p, d, "body"), k, o)
                                   : inplace_op((op_id)d->op, k, o);
      if (!may) return false;
    }
  return d->workspace != out;
}

/* Accesses a and b, a not later in the list. */
static bool pair_is_wrong(search *s, const access *a, const access *b) {
  if (!(a->write || b->write) || !overlap(s->p, a, b)) return false;
  if (a->inst == b->inst) {
    if (a->inst < 0) return a->buffer != b->buffer && say(s, a, b, "two inputs in one place");
    if (a->write && b->write) return a->buffer != b->buffer && say(s, a, b, "one place");
    const access *in = a->write ? b : a, *out = a->write ? a : b;
    return !may_lie_over(s->p, a->inst, in->buffer, out->buffer) && say(s, a, b, "not in place");
  }
  if (a->inst < 0 || b->inst == (int64_t)s->n) return false;
  return !s->before[(size_t)b->inst * s->n + (size_t)a->inst] && say(s, a, b, "in any order");
}

/* The last write, before the read at `at` in the list, to any byte of its buffer is not its own. */
static bool finds_another(search *s, size_t at) {
  const access *r = &s->access.at[at], *last = NULL;
  for (size_t k = 0; k < s->access.len; k++) {
    const access *w = &s->access.at[k];
    if (w->inst < r->inst && w->write && overlap(s->p, w, r) && (!last || w->inst >= last->inst))
      last = w;
  }
  if (!last) return say(s, r, r, "nobody has written it");
  return s->p->buffers.at[r->buffer].place == PLACE_WORK && last->buffer != r->buffer &&
         say(s, last, r, "overwritten");
}

bool program_hazard(const program *p, char *why) {
  search s = {.p = p, .n = p->insts.len, .why = why};
  s.before = calloc(s.n * s.n + 1, sizeof *s.before);
  find_order(&s);
  find_accesses(&s);
  bool found = false;
  for (size_t i = 0; i < s.access.len && !found; i++)
    for (size_t j = i; j < s.access.len && !found; j++)
      found = i != j && pair_is_wrong(&s, &s.access.at[i], &s.access.at[j]);
  for (size_t i = 0; i < s.access.len && !found; i++)
    found = !s.access.at[i].write && finds_another(&s, i);
  free(s.before);
  vec_free(&s.access);
  return found;
}
