#include "rt/collective.h"

#include "base/dtype.h"
#include "ir/layout.h"
#include "ir/print.h"
#include "rt/dispatch_rows.h"
#include "rt/mover.h"
#include "sim/cost.h"

#include <string.h>

/* A collective of the program: a call of the communicator. */
typedef struct {
  communicator *c; /* the ranks along its axes, in their order */
  comm_call call;
  comm_tensor tensor;
  comm_collective *run;
  int64_t *place;      /* of tensor; NULL: it needs none */
  dispatch_rows *rows; /* of tensor; NULL: it needs none */
} member;

struct collectives {
  device *d;
  const program *p;
  uint32_t *number;        /* by instruction: its member; of those that have one */
  char *from, *ids, *to;   /* staging in tier host; NULL: the collectives take the device's
                              addresses */
  uint64_t staged, offset; /* its bytes in the arena, and where */
  int64_t ids_bytes;       /* of the longest ids of rows */
  int64_t *place;          /* by instruction: that of the device along its axes */
  VEC(member) members;
};

/* Ranks along these axes in their order; *me: the place of this one among them. */
static int64_t list_ranks(const device *d, const program *p, const prog_inst *n, const char *key,
                          int64_t rank[COMM_MAX], int64_t *me) {
  int64_t axes[ATTR_LIST_MAX], members = inst_int(p, n, "n");
  uint8_t axis[LAYOUT_AXES];
  int k = inst_list(p, n, key, axes);
  for (int i = 0; i < k; i++) axis[i] = (uint8_t)axes[i];
  mesh_get_ranks(d->mesh, d->position, axis, k, rank);
  for (*me = 0; rank[*me] != d->position;) ++*me;
  for (int64_t i = 0; i < members; i++) rank[i] = mesh_rank(d->mesh, rank[i]);
  return members;
}

static int64_t bytes_of(const ir_value *x) {
  return value_elements(x) * (int64_t)dtype_size((hp_dtype)x->dtype);
}

/* --- staging ------------------------------------------------------------------------------------
 *
 * A communicator for memory of the host does not see addresses of a device's memory that the host
 * cannot use: operands are copied to tier host and the result from there.  One buffer for each is
 * enough, since a rank is in one collective at a time. */

static bool takes_device_memory(const device *d) {
  const char *of = d->comm->iface->memory_of;
  return mover_is_host(d, TIER_DEVICE) || (of && !strcmp(of, d->backend->name));
}

static const char staging_name[] = "staging of collectives";

static hp_status take_staging(collectives *c, int64_t bytes) {
  device *d = c->d;
  if (!c->members.len || takes_device_memory(d)) return HP_OK;
  uint64_t each = tier_memory_pad(TIER_HOST, (uint64_t)bytes);
  uint64_t ids = tier_memory_pad(TIER_HOST, (uint64_t)c->ids_bytes);
  ir_value type = {.dtype = HP_U8, .rank = 1, .dim = {(int64_t)(2 * each + ids)}};
  HP_TRY(device_take(d, TIER_HOST, staging_name, &type, &c->offset));
  c->staged = 2 * each + ids;
  c->from = tier_memory_address(&d->job->memory[TIER_HOST], c->offset);
  c->to = c->from + each;
  c->ids = c->to + each;
  return HP_OK;
}

static hp_status run_at(const member *x, const prog_inst *n, void *const *at, double *arrived_s) {
  if (x->rows) x->rows->of.ids = at[1];
  return x->run(x->c, &x->call, &x->tensor, at[0], at[n->n_in], n->stream, arrived_s);
}

static hp_status run_staged(const collectives *c, const member *x, const prog_inst *n,
                            void *const *at, double *arrived_s) {
  const device *d = c->d;
  void *const staged[] = {c->from, x->rows ? c->ids : c->to, c->to};
  for (int k = 0; k < n->n_in; k++)
    HP_TRY(d->backend->copy(d->dev, staged[k], at[k], program_arg(c->p, n, k)->bytes, n->stream));
  HP_TRY(run_at(x, n, staged, arrived_s));
  return d->backend->copy(d->dev, at[n->n_in], c->to, program_arg(c->p, n, n->n_in)->bytes,
                          n->stream);
}

/* --- loading ---------------------------------------------------------------------------------- */

/* "all_reduce f32[8] {axes=[0], n=2, op=1}": what must be the same on all ranks. */
static hp_status describe_call(const program *p, const prog_inst *n, comm_call *out) {
  str text = {0};
  ir_node node = {.op = n->op, .attr = n->attr};
  str_printf(&text, "%s ", op_table[n->op].name);
  value_print(&program_arg(p, n, 0)->type, &text);
  graph_print_attrs(p->names, &node, &text);
  if (!text.failed) *out = comm_call_of(text.at, program_str(p, n->loc));
  hp_status st = str_status(&text);
  str_free(&text);
  return st;
}

/* Of each member the place among the ranks in whose order a dim is cut. */
static hp_status list_places(const collectives *c, const prog_inst *n, member *x) {
  int64_t order[COMM_MAX], me;
  list_ranks(c->d, c->p, n, "cut", order, &me);
  x->place = mem_calloc((size_t)x->c->n, sizeof *x->place);
  HP_TRY_MEM(x->place);
  for (int64_t i = 0; i < x->c->n; i++)
    while (order[x->place[i]] != x->c->rank[i]) x->place[i]++;
  x->tensor.place = x->place;
  x->tensor.cut = (int)inst_int(c->p, n, "to");
  return HP_OK;
}

static comm_reduction reduction_of(const program *p, const prog_inst *n) {
  static const comm_reduction by[PARTIAL_COUNT] =
      {[PARTIAL_SUM] = COMM_REDUCE_SUM,   [PARTIAL_AVG] = COMM_REDUCE_AVG,
       [PARTIAL_MAX] = COMM_REDUCE_MAX,   [PARTIAL_MIN] = COMM_REDUCE_MIN,
       [PARTIAL_PROD] = COMM_REDUCE_PROD, [PARTIAL_ALL] = COMM_REDUCE_AND};
  return by[inst_int(p, n, "op")];
}

static hp_status describe_dim(const collectives *c, const prog_inst *n, member *x) {
  x->tensor.dim = (int)inst_int(c->p, n, "dim");
  return HP_OK;
}
static hp_status describe_reduction(const collectives *c, const prog_inst *n, member *x) {
  x->tensor.reduction = reduction_of(c->p, n);
  return HP_OK;
}
static hp_status describe_scatter(const collectives *c, const prog_inst *n, member *x) {
  HP_TRY(describe_dim(c, n, x));
  return describe_reduction(c, n, x);
}
static hp_status describe_exchange(const collectives *c, const prog_inst *n, member *x) {
  HP_TRY(describe_dim(c, n, x));
  return list_places(c, n, x);
}
static hp_status describe_rows(const collectives *c, const prog_inst *n, member *x) {
  HP_TRY(dispatch_rows_create(c->d->mesh, c->d->position, c->p, n, &x->rows));
  x->tensor.rows = &x->rows->of;
  return describe_dim(c, n, x);
}
static hp_status describe_permute(const collectives *c, const prog_inst *n, member *x) {
  x->tensor.by = inst_int(c->p, n, "by");
  return HP_OK;
}
static hp_status describe_zigzag(const collectives *c, const prog_inst *n, member *x) {
  x->tensor.inverse = inst_int(c->p, n, "inverse") != 0;
  return describe_dim(c, n, x);
}

/* The communicator's operation for an op, and what becomes of its attributes. */
static const struct {
  comm_collective_kind kind;
  hp_status (*describe)(const collectives *c, const prog_inst *n, member *x);
} operations[] = {
    [OP_ALL_GATHER] = {COMM_ALL_GATHER, describe_dim},
    [OP_ALL_REDUCE] = {COMM_ALL_REDUCE, describe_reduction},
    [OP_REDUCE_SCATTER] = {COMM_REDUCE_SCATTER, describe_scatter},
    [OP_ALL_TO_ALL] = {COMM_ALL_TO_ALL, describe_exchange},
    [OP_PERMUTE] = {COMM_PERMUTE, describe_permute},
    [OP_ZIGZAG] = {COMM_ZIGZAG, describe_zigzag},
    [OP_DISPATCH] = {COMM_DISPATCH, describe_rows},
    [OP_COMBINE] = {COMM_COMBINE, describe_rows},
};

static void free_member(member *x) {
  mem_free(x->place);
  dispatch_rows_free(x->rows);
}

static hp_status add_member(collectives *c, const prog_inst *n, const int64_t *rank, int64_t ranks,
                            int64_t me) {
  member x = {.c = NULL};
  comm *job = c->d->comm;
  HP_TRY(job->iface->join(job, rank, ranks, me, &x.c));
  HP_TRY(describe_call(c->p, n, &x.call));
  const ir_value *type = &program_arg(c->p, n, 0)->type;
  x.tensor = (comm_tensor){.type = (hp_dtype)type->dtype, .shape = value_shape(type)};
  x.run = job->iface->collective[operations[n->op].kind];
  hp_status st = operations[n->op].describe(c, n, &x);
  if (!st && !vec_push(&c->members, x)) st = HP_ERR_OOM;
  if (st) free_member(&x);
  return st;
}

static hp_status list_members(collectives *c, int64_t *most) {
  for (size_t i = 0; i < c->p->insts.len; i++) {
    const prog_inst *n = program_inst(c->p, i);
    if (!(op_flags((op_id)n->op) & OPF_COLLECTIVE)) continue;
    if (!c->d->comm) HP_FAIL(HP_ERR_INTERNAL, "a collective on a device that is alone");
    int64_t rank[COMM_MAX], ranks = list_ranks(c->d, c->p, n, "axes", rank, &c->place[i]);
    if (!collective_runs(n)) continue;
    c->number[i] = (uint32_t)c->members.len;
    HP_TRY(add_member(c, n, rank, ranks, c->place[i]));
    for (int k = 0; k <= n->n_in; k++) {
      int64_t bytes = bytes_of(&program_arg(c->p, n, k)->type);
      int64_t *longest = k == 1 && n->n_in > 1 ? &c->ids_bytes : most;
      if (bytes > *longest) *longest = bytes;
    }
  }
  return HP_OK;
}

hp_status collectives_load(device *d, const program *p, collectives **out) {
  int64_t most = 0;
  collectives *c = mem_calloc(1, sizeof *c);
  HP_TRY_MEM(c);
  *c = (collectives){.d = d, .p = p};
  c->number = mem_calloc(p->insts.len, sizeof *c->number);
  c->place = mem_calloc(p->insts.len, sizeof *c->place);
  hp_status st = c->number && c->place ? list_members(c, &most) : HP_ERR_OOM;
  if (!st && d->comm && d->comm->iface->reserve) st = d->comm->iface->reserve(d->comm, most);
  if (!st) st = take_staging(c, most);
  if (st) collectives_free(c);
  else *out = c;
  return st;
}

void collectives_free(collectives *c) {
  if (!c) return;
  if (c->staged) device_give(c->d, TIER_HOST, c->offset, c->staged);
  for (size_t i = 0; i < c->members.len; i++) free_member(&c->members.at[i]);
  vec_free(&c->members);
  mem_free(c->number);
  mem_free(c->place);
  mem_free(c);
}

bool collective_runs(const prog_inst *n) { return op_flags((op_id)n->op) & OPF_RENDEZVOUS; }

int64_t collective_place(const collectives *c, size_t i) { return c->place[i]; }

hp_status collective_run(const collectives *c, size_t i, void *const *at, double *arrived_s) {
  const member *x = &c->members.at[c->number[i]];
  const prog_inst *n = program_inst(c->p, i);
  if (c->staged) return run_staged(c, x, n, at, arrived_s);
  return run_at(x, n, at, arrived_s);
}

double collective_received(const collectives *c, size_t i) {
  const member *x = &c->members.at[c->number[i]];
  return x->rows ? (double)x->rows->of.received : cost_received(c->p, program_inst(c->p, i));
}
