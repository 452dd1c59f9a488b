#include "shard/box.h"

#include <string.h>

box box_of(const int64_t *shape, int rank) {
  box b = {.rank = rank};
  for (int d = 0; d < rank; d++) b.stop[d] = shape[d];
  return b;
}

box box_of_shard(const mesh *m, const layout *l, const int64_t *shape, int64_t position) {
  box b = {.rank = l->rank};
  layout_slice(m, l, shape, position, b.start, b.stop);
  return b;
}

box box_room(const mesh *m, const layout *l, const int64_t *shape, int64_t position) {
  box b = box_of_shard(m, l, shape, position);
  for (int d = 0; d < l->rank; d++) b.stop[d] = b.start[d] + layout_shard_size(m, l, d, shape[d]);
  return b;
}

static int64_t extent(const box *b, int d) { return b->stop[d] - b->start[d]; }

int64_t box_elements(const box *b) {
  int64_t n = 1;
  for (int d = 0; d < b->rank; d++) n *= extent(b, d);
  return n;
}

bool box_intersect(const box *a, const box *b, box *out) {
  bool some = true;
  *out = *a;
  for (int d = 0; d < a->rank; d++) {
    if (b->start[d] > out->start[d]) out->start[d] = b->start[d];
    if (b->stop[d] < out->stop[d]) out->stop[d] = b->stop[d];
    some &= out->start[d] < out->stop[d];
  }
  return some;
}

void box_print(const box *b, str *out) {
  str_add_char(out, '[');
  for (int d = 0; d < b->rank; d++)
    str_printf(out, d ? ", %lld:%lld" : "%lld:%lld", (long long)b->start[d], (long long)b->stop[d]);
  str_add_char(out, ']');
}

/* --- who holds it ----------------------------------------------------------------------------- */

int64_t layout_first(const mesh *m, const layout *l, int64_t position) {
  for (int a = 0; a < m->axes; a++)
    if (layout_dim_of(l, a) < 0) position -= mesh_coordinate(m, position, a) * mesh_stride(m, a);
  return position;
}

int64_t layout_replica(const mesh *m, const layout *l, int64_t first, int64_t k) {
  for (int a = m->axes - 1; a >= 0; a--) {
    if (layout_dim_of(l, a) >= 0) continue;
    first += k % m->size[a] * mesh_stride(m, a);
    k /= m->size[a];
  }
  return first;
}

/* The first device that holds the shard with these numbers. */
static int64_t holder(const mesh *m, const layout *l, const int64_t *shard) {
  int64_t position = 0;
  for (int d = 0; d < l->rank; d++) {
    int64_t index = shard[d];
    for (int i = l->n[d] - 1; i >= 0; i--) {
      int axis = l->axis[d][i];
      position += index % m->size[axis] * mesh_stride(m, axis);
      index /= m->size[axis];
    }
  }
  return position;
}

static void show_shard(overlapping_shards *p) {
  box shard;
  p->first = holder(p->m, p->l, p->at);
  shard = box_of_shard(p->m, p->l, p->shape, p->first);
  p->more = box_intersect(&p->within, &shard, &p->common);
}

void shards_begin(overlapping_shards *p, const mesh *m, const layout *l, const int64_t *shape,
                  const box *b) {
  *p = (overlapping_shards){.m = m, .l = l, .shape = shape, .within = *b};
  if (!box_elements(b)) return;
  for (int d = 0; d < l->rank; d++) {
    int64_t shard = layout_shard_size(m, l, d, shape[d]);
    p->at[d] = p->low[d] = b->start[d] / shard;
    p->high[d] = (b->stop[d] - 1) / shard;
  }
  show_shard(p);
}

void shards_next(overlapping_shards *p) {
  int d = p->l->rank - 1;
  for (; d >= 0; d--) {
    if (p->at[d]++ < p->high[d]) break;
    p->at[d] = p->low[d];
  }
  p->more = d >= 0;
  if (p->more) show_shard(p);
}

/* --- elements --------------------------------------------------------------------------------- */

void runs_begin(box_runs *r, const box *b, const box *from, const box *to) {
  int64_t step_from = 1, step_to = 1;
  bool joined = true; /* all dims after this one are contained completely in both arrays */
  *r = (box_runs){.n = 1, .outer = b->rank};
  for (int d = b->rank - 1; d >= 0; d--) {
    int64_t size = extent(b, d);
    r->size[d] = size;
    r->step_from[d] = step_from;
    r->step_to[d] = step_to;
    r->from += (b->start[d] - from->start[d]) * step_from;
    r->to += (b->start[d] - to->start[d]) * step_to;
    step_from *= extent(from, d);
    step_to *= extent(to, d);
    if (joined) r->n *= size, r->outer = d;
    joined = joined && size == extent(from, d) && size == extent(to, d);
  }
  if (!box_elements(b)) r->n = 0;
}

void runs_next(box_runs *r) {
  for (int d = r->outer - 1; d >= 0; d--) {
    r->from += r->step_from[d];
    r->to += r->step_to[d];
    if (++r->at[d] < r->size[d]) return;
    r->from -= r->size[d] * r->step_from[d];
    r->to -= r->size[d] * r->step_to[d];
    r->at[d] = 0;
  }
  r->n = 0;
}

void box_copy(const box *b, size_t element, const box *from, const void *src, const box *to,
              void *dst) {
  box_runs r;
  for (runs_begin(&r, b, from, to); r.n; runs_next(&r))
    memcpy((char *)dst + (size_t)r.to * element, (const char *)src + (size_t)r.from * element,
           (size_t)r.n * element);
}
