#include "comm/host_collectives.h"

#include "comm/host_operation.h"

#include <string.h>

static int64_t count_elements(const hp_shape *s) {
  int64_t n = 1;
  for (int d = 0; d < s->rank; d++) n *= s->dim[d];
  return n;
}

static int64_t count_bytes(const comm_tensor *t) { return count_elements(&t->shape) * size_of(t); }

/* --- moves ------------------------------------------------------------------------------------ */

/* Shard `place` of a dim, of which a shard has so many elements. */
static comm_region shard_of(const operation *o, int dim, int64_t elements, int64_t place) {
  view x = view_of(&o->t->shape, dim);
  int64_t each = x.inner * size_of(o->t);
  return (comm_region){.start = place * elements * each,
                       .stride = x.dim * each,
                       .run = elements * each,
                       .n = x.outer};
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

hp_status host_all_gather(communicator *c, const comm_call *call, const comm_tensor *t,
                          const void *from, void *to, int stream, double *arrived_s) {
  BEGIN(o);
  int64_t bytes = count_bytes(t);
  for (int64_t i = 0; i < c->n; i++) o.give[i] = o.take[i] = (comm_region){.run = bytes, .n = 1};
  HP_TRY(host_come(&o, from, arrived_s));
  join(&o, &t->shape, bytes, to);
  return host_leave(&o);
}

/* All of one member. */
hp_status host_permute(communicator *c, const comm_call *call, const comm_tensor *t,
                       const void *from, void *to, int stream, double *arrived_s) {
  BEGIN(o);
  int64_t by = t->by % c->n, bytes = count_bytes(t);
  int64_t source = (c->me - by + c->n) % c->n, target = (c->me + by) % c->n;
  for (int64_t i = 0; i < c->n; i++) o.give[i] = o.take[i] = (comm_region){0};
  o.give[target] = o.take[source] = (comm_region){.run = bytes, .n = 1};
  HP_TRY(host_come(&o, from, arrived_s));
  memcpy(to, o.seen[source].at, (size_t)bytes);
  return host_leave(&o);
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
  HP_TRY(host_come(&o, from, arrived_s));
  int64_t run = shard_of(&o, t->dim, t->shape.dim[t->dim] / 2, 0).run;
  for (int64_t k = 0; k < 2 * c->n; k++) {
    chunk a = chunk_at(k, c->n, t->inverse), b = chunk_at(k, c->n, !t->inverse);
    if (b.member != c->me) continue;
    const comm_region *region = &o.take[a.member];
    const char *at = o.seen[a.member].at + (region->run > run ? a.half * run : 0);
    for (int64_t r = 0; r < region->n; r++)
      memcpy((char *)to + (2 * r + b.half) * run, at + r * o.seen[a.member].stride, (size_t)run);
  }
  return host_leave(&o);
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
  HP_TRY(host_come(&o, from, arrived_s));
  join(&o, &region, o.take[0].run, to);
  return host_leave(&o);
}

/* --- reductions ------------------------------------------------------------------------------- */

/* What is seen of a region, reduced run by run. */
static hp_status reduce(operation *o, const comm_region *region, char *to) {
  for (int64_t k = 0; k < region->n; k++) {
    for (int64_t i = 0; i < o->c->n; i++) o->run[i] = comm_view_run(&o->seen[i], k);
    HP_TRY(host_reduce_run(o, region->run / size_of(o->t), to + k * region->run));
  }
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
  HP_TRY(host_come(&o, from, arrived_s));
  HP_TRY(reduce(&o, &o.take[0], to));
  return host_leave(&o);
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
  HP_TRY(host_come(&o, from, arrived_s));
  HP_TRY(reduce(&o, &mine, to + mine.start));
  HP_TRY(host_leave(&o));
  for (int64_t i = 0; i < c->n; i++) {
    o.take[i] = o.give[i];
    o.give[i] = mine;
  }
  HP_TRY(host_come(&o, to, NULL));
  for (int64_t i = 0; i < c->n; i++)
    if (i != c->me) memcpy(to + o.take[i].start, o.seen[i].at, (size_t)o.take[i].run);
  return host_leave(&o);
}
