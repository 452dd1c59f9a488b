#include "rt/transfer.h"

#include "ir/print.h"
#include "rt/mover.h"
#include "shard/crossmesh.h"

#include <string.h>

/* A box of this device's shard, from or to another rank. */
typedef struct {
  int64_t peer;
  box b;
  bool is_run; /* it is contiguous in the shard, from byte `at` on; else it is packed there */
  uint64_t at;
} part;

/* What this device gives or takes of a value. */
typedef struct {
  bool is_known, sends;
  shard_view shard;
  uint32_t part0, n; /* in transfers.parts */
} portion;

/* An instruction. */
typedef struct {
  comm_call call; /* which the two ends compare */
  uint32_t portion;
  uint64_t bytes; /* of the shard, with its padding */
} transfer;

struct transfers {
  device *d;
  const program *p;
  portion *of; /* by row of the table */
  VEC(part) parts;
  uint32_t *number; /* by instruction: */
  VEC(transfer) list;
  comm_transfer *end; /* of the instruction at hand, one for each of its parts */
  char *pack,
      *stage; /* boxes that are not contiguous; the shard, where the host has no addresses */
};

static bool is_transfer(const prog_inst *n) { return op_flags((op_id)n->op) & OPF_TRANSFER; }

/* --- loading ---------------------------------------------------------------------------------- */

static hp_status add_part(transfers *t, portion *x, const crossing *c, uint64_t *packed) {
  part made = {.peer = x->sends ? c->to : c->from, .b = c->b};
  box_runs r;
  runs_begin(&r, &c->b, &x->shard.room, &c->b);
  int64_t first = r.from;
  runs_next(&r);
  made.is_run = !r.n;
  made.at = made.is_run ? (uint64_t)first * x->shard.element : *packed;
  if (!made.is_run) *packed += (uint64_t)box_elements(&c->b) * x->shard.element;
  x->n++;
  return vec_push(&t->parts, made) ? HP_OK : HP_ERR_OOM;
}

static hp_status find_portion(transfers *t, const transfer_row *row, bool sends, portion *x,
                              uint64_t *packed) {
  const device *d = t->d;
  int64_t me = mesh_rank(d->mesh, d->position);
  crossings all = {0};
  *x = (portion){.is_known = true,
                 .sends = sends,
                 .shard = mover_view(d->mesh, d->position, &row->type,
                                     sends ? &row->given : &row->taken),
                 .part0 = (uint32_t)t->parts.len};
  hp_status st = crossmesh_find(row->type.dim, row->from, &row->given, row->to, &row->taken, &all);
  for (size_t i = 0; !st && i < all.len; i++)
    if ((sends ? all.at[i].from : all.at[i].to) == me) st = add_part(t, x, &all.at[i], packed);
  vec_free(&all);
  return st;
}

/* The same text at both ends: "stage0.value7@3 f32[2,8,64]". */
static hp_status call_of(const transfers *t, const prog_inst *n, const ir_value *type,
                         comm_call *out) {
  str text = {0};
  str_printf(&text, "transfer of %s ", inst_str(t->p, n, "name"));
  value_print(type, &text);
  hp_status st = str_status(&text);
  if (!st) *out = comm_call_of(text.at, NULL);
  str_free(&text);
  return st;
}

typedef struct {
  uint64_t pack, stage;
  uint32_t parts;
} most;

static hp_status add_transfer(transfers *t, const transfer_row *row, size_t rows, size_t i,
                              most *m) {
  const prog_inst *n = program_inst(t->p, i);
  uint64_t id = (uint64_t)inst_int(t->p, n, "id"), packed = 0;
  if (id >= rows || !t->d->comm)
    HP_FAIL(HP_ERR_INTERNAL, "transfer %llu of %zu", (unsigned long long)id, rows);
  portion *x = &t->of[id];
  if (!x->is_known) HP_TRY(find_portion(t, &row[id], n->op == OP_SEND, x, &packed));
  transfer made = {.portion = (uint32_t)id, .bytes = program_arg(t->p, n, 0)->bytes};
  if (packed > m->pack) m->pack = packed;
  if (made.bytes > m->stage) m->stage = made.bytes;
  if (x->n > m->parts) m->parts = x->n;
  HP_TRY(call_of(t, n, &row[id].type, &made.call));
  t->number[i] = (uint32_t)t->list.len;
  return vec_push(&t->list, made) ? HP_OK : HP_ERR_OOM;
}

static hp_status take_room(transfers *t, const most *m) {
  t->end = mem_calloc(m->parts + 1, sizeof *t->end);
  t->pack = mem_calloc((size_t)m->pack + 1, 1);
  HP_TRY_MEM(t->end && t->pack);
  if (mover_is_host(t->d, TIER_DEVICE)) return HP_OK;
  t->stage = mem_calloc((size_t)m->stage + 1, 1);
  return t->stage ? HP_OK : HP_ERR_OOM;
}

hp_status transfers_load(device *d, const program *p, const transfer_row *row, size_t rows,
                         transfers **out) {
  most m = {0};
  transfers *t = mem_calloc(1, sizeof *t);
  HP_TRY_MEM(t);
  *t = (transfers){.d = d,
                   .p = p,
                   .of = mem_calloc(rows + 1, sizeof *t->of),
                   .number = mem_calloc(p->insts.len + 1, sizeof *t->number)};
  hp_status st = t->of && t->number ? HP_OK : HP_ERR_OOM;
  for (size_t i = 0; !st && i < p->insts.len; i++)
    if (is_transfer(program_inst(p, i))) st = add_transfer(t, row, rows, i, &m);
  if (!st) st = take_room(t, &m);
  if (st) transfers_free(t);
  else *out = t;
  return st;
}

void transfers_free(transfers *t) {
  if (!t) return;
  vec_free(&t->parts);
  vec_free(&t->list);
  mem_free(t->of);
  mem_free(t->number);
  mem_free(t->end);
  mem_free(t->pack);
  mem_free(t->stage);
  mem_free(t);
}

/* --- running ---------------------------------------------------------------------------------- */

static char *place_of(const transfers *t, const part *x, char *shard) {
  return x->is_run ? shard + x->at : t->pack + x->at;
}

static hp_status post_all(transfers *t, const portion *x, const comm_call *call, int64_t tag,
                          char *shard) {
  comm *c = t->d->comm;
  for (uint32_t k = 0; k < x->n; k++) {
    const part *b = &t->parts.at[x->part0 + k];
    if (x->sends && !b->is_run)
      box_copy(&b->b, x->shard.element, &x->shard.room, shard, &b->b, t->pack + b->at);
    t->end[k] = (comm_transfer){.sends = x->sends,
                                .rank = mesh_rank(t->d->mesh, t->d->position),
                                .peer = b->peer,
                                .tag = tag,
                                .bytes = box_elements(&b->b) * (int64_t)x->shard.element,
                                .data = place_of(t, b, shard),
                                .call = call};
    HP_TRY(c->iface->post(c, &t->end[k]));
  }
  return HP_OK;
}

static hp_status wait_all(transfers *t, const portion *x, char *shard) {
  comm *c = t->d->comm;
  for (uint32_t k = 0; k < x->n; k++) {
    const part *b = &t->parts.at[x->part0 + k];
    HP_TRY(c->iface->wait(c, &t->end[k]));
    if (!x->sends && !b->is_run)
      box_copy(&b->b, x->shard.element, &b->b, t->pack + b->at, &x->shard.room, shard);
  }
  return HP_OK;
}

/* Transfers keep their order, so that a few tags are enough. */
hp_status transfer_run(transfers *t, size_t i, void *at) {
  const transfer *n = &t->list.at[t->number[i]];
  const portion *x = &t->of[n->portion];
  char *shard = t->stage ? t->stage : at;
  if (x->sends && t->stage) HP_TRY(mover_to_host(t->d, shard, at, n->bytes));
  if (!x->sends && !t->stage) HP_TRY(mover_zero_padding(t->d, &x->shard, at));
  if (!x->sends && t->stage) memset(shard, 0, (size_t)n->bytes);
  HP_TRY(post_all(t, x, &n->call, n->portion % (COMM_TAG_MAX + 1), shard));
  HP_TRY(wait_all(t, x, shard));
  return !x->sends && t->stage ? mover_to_device(t->d, at, shard, n->bytes) : HP_OK;
}
