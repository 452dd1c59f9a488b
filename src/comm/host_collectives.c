#include "comm/host_collectives.h"

#include "base/dtype.h"
#include "base/thread.h"

#include <string.h>

/* A tensor seen along one dim: `outer` times `dim` runs of `inner` elements. */
typedef struct {
  int64_t outer, dim, inner;
} view;

/* A collective of this rank that is running. */
typedef struct {
  communicator *c;
  const comm_call *call;
  const comm_tensor *t;
  comm_region give[COMM_MAX], take[COMM_MAX];
  comm_view seen[COMM_MAX]; /* of the members */
} operation;

static view view_of(const hp_shape *s, int dim) {
  view v = {1, s->dim[dim], 1};
  for (int d = 0; d < dim; d++) v.outer *= s->dim[d];
  for (int d = dim + 1; d < s->rank; d++) v.inner *= s->dim[d];
  return v;
}

static int64_t size_of(const comm_tensor *t) { return (int64_t)dtype_size(t->type); }

static int64_t count_elements(const hp_shape *s) {
  int64_t n = 1;
  for (int d = 0; d < s->rank; d++) n *= s->dim[d];
  return n;
}

static int64_t count_bytes(const comm_tensor *t) { return count_elements(&t->shape) * size_of(t); }

/* Only the first rendezvous of a collective says when all had come. */
static hp_status come(operation *o, const void *data, double *arrived_s) {
  HP_TRY(o->c->of->iface->rendezvous(o->c, o->call, data, o->give, o->take, o->seen));
  if (arrived_s) *arrived_s = time_now_s();
  return HP_OK;
}
static hp_status leave(const operation *o) { return o->c->of->iface->leave(o->c); }

/* --- moves ------------------------------------------------------------------------------------ */

/* Shard `place` of a dim, of which a shard has so many elements. */
static comm_region shard_of(const operation *o, int dim, int64_t elements, int64_t place) {
  view x = view_of(&o->t->shape, dim);
  int64_t each = x.inner * size_of(o->t);
  return (comm_region){place * elements * each, x.dim * each, elements * each, x.outer};
}

/* Joins what is seen of the members along a dim: of each the region, which has a stride of its own
 * after `row` bytes.  Rows are many to a run that goes over together, or runs many to a row. */
static void join(const operation *o, const hp_shape *region, int64_t row, char *to) {
  int64_t outer = view_of(region, o->t->dim).outer;
  int64_t bytes = count_elements(region) * size_of(o->t);
  int64_t run = outer ? bytes / outer : 0, step = run < row ? run : row;
  for (int64_t r = 0; r < outer; r++)
    for (int64_t i = 0; i < o->c->n; i++)
      for (int64_t k = r * run; k < (r + 1) * run; k += step, to += step)
        memcpy(to, o->seen[i].at + k / row * o->seen[i].stride + k % row, (size_t)step);
}

/* The beginning of every collective: what is large is filled as far as it is used. */
#define BEGIN(o)                                                                                   \
  operation o;                                                                                     \
  (void)stream; /* a thread of the caller's */                                                     \
  o.c = c;                                                                                         \
  o.call = call;                                                                                   \
  o.t = t

hp_status host_all_gather(communicator *c, const comm_call *call, const comm_tensor *t,
                          const void *from, void *to, int stream, double *arrived_s) {
  BEGIN(o);
  int64_t bytes = count_bytes(t);
  for (int64_t i = 0; i < c->n; i++) o.give[i] = o.take[i] = (comm_region){.run = bytes, .n = 1};
  HP_TRY(come(&o, from, arrived_s));
  join(&o, &t->shape, bytes, to);
  return leave(&o);
}

/* All of one member. */
hp_status host_permute(communicator *c, const comm_call *call, const comm_tensor *t,
                       const void *from, void *to, int stream, double *arrived_s) {
  BEGIN(o);
  int64_t by = t->by % c->n, bytes = count_bytes(t);
  int64_t source = (c->me - by + c->n) % c->n, target = (c->me + by) % c->n;
  for (int64_t i = 0; i < c->n; i++) o.give[i] = o.take[i] = (comm_region){0};
  o.give[target] = o.take[source] = (comm_region){.run = bytes, .n = 1};
  HP_TRY(come(&o, from, arrived_s));
  memcpy(to, o.seen[source].at, (size_t)bytes);
  return leave(&o);
}

/* Which member has chunk k of 2n, and in which half, before (2 to a member in order) and after the
 * zigzag. */
typedef struct {
  int64_t member, half;
} chunk;
static chunk chunk_at(int64_t k, int64_t n, bool zigzag) {
  if (!zigzag) return (chunk){k / 2, k % 2};
  return k < n ? (chunk){k, 0} : (chunk){2 * n - 1 - k, 1};
}

/* A half goes to one member, so what goes from one to another is nothing, a half or all. */
static comm_region half_region(const operation *o, int64_t source, int64_t target) {
  int64_t half = o->t->shape.dim[o->t->dim] / 2, first = 2, last = -1;
  for (int64_t k = 0; k < 2 * o->c->n; k++) {
    chunk a = chunk_at(k, o->c->n, o->t->inverse), b = chunk_at(k, o->c->n, !o->t->inverse);
    if (a.member != source || b.member != target) continue;
    if (a.half < first) first = a.half;
    if (a.half > last) last = a.half;
  }
  comm_region none = {0}, p = shard_of(o, o->t->dim, half, first);
  p.run *= last - first + 1;
  return last < 0 ? none : p;
}

hp_status host_zigzag(communicator *c, const comm_call *call, const comm_tensor *t,
                      const void *from, void *to, int stream, double *arrived_s) {
  BEGIN(o);
  for (int64_t i = 0; i < c->n; i++) {
    o.give[i] = half_region(&o, c->me, i);
    o.take[i] = half_region(&o, i, c->me);
  }
  HP_TRY(come(&o, from, arrived_s));
  int64_t run = shard_of(&o, t->dim, t->shape.dim[t->dim] / 2, 0).run;
  for (int64_t k = 0; k < 2 * c->n; k++) {
    chunk a = chunk_at(k, c->n, t->inverse), b = chunk_at(k, c->n, !t->inverse);
    if (b.member != c->me) continue;
    const comm_region *region = &o.take[a.member];
    const char *at = o.seen[a.member].at + (region->run > run ? a.half * run : 0);
    for (int64_t r = 0; r < region->n; r++)
      memcpy((char *)to + (2 * r + b.half) * run, at + r * o.seen[a.member].stride, (size_t)run);
  }
  return leave(&o);
}

/* Every member's shard along `dim`, of which only this member's shard of `cut` is taken. */
hp_status host_all_to_all(communicator *c, const comm_call *call, const comm_tensor *t,
                          const void *from, void *to, int stream, double *arrived_s) {
  BEGIN(o);
  hp_shape region = t->shape; /* what goes from one to another */
  int64_t each = region.dim[t->cut] /= c->n;
  for (int64_t i = 0; i < c->n; i++) {
    o.give[i] = shard_of(&o, t->cut, each, t->place[i]);
    o.take[i] = shard_of(&o, t->cut, each, t->place[c->me]);
  }
  HP_TRY(come(&o, from, arrived_s));
  join(&o, &region, o.take[0].run, to);
  return leave(&o);
}

/* --- reductions ------------------------------------------------------------------------------- */

enum { CHUNK = 1024 };

static float reduce_float(comm_reduction op, float a, float b) {
  switch (op) {
  case COMM_REDUCE_MAX: return a > b || a != a ? a : b;
  case COMM_REDUCE_MIN: return a < b || a != a ? a : b;
  case COMM_REDUCE_PROD: return a * b;
  default: return a + b;
  }
}
static int64_t reduce_int(comm_reduction op, int64_t a, int64_t b) {
  switch (op) {
  case COMM_REDUCE_MAX: return a > b ? a : b;
  case COMM_REDUCE_MIN: return a < b ? a : b;
  case COMM_REDUCE_PROD: return (int64_t)((uint64_t)a * (uint64_t)b);
  case COMM_REDUCE_AND: return a && b;
  default: return (int64_t)((uint64_t)a + (uint64_t)b);
  }
}

static const char *seen_at(const operation *o, int64_t i, int64_t row, int64_t at) {
  return o->seen[i].at + row * o->seen[i].stride + at;
}

static hp_status reduce_floats(const operation *o, comm_reduction op, int64_t row, int64_t at,
                               int64_t n, char *to) {
  float sum[CHUNK], next[CHUNK];
  hp_dtype t = o->t->type;
  for (int64_t i = 0; i < o->c->n; i++) {
    const char *from = seen_at(o, i, row, at);
    HP_TRY(dtype_convert(HP_F32, i ? next : sum, t, from, (size_t)n));
    for (int64_t k = 0; i && k < n; k++) sum[k] = reduce_float(op, sum[k], next[k]);
  }
  for (int64_t k = 0; op == COMM_REDUCE_AVG && k < n; k++) sum[k] /= (float)o->c->n;
  return dtype_convert(t, to, HP_F32, sum, (size_t)n);
}

static int64_t load_int(hp_dtype t, const char *at) {
  int32_t x;
  int64_t y;
  if (t == HP_I64) return memcpy(&y, at, sizeof y), y;
  if (t == HP_I32) return memcpy(&x, at, sizeof x), x;
  return *(const uint8_t *)at;
}

static void reduce_ints(const operation *o, comm_reduction op, int64_t row, int64_t at, int64_t n,
                        char *to) {
  hp_dtype t = o->t->type;
  size_t size = dtype_size(t);
  for (int64_t k = 0; k < n; k++) {
    int64_t x = 0;
    for (int64_t i = 0; i < o->c->n; i++) {
      int64_t y = load_int(t, seen_at(o, i, row, at) + (size_t)k * size);
      x = i ? reduce_int(op, x, y) : y;
    }
    if (op == COMM_REDUCE_AVG) x /= o->c->n;
    memcpy(to + (size_t)k * size, &x, size); /* little endian */
  }
}

/* n elements of run `row` of what is seen of all members, reduced into `to`. */
static hp_status reduce_run(const operation *o, int64_t row, int64_t n, char *to) {
  comm_reduction op = o->t->reduction;
  int64_t size = (int64_t)dtype_size(o->t->type);
  for (int64_t k = 0; k < n; k += CHUNK) {
    int64_t some = n - k < CHUNK ? n - k : CHUNK;
    if (dtype_is_float(o->t->type))
      HP_TRY(reduce_floats(o, op, row, k * size, some, to + k * size));
    else reduce_ints(o, op, row, k * size, some, to + k * size);
  }
  return HP_OK;
}

/* What is seen of a region, reduced run by run. */
static hp_status reduce(const operation *o, const comm_region *region, char *to) {
  int64_t size = (int64_t)dtype_size(o->t->type);
  for (int64_t k = 0; k < region->n; k++)
    HP_TRY(reduce_run(o, k, region->run / size, to + k * region->run));
  return HP_OK;
}

/* This member's shard of a dim, reduced. */
hp_status host_reduce_scatter(communicator *c, const comm_call *call, const comm_tensor *t,
                              const void *from, void *to, int stream, double *arrived_s) {
  BEGIN(o);
  int64_t each = t->shape.dim[t->dim] / c->n;
  for (int64_t i = 0; i < c->n; i++) {
    o.give[i] = shard_of(&o, t->dim, each, i);
    o.take[i] = shard_of(&o, t->dim, each, c->me);
  }
  HP_TRY(come(&o, from, arrived_s));
  HP_TRY(reduce(&o, &o.take[0], to));
  return leave(&o);
}

/* The share of member i of all elements. */
static comm_region share_of(const operation *o, int64_t i) {
  int64_t size = size_of(o->t), n = count_elements(&o->t->shape);
  int64_t each = n / o->c->n, rest = n % o->c->n;
  return (comm_region){.start = (i * each + (i < rest ? i : rest)) * size,
                       .run = (each + (i < rest)) * size,
                       .n = 1};
}

/* Each member reduces its share, then all take the others': each reads all of it twice, however
 * many there are. */
hp_status host_all_reduce(communicator *c, const comm_call *call, const comm_tensor *t,
                          const void *from, void *out, int stream, double *arrived_s) {
  BEGIN(o);
  char *to = out;
  comm_region mine = share_of(&o, c->me);
  for (int64_t i = 0; i < c->n; i++) {
    o.give[i] = share_of(&o, i);
    o.take[i] = mine;
  }
  HP_TRY(come(&o, from, arrived_s));
  HP_TRY(reduce(&o, &mine, to + mine.start));
  HP_TRY(leave(&o));
  for (int64_t i = 0; i < c->n; i++) {
    o.take[i] = o.give[i];
    o.give[i] = mine;
  }
  HP_TRY(come(&o, to, NULL));
  for (int64_t i = 0; i < c->n; i++)
    if (i != c->me) memcpy(to + o.take[i].start, o.seen[i].at, (size_t)o.take[i].run);
  return leave(&o);
}
