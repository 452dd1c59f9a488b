#include "compile/place_updates.h"

#include "compile/order.h"

#include <stdlib.h>

/* Results that take at most 1 / SHRINKS of the operands' bytes are a summary of them. */
enum { SHRINKS = 64 };

/* Instructions are sorted by position, side (before it, it, behind it) and index. */
typedef struct {
  uint32_t at, index;
  int8_t side;
} place;

/* By root buffer: the places of the last write and the last access so far, or, from the end
 * backwards, of the first ones to come. */
typedef struct {
  place write, access;
} buffer_places;

typedef struct {
  program *p;
  place *place;       /* by instruction */
  buffer_places *use; /* by root buffer */
} updates;

static int compare(const place *a, const place *b) {
  if (a->at != b->at) return a->at < b->at ? -1 : 1;
  if (a->side != b->side) return a->side < b->side ? -1 : 1;
  return a->index < b->index ? -1 : a->index > b->index;
}

static int by_place(const void *a, const void *b) { return compare(a, b); }

static buffer_places *use_of(const updates *u, const prog_inst *n, int k) {
  return &u->use[program_arg(u->p, n, k)->root];
}

/* Transfers between meshes keep their order. */
static bool may_move(const prog_inst *n) {
  return n->phase == PHASE_UPDATE && !(op_flags((op_id)n->op) & OPF_TRANSFER);
}

/* --- updates before what needs them ------------------------------------------------------------
 */

static const place never = {.at = UINT32_MAX, .index = UINT32_MAX, .side = 1};

static void sooner(place *at, const place *x) {
  if (compare(x, at) < 0) *at = *x;
}

/* Just before the first instruction that reads what this one writes, or overwrites what it reads.
 */
static place before_users(const updates *u, const prog_inst *n) {
  place first = never;
  for (int k = 0; k < n->n_in + n->n_out; k++) {
    const buffer_places *b = use_of(u, n, k);
    sooner(&first, k < n->n_in ? &b->write : &b->access);
  }
  return first;
}

/* Those that other phases follow, which need them. */
static void place_late(updates *u) {
  bool followed = false;
  for (size_t b = 0; b < u->p->buffers.len; b++) u->use[b] = (buffer_places){never, never};
  for (size_t i = u->p->insts.len; i-- > 0;) {
    const prog_inst *n = program_inst(u->p, i);
    followed |= n->phase != PHASE_UPDATE;
    if (followed && may_move(n)) {
      place user = before_users(u, n);
      if (user.at != UINT32_MAX) u->place[i] = (place){user.at, (uint32_t)i, -1};
    }
    for (int k = 0; k < n->n_in + n->n_out; k++) {
      buffer_places *b = use_of(u, n, k);
      sooner(&b->access, &u->place[i]);
      if (k >= n->n_in) sooner(&b->write, &u->place[i]);
    }
  }
}

/* --- norms behind their gradients ---------------------------------------------------------------
 */

static const place start = {.at = 0, .index = 0, .side = -1};

static void later(place *at, const place *x) {
  if (compare(x, at) > 0) *at = *x;
}

static bool shrinks(const updates *u, const prog_inst *n) {
  uint64_t in = 0, out = 0;
  for (int k = 0; k < n->n_in + n->n_out; k++)
    *(k < n->n_in ? &in : &out) += program_arg(u->p, n, k)->bytes;
  return out <= in / SHRINKS;
}

/* Right behind the last instruction that writes what this one reads, or uses what it writes. */
static place behind_operands(const updates *u, const prog_inst *n) {
  place last = start;
  for (int k = 0; k < n->n_in + n->n_out; k++) {
    const buffer_places *b = use_of(u, n, k);
    later(&last, k < n->n_in ? &b->write : &b->access);
  }
  return last;
}

static void place_early(updates *u) {
  for (size_t b = 0; b < u->p->buffers.len; b++) u->use[b] = (buffer_places){start, start};
  for (size_t i = 0; i < u->p->insts.len; i++) {
    const prog_inst *n = program_inst(u->p, i);
    bool moved = compare(&u->place[i], &(place){(uint32_t)i, (uint32_t)i, 0}) != 0;
    if (!moved && may_move(n) && shrinks(u, n)) {
      place last = behind_operands(u, n);
      u->place[i] = (place){last.at, (uint32_t)i, last.side ? last.side : 1};
    }
    for (int k = 0; k < n->n_in + n->n_out; k++) {
      buffer_places *b = use_of(u, n, k);
      later(&b->access, &u->place[i]);
      if (k >= n->n_in) later(&b->write, &u->place[i]);
    }
  }
}

static hp_status apply(updates *u) {
  size_t n = u->p->insts.len;
  bool moved = false;
  for (size_t i = 0; i < n; i++) moved |= u->place[i].at != i || u->place[i].side;
  if (!moved) return HP_OK;
  uint32_t *order = mem_calloc(n, sizeof *order);
  HP_TRY_MEM(order);
  qsort(u->place, n, sizeof *u->place, by_place);
  for (size_t i = 0; i < n; i++) order[i] = u->place[i].index;
  hp_status st = order_apply(u->p, order);
  mem_free(order);
  return st;
}

hp_status place_updates(program *p) {
  size_t n = p->insts.len;
  updates u = {.p = p,
               .place = mem_calloc(n + 1, sizeof *u.place),
               .use = mem_calloc(p->buffers.len + 1, sizeof *u.use)};
  hp_status st = u.place && u.use ? HP_OK : HP_ERR_OOM;
  for (size_t i = 0; !st && i < n; i++) u.place[i] = (place){(uint32_t)i, (uint32_t)i, 0};
  if (!st) place_late(&u);
  if (!st) place_early(&u);
  if (!st) st = apply(&u);
  mem_free(u.place);
  mem_free(u.use);
  return st;
}
