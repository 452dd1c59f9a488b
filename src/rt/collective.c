#include "rt/collective.h"

#include "base/dtype.h"
#include "base/thread.h"
#include "ir/layout.h"
#include "ir/print.h"

#include <math.h>
#include <string.h>

/* A part seen along one dim: `outer` times `dim` runs of `inner` elements. */
typedef struct {
  int64_t outer, dim, inner;
} view;

/* A collective of the program.  Without a rendezvous it only needs to know its place. */
typedef struct {
  communicator *c; /* the ranks along its axes, in their order */
  comm_call call;
} member;

struct collectives {
  const device *d;
  const program *p;
  uint32_t *number; /* by instruction: its member; of those that have one */
  VEC(member) members;
};

typedef struct {
  const device *d;
  const program *p;
  const prog_inst *n;
  const ir_value *in, *out;
  communicator *g;
  const comm_call *call;
  comm_region give[COMM_MAX], take[COMM_MAX];
  comm_view seen[COMM_MAX]; /* of the members */
  double met_s;             /* when all had come to the first rendezvous; 0: not yet */
} rendezvous;

static view view_of(const ir_value *x, int64_t dim) {
  view v = {1, x->dim[dim], 1};
  for (int64_t d = 0; d < dim; d++) v.outer *= x->dim[d];
  for (int64_t d = dim + 1; d < x->rank; d++) v.inner *= x->dim[d];
  return v;
}

static int64_t bytes_of(const ir_value *x) {
  return value_elements(x) * (int64_t)dtype_size((hp_dtype)x->dtype);
}

/* Ranks along these axes in their order; *me: the place of this one among them. */
static int64_t list_ranks(const device *d, const program *p, const prog_inst *n, const char *key,
                          int64_t rank[COMM_MAX], int64_t *me) {
  int64_t axes[ATTR_LIST_MAX], members = inst_int(p, n, "n");
  uint8_t axis[LAYOUT_AXES];
  int k = inst_list(p, n, key, axes);
  for (int i = 0; i < k; i++) axis[i] = (uint8_t)axes[i];
  mesh_group(d->mesh, d->position, axis, k, rank);
  for (*me = 0; rank[*me] != d->position;) ++*me;
  for (int64_t i = 0; i < members; i++) rank[i] = mesh_rank(d->mesh, rank[i]);
  return members;
}

static hp_status come(rendezvous *m, const void *data) {
  HP_ASSERT(op_flags((op_id)m->n->op) & OPF_RENDEZVOUS); /* else the order of streams misses it */
  HP_TRY(m->d->comm->iface->rendezvous(m->g, m->call, data, m->give, m->take, m->seen));
  if (m->met_s == 0) m->met_s = time_now_s();
  return HP_OK;
}
static hp_status leave(const rendezvous *m) { return m->d->comm->iface->leave(m->g); }

/* --- moves ------------------------------------------------------------------------------------ */

/* Own part of a dim. */
static hp_status take_part(rendezvous *m, const void *from, void *to) {
  view x = view_of(m->in, inst_int(m->p, m->n, "dim")),
       y = view_of(m->out, inst_int(m->p, m->n, "dim"));
  size_t run = (size_t)(y.dim * y.inner) * dtype_size(m->in->dtype);
  for (int64_t o = 0; o < x.outer; o++)
    memcpy((char *)to + (size_t)o * run,
           (const char *)from + (size_t)(o * (x.dim / y.dim) + m->g->me) * run, run);
  return HP_OK;
}

/* Part `place` of a dim, of which a part has so many elements. */
static comm_region part_of(const rendezvous *m, int64_t dim, int64_t elements, int64_t place) {
  view x = view_of(m->in, dim);
  int64_t each = x.inner * (int64_t)dtype_size(m->in->dtype);
  return (comm_region){place * elements * each, x.dim * each, elements * each, x.outer};
}

/* Joins what is seen of the members along a dim: of each the region, which has a stride of its own
 * after `row` bytes.  Rows are many to a run that goes over together, or runs many to a row. */
static void join(const rendezvous *m, const ir_value *region, int64_t row, char *to) {
  int64_t outer = view_of(region, inst_int(m->p, m->n, "dim")).outer;
  int64_t run = outer ? bytes_of(region) / outer : 0, step = run < row ? run : row;
  for (int64_t o = 0; o < outer; o++)
    for (int64_t i = 0; i < m->g->n; i++)
      for (int64_t k = o * run; k < (o + 1) * run; k += step, to += step)
        memcpy(to, m->seen[i].at + k / row * m->seen[i].stride + k % row, (size_t)step);
}

static hp_status all_gather(rendezvous *m, const void *from, void *to) {
  int64_t bytes = bytes_of(m->in);
  for (int64_t i = 0; i < m->g->n; i++)
    m->give[i] = m->take[i] = (comm_region){.run = bytes, .n = 1};
  HP_TRY(come(m, from));
  join(m, m->in, bytes, to);
  return leave(m);
}

/* The whole value of one member. */
static hp_status permute(rendezvous *m, const void *from, void *to) {
  int64_t by = inst_int(m->p, m->n, "by") % m->g->n, bytes = bytes_of(m->in);
  int64_t source = (m->g->me - by + m->g->n) % m->g->n, target = (m->g->me + by) % m->g->n;
  for (int64_t i = 0; i < m->g->n; i++) m->give[i] = m->take[i] = (comm_region){0};
  m->give[target] = m->take[source] = (comm_region){.run = bytes, .n = 1};
  HP_TRY(come(m, from));
  memcpy(to, m->seen[source].at, (size_t)bytes);
  return leave(m);
}

/* Which device has chunk k of 2n, and in which half, before (2 to a device in order) and after the
 * deal. */
typedef struct {
  int64_t device, half;
} chunk;
static chunk chunk_at(int64_t k, int64_t n, bool dealt) {
  if (!dealt) return (chunk){k / 2, k % 2};
  return k < n ? (chunk){k, 0} : (chunk){2 * n - 1 - k, 1};
}

/* A half goes to one device, so what goes from one to another is nothing, a half or all. */
static comm_region half_region(const rendezvous *m, int64_t dim, int64_t source, int64_t target,
                               bool inverse) {
  int64_t half = m->in->dim[dim] / 2, first = 2, last = -1;
  for (int64_t k = 0; k < 2 * m->g->n; k++) {
    chunk a = chunk_at(k, m->g->n, inverse), b = chunk_at(k, m->g->n, !inverse);
    if (a.device != source || b.device != target) continue;
    if (a.half < first) first = a.half;
    if (a.half > last) last = a.half;
  }
  comm_region none = {0}, p = part_of(m, dim, half, first);
  p.run *= last - first + 1;
  return last < 0 ? none : p;
}

static hp_status zigzag(rendezvous *m, const void *from, void *to) {
  int64_t dim = inst_int(m->p, m->n, "dim"), n = m->g->n;
  bool inverse = inst_int(m->p, m->n, "inverse");
  for (int64_t i = 0; i < n; i++) {
    m->give[i] = half_region(m, dim, m->g->me, i, inverse);
    m->take[i] = half_region(m, dim, i, m->g->me, inverse);
  }
  HP_TRY(come(m, from));
  int64_t run = part_of(m, dim, m->in->dim[dim] / 2, 0).run;
  for (int64_t k = 0; k < 2 * n; k++) {
    chunk a = chunk_at(k, n, inverse), b = chunk_at(k, n, !inverse);
    if (b.device != m->g->me) continue;
    const comm_region *region = &m->take[a.device];
    const char *at = m->seen[a.device].at + (region->run > run ? a.half * run : 0);
    for (int64_t o = 0; o < region->n; o++)
      memcpy((char *)to + (2 * o + b.half) * run, at + o * m->seen[a.device].stride, (size_t)run);
  }
  return leave(m);
}

/* Every member's part along `dim`, of which only this device's part of `to` is taken. */
static hp_status all_to_all(rendezvous *m, const void *from, void *to) {
  int64_t cut = inst_int(m->p, m->n, "to");
  ir_value region = *m->in; /* what goes from one to another */
  int64_t order[COMM_MAX];  /* of the ranks in which `to` is cut */
  int64_t place[COMM_MAX];  /* of the members in it */
  int64_t me;
  region.dim[cut] = m->out->dim[cut];
  list_ranks(m->d, m->p, m->n, "cut", order, &me);
  for (int64_t i = 0; i < m->g->n; i++)
    for (place[i] = 0; order[place[i]] != m->g->rank[i];) place[i]++;
  for (int64_t i = 0; i < m->g->n; i++) {
    m->give[i] = part_of(m, cut, region.dim[cut], place[i]);
    m->take[i] = part_of(m, cut, region.dim[cut], me);
  }
  HP_TRY(come(m, from));
  join(m, &region, m->take[0].run, to);
  return leave(m);
}

/* --- reductions ------------------------------------------------------------------------------- */

enum { CHUNK = 1024 };

static float reduce_float(int op, float a, float b) {
  switch (op) {
  case PARTIAL_MAX: return a > b || a != a ? a : b;
  case PARTIAL_MIN: return a < b || a != a ? a : b;
  case PARTIAL_PROD: return a * b;
  default: return a + b;
  }
}
static int64_t reduce_int(int op, int64_t a, int64_t b) {
  switch (op) {
  case PARTIAL_MAX: return a > b ? a : b;
  case PARTIAL_MIN: return a < b ? a : b;
  case PARTIAL_PROD: return (int64_t)((uint64_t)a * (uint64_t)b);
  case PARTIAL_ALL: return a && b;
  default: return (int64_t)((uint64_t)a + (uint64_t)b);
  }
}

static const char *seen_at(const rendezvous *m, int64_t i, int64_t row, int64_t at) {
  return m->seen[i].at + row * m->seen[i].stride + at;
}

static hp_status reduce_floats(const rendezvous *m, int op, int64_t row, int64_t at, int64_t n,
                               char *to) {
  float sum[CHUNK], next[CHUNK];
  hp_dtype t = (hp_dtype)m->in->dtype;
  for (int64_t i = 0; i < m->g->n; i++) {
    const char *from = seen_at(m, i, row, at);
    HP_TRY(dtype_convert(HP_F32, i ? next : sum, t, from, (size_t)n));
    for (int64_t k = 0; i && k < n; k++) sum[k] = reduce_float(op, sum[k], next[k]);
  }
  for (int64_t k = 0; op == PARTIAL_AVG && k < n; k++) sum[k] /= (float)m->g->n;
  return dtype_convert(t, to, HP_F32, sum, (size_t)n);
}

static int64_t load_int(hp_dtype t, const char *at) {
  int32_t x;
  int64_t y;
  if (t == HP_I64) return memcpy(&y, at, sizeof y), y;
  if (t == HP_I32) return memcpy(&x, at, sizeof x), x;
  return *(const uint8_t *)at;
}

static void reduce_ints(const rendezvous *m, int op, int64_t row, int64_t at, int64_t n, char *to) {
  hp_dtype t = (hp_dtype)m->in->dtype;
  size_t size = dtype_size(t);
  for (int64_t k = 0; k < n; k++) {
    int64_t x = 0;
    for (int64_t i = 0; i < m->g->n; i++) {
      int64_t y = load_int(t, seen_at(m, i, row, at) + (size_t)k * size);
      x = i ? reduce_int(op, x, y) : y;
    }
    if (op == PARTIAL_AVG) x /= m->g->n;
    memcpy(to + (size_t)k * size, &x, size); /* little endian */
  }
}

/* n elements of run `row` of what is seen of all members, reduced into `to`. */
static hp_status reduce_run(const rendezvous *m, int64_t row, int64_t n, char *to) {
  int op = (int)inst_int(m->p, m->n, "op");
  int64_t size = (int64_t)dtype_size(m->in->dtype);
  for (int64_t k = 0; k < n; k += CHUNK) {
    int64_t some = n - k < CHUNK ? n - k : CHUNK;
    if (dtype_is_float(m->in->dtype))
      HP_TRY(reduce_floats(m, op, row, k * size, some, to + k * size));
    else reduce_ints(m, op, row, k * size, some, to + k * size);
  }
  return HP_OK;
}

/* What is seen of a region, reduced run by run. */
static hp_status reduce(const rendezvous *m, const comm_region *region, char *to) {
  int64_t size = (int64_t)dtype_size(m->in->dtype);
  for (int64_t k = 0; k < region->n; k++)
    HP_TRY(reduce_run(m, k, region->run / size, to + k * region->run));
  return HP_OK;
}

static hp_status place(rendezvous *m, const void *from, void *to) {
  int64_t n = value_elements(m->in);
  for (int64_t k = 0; k < n; k++)
    ((int32_t *)to)[k] = ((const int32_t *)from)[k] + (int32_t)m->g->me;
  return HP_OK;
}

/* Indices along a dim as those of the own part. */
static hp_status locate(rendezvous *m, const void *from, void *to) {
  int64_t n = value_elements(m->in), size = inst_int(m->p, m->n, "size"), first = m->g->me * size;
  for (int64_t k = 0; k < n; k++) {
    bool is_long = m->in->dtype == HP_I64;
    int64_t x = is_long ? ((const int64_t *)from)[k] : ((const int32_t *)from)[k];
    if (x >= 0) x = x >= first && x < first + size ? x - first : ID_ELSEWHERE;
    if (is_long) ((int64_t *)to)[k] = x;
    else ((int32_t *)to)[k] = (int32_t)x;
  }
  return HP_OK;
}

/* What changes nothing in the reduction, on all devices but the first. */
static hp_status drop(rendezvous *m, const void *from, void *to) {
  int op = (int)inst_int(m->p, m->n, "op");
  int64_t n = value_elements(m->in);
  size_t size = dtype_size(m->in->dtype);
  memcpy(to, from, (size_t)n * size);
  if (!m->g->me || (op != PARTIAL_SUM && op != PARTIAL_PROD)) return HP_OK;
  memset(to, 0, (size_t)n * size);
  float one = 1;
  for (int64_t k = 0; op == PARTIAL_PROD && k < n; k++)
    HP_TRY(dtype_convert((hp_dtype)m->in->dtype, (char *)to + (size_t)k * size, HP_F32, &one, 1));
  return HP_OK;
}

/* This device's part of a dim, reduced. */
static hp_status reduce_scatter(rendezvous *m, const void *from, void *to) {
  int64_t dim = inst_int(m->p, m->n, "dim");
  for (int64_t i = 0; i < m->g->n; i++) {
    m->give[i] = part_of(m, dim, m->out->dim[dim], i);
    m->take[i] = part_of(m, dim, m->out->dim[dim], m->g->me);
  }
  HP_TRY(come(m, from));
  HP_TRY(reduce(m, &m->take[0], to));
  return leave(m);
}

/* The share of member i of all elements, as a region of the whole. */
static comm_region share_of(const rendezvous *m, int64_t i) {
  int64_t size = (int64_t)dtype_size(m->in->dtype), n = value_elements(m->in);
  int64_t each = n / m->g->n, rest = n % m->g->n;
  return (comm_region){.start = (i * each + (i < rest ? i : rest)) * size,
                       .run = (each + (i < rest)) * size,
                       .n = 1};
}

/* Each member reduces its share, then all take the others': each reads the whole twice, however
 * many there are. */
static hp_status all_reduce(rendezvous *m, const void *from, void *out) {
  char *to = out;
  comm_region mine = share_of(m, m->g->me);
  for (int64_t i = 0; i < m->g->n; i++) {
    m->give[i] = share_of(m, i);
    m->take[i] = mine;
  }
  HP_TRY(come(m, from));
  HP_TRY(reduce(m, &mine, to + mine.start));
  HP_TRY(leave(m));
  for (int64_t i = 0; i < m->g->n; i++) {
    m->take[i] = m->give[i];
    m->give[i] = mine;
  }
  HP_TRY(come(m, to));
  for (int64_t i = 0; i < m->g->n; i++)
    if (i != m->g->me) memcpy(to + m->take[i].start, m->seen[i].at, (size_t)m->take[i].run);
  return leave(m);
}

static hp_status (*const by_op[])(rendezvous *m, const void *from, void *to) = {
    [OP_LOCAL_SHARD] = take_part, [OP_DROP] = drop,
    [OP_ALL_GATHER] = all_gather, [OP_REDUCE_SCATTER] = reduce_scatter,
    [OP_ALL_REDUCE] = all_reduce, [OP_ALL_TO_ALL] = all_to_all,
    [OP_LOCATE] = locate,         [OP_PLACE] = place,
    [OP_PERMUTE] = permute,       [OP_ZIGZAG] = zigzag,
};

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

static hp_status add_member(collectives *c, const prog_inst *n) {
  int64_t rank[COMM_MAX], me;
  member x = {.c = NULL};
  int64_t members = list_ranks(c->d, c->p, n, "axes", rank, &me);
  comm *job = c->d->comm;
  HP_TRY(job->iface->join(job, rank, members, me, &x.c));
  HP_TRY(describe_call(c->p, n, &x.call));
  return vec_push(&c->members, x) ? HP_OK : HP_ERR_OOM;
}

static hp_status list_members(collectives *c, int64_t *most) {
  for (size_t i = 0; i < c->p->insts.len; i++) {
    const prog_inst *n = program_inst(c->p, i);
    if (!(op_flags((op_id)n->op) & OPF_COLLECTIVE)) continue;
    if (!c->d->comm) HP_FAIL(HP_ERR_INTERNAL, "a collective on a device that is alone");
    c->number[i] = (uint32_t)c->members.len;
    HP_TRY(add_member(c, n));
    for (int k = 0; k < 2; k++) {
      int64_t bytes = bytes_of(&program_arg(c->p, n, k)->type);
      if (bytes > *most) *most = bytes;
    }
  }
  return HP_OK;
}

hp_status collectives_load(const device *d, const program *p, collectives **out) {
  int64_t most = 0;
  collectives *c = mem_calloc(1, sizeof *c);
  HP_TRY_MEM(c);
  *c = (collectives){.d = d, .p = p, .number = mem_calloc(p->insts.len, sizeof *c->number)};
  hp_status st = c->number ? list_members(c, &most) : HP_ERR_OOM;
  if (!st && d->comm && d->comm->iface->reserve) st = d->comm->iface->reserve(d->comm, most);
  if (st) collectives_free(c);
  else *out = c;
  return st;
}

void collectives_free(collectives *c) {
  if (!c) return;
  vec_free(&c->members);
  mem_free(c->number);
  mem_free(c);
}

hp_status collective_run(const collectives *c, size_t i, void *const *at, double *met_s) {
  const member *x = &c->members.at[c->number[i]];
  rendezvous m; /* large, and filled as far as it is used */
  m.d = c->d;
  m.p = c->p;
  m.n = program_inst(c->p, i);
  m.in = &program_arg(c->p, m.n, 0)->type;
  m.out = &program_arg(c->p, m.n, 1)->type;
  m.g = x->c;
  m.call = &x->call;
  m.met_s = 0;
  HP_TRY(by_op[m.n->op](&m, at[0], at[1]));
  if (m.met_s > 0) *met_s = m.met_s;
  return HP_OK;
}
