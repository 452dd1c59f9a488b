#include "rt/collective.h"

#include "base/dtype.h"
#include "ir/layout.h"

#include <math.h>
#include <string.h>

/* A part seen along one dim: `outer` times `dim` runs of `inner` elements. */
typedef struct {
  int64_t outer, dim, inner;
} view;

typedef struct {
  const device *d;
  const program *p;
  const prog_inst *n;
  const ir_value *in, *out;
  int64_t group[COMM_LOCAL_MAX], size, place; /* place: of this device in the group */
  const void *data[COMM_LOCAL_MAX];           /* of the members */
} meeting;

static view view_of(const ir_value *x, int64_t dim) {
  view v = {1, x->dim[dim], 1};
  for (int64_t d = 0; d < dim; d++) v.outer *= x->dim[d];
  for (int64_t d = dim + 1; d < x->rank; d++) v.inner *= x->dim[d];
  return v;
}

/* Ranks of the group in the order of the axes; the place of this device among them. */
static int64_t group_by(const meeting *m, const char *key, int64_t *group) {
  int64_t axes[ATTR_LIST_MAX], place = 0;
  uint8_t axis[LAYOUT_AXES];
  int n = inst_list(m->p, m->n, key, axes);
  for (int i = 0; i < n; i++) axis[i] = (uint8_t)axes[i];
  mesh_group(m->d->mesh, m->d->position, axis, n, group);
  while (group[place] != m->d->position) place++;
  return place;
}

/* --- moves ---------------------------------------------------------------------------------------
 */

/* Own part of a dim. */
static void take_part(const meeting *m, const void *from, void *to) {
  view x = view_of(m->in, inst_int(m->p, m->n, "dim")),
       y = view_of(m->out, inst_int(m->p, m->n, "dim"));
  size_t run = (size_t)(y.dim * y.inner) * dtype_size(m->in->dtype);
  for (int64_t o = 0; o < x.outer; o++)
    memcpy((char *)to + (size_t)o * run,
           (const char *)from + (size_t)(o * (x.dim / y.dim) + m->place) * run, run);
}

static void join(const meeting *m, void *to) {
  view x = view_of(m->in, inst_int(m->p, m->n, "dim"));
  size_t run = (size_t)(x.dim * x.inner) * dtype_size(m->in->dtype);
  for (int64_t o = 0; o < x.outer; o++)
    for (int64_t i = 0; i < m->size; i++)
      memcpy((char *)to + (size_t)(o * m->size + i) * run,
             (const char *)m->data[i] + (size_t)o * run, run);
}

/* Every member's part along `dim`, of which only this device's part of `to` is taken.  The dims are
 * seen as [a, first, b, second, c]. */
static void exchange(const meeting *m, int64_t cut_place, void *to) {
  int64_t dim = inst_int(m->p, m->n, "dim"), cut = inst_int(m->p, m->n, "to");
  int64_t first = dim < cut ? dim : cut, second = dim < cut ? cut : dim, b = 1;
  view outer = view_of(m->out, first), inner = view_of(m->out, second);
  for (int64_t d = first + 1; d < second; d++) b *= m->out->dim[d];
  size_t run = (size_t)inner.inner * dtype_size(m->in->dtype);
  for (int64_t a = 0; a < outer.outer; a++)
    for (int64_t i = 0; i < outer.dim; i++)
      for (int64_t k = 0; k < b; k++)
        for (int64_t j = 0; j < inner.dim; j++) {
          int64_t along = dim < cut ? i : j, part = m->in->dim[dim];
          int64_t x = along % part, y = (dim < cut ? j : i) + cut_place * m->out->dim[cut];
          int64_t row = a * m->in->dim[first] + (dim < cut ? x : y);
          int64_t from = (row * b + k) * m->in->dim[second] + (dim < cut ? y : x);
          memcpy((char *)to, (const char *)m->data[along / part] + (size_t)from * run, run);
          to = (char *)to + run;
        }
}

/* --- reductions ----------------------------------------------------------------------------------
 */

enum { CHUNK = 1024 };

static float reduce_float(int op, float a, float b) {
  switch (op) {
  case PENDING_MAX: return a > b || a != a ? a : b;
  case PENDING_MIN: return a < b || a != a ? a : b;
  case PENDING_PROD: return a * b;
  default: return a + b;
  }
}
static int64_t reduce_int(int op, int64_t a, int64_t b) {
  switch (op) {
  case PENDING_MAX: return a > b ? a : b;
  case PENDING_MIN: return a < b ? a : b;
  case PENDING_PROD: return (int64_t)((uint64_t)a * (uint64_t)b);
  case PENDING_ALL: return a && b;
  default: return (int64_t)((uint64_t)a + (uint64_t)b);
  }
}

static hp_status reduce_floats(const meeting *m, int op, int64_t at, int64_t n, char *to) {
  float sum[CHUNK], next[CHUNK];
  hp_dtype t = (hp_dtype)m->in->dtype;
  size_t size = dtype_size(t);
  for (int64_t i = 0; i < m->size; i++) {
    const char *from = (const char *)m->data[i] + (size_t)at * size;
    HP_TRY(dtype_convert(HP_F32, i ? next : sum, t, from, (size_t)n));
    for (int64_t k = 0; i && k < n; k++) sum[k] = reduce_float(op, sum[k], next[k]);
  }
  for (int64_t k = 0; op == PENDING_AVG && k < n; k++) sum[k] /= (float)m->size;
  return dtype_convert(t, to, HP_F32, sum, (size_t)n);
}

static int64_t load_int(hp_dtype t, const char *at) {
  int32_t x;
  int64_t y;
  if (t == HP_I64) return memcpy(&y, at, sizeof y), y;
  if (t == HP_I32) return memcpy(&x, at, sizeof x), x;
  return *(const uint8_t *)at;
}

static void reduce_ints(const meeting *m, int op, int64_t at, int64_t n, char *to) {
  hp_dtype t = (hp_dtype)m->in->dtype;
  size_t size = dtype_size(t);
  for (int64_t k = 0; k < n; k++) {
    int64_t x = 0;
    for (int64_t i = 0; i < m->size; i++) {
      int64_t y = load_int(t, (const char *)m->data[i] + (size_t)(at + k) * size);
      x = i ? reduce_int(op, x, y) : y;
    }
    if (op == PENDING_AVG) x /= m->size;
    memcpy(to + (size_t)k * size, &x, size); /* little endian */
  }
}

/* n elements from `at` on of all members, reduced into `to`. */
static hp_status reduce_run(const meeting *m, int64_t at, int64_t n, char *to) {
  int op = (int)inst_int(m->p, m->n, "op");
  size_t size = dtype_size(m->in->dtype);
  for (int64_t k = 0; k < n; k += CHUNK) {
    int64_t some = n - k < CHUNK ? n - k : CHUNK;
    if (dtype_is_float(m->in->dtype))
      HP_TRY(reduce_floats(m, op, at + k, some, to + (size_t)k * size));
    else reduce_ints(m, op, at + k, some, to + (size_t)k * size);
  }
  return HP_OK;
}

static hp_status reduce_part(const meeting *m, void *to) {
  int64_t dim = inst_int(m->p, m->n, "dim");
  view x = view_of(m->in, dim), y = view_of(m->out, dim);
  int64_t run = y.dim * y.inner;
  for (int64_t o = 0; o < x.outer; o++)
    HP_TRY(reduce_run(m, (o * (x.dim / y.dim) + m->place) * run, run,
                      (char *)to + (size_t)(o * run) * dtype_size(m->in->dtype)));
  return HP_OK;
}

/* What changes nothing in the reduction, on all devices but the first. */
static hp_status drop(const meeting *m, const void *from, void *to) {
  int op = (int)inst_int(m->p, m->n, "op");
  int64_t n = value_elements(m->in);
  size_t size = dtype_size(m->in->dtype);
  memcpy(to, from, (size_t)n * size);
  if (!m->place || (op != PENDING_SUM && op != PENDING_PROD)) return HP_OK;
  memset(to, 0, (size_t)n * size);
  float one = 1;
  for (int64_t k = 0; op == PENDING_PROD && k < n; k++)
    HP_TRY(dtype_convert((hp_dtype)m->in->dtype, (char *)to + (size_t)k * size, HP_F32, &one, 1));
  return HP_OK;
}

/* --- meetings
 * --------------------------------------------------------------------------------------- */

/* Elements before the share of member i. */
static int64_t share_start(const meeting *m, int64_t i) {
  int64_t n = value_elements(m->in), share = n / m->size, rest = n % m->size;
  return i * share + (i < rest ? i : rest);
}

static hp_status meet(meeting *m, const void *data) {
  return comm_local_meet(m->d->comm, (int)m->d->position, m->group, m->size, data, m->data);
}
static hp_status leave(const meeting *m) {
  return comm_local_leave(m->d->comm, (int)m->d->position, m->group, m->size);
}

/* Each member reduces its share, then all take the others': each reads the whole twice, however
 * many there are. */
static hp_status all_reduce(meeting *m, const void *from, char *to) {
  size_t size = dtype_size(m->in->dtype);
  int64_t first = share_start(m, m->place), n = share_start(m, m->place + 1) - first;
  HP_TRY(meet(m, from));
  HP_TRY(reduce_run(m, first, n, to + (size_t)first * size));
  HP_TRY(leave(m));
  HP_TRY(meet(m, to));
  for (int64_t i = 0; i < m->size; i++) {
    size_t start = (size_t)share_start(m, i) * size, end = (size_t)share_start(m, i + 1) * size;
    if (i != m->place) memcpy(to + start, (const char *)m->data[i] + start, end - start);
  }
  return leave(m);
}

static hp_status together(meeting *m, const void *from, void *to) {
  int64_t cut[COMM_LOCAL_MAX];
  hp_status st = HP_OK;
  HP_TRY(meet(m, from));
  if (m->n->op == OP_REDUCE_SCATTER) st = reduce_part(m, to);
  else if (m->n->op == OP_ALL_TO_ALL) exchange(m, group_by(m, "cut", cut), to);
  else join(m, to);
  HP_TRY(st);
  return leave(m);
}

hp_status collective_run(const device *d, const program *p, const prog_inst *n, void *const *at) {
  meeting m = {.d = d, .p = p, .n = n};
  m.in = &program_arg(p, n, 0)->type;
  m.out = &program_arg(p, n, 1)->type;
  m.size = inst_int(p, n, "n");
  if (!d->comm) HP_FAIL(HP_ERR_INTERNAL, "a collective on a device that is alone");
  m.place = group_by(&m, "axes", m.group);
  if (n->op == OP_DROP) return drop(&m, at[0], at[1]);
  if (n->op == OP_ALL_REDUCE) return all_reduce(&m, at[0], at[1]);
  if (n->op != OP_PART) return together(&m, at[0], at[1]);
  take_part(&m, at[0], at[1]);
  return HP_OK;
}
