#include "shard/slices.h"

int64_t layout_shard_count(const mesh *m, const layout *l, int d) {
  int64_t shards = 1;
  for (int i = 0; i < l->n[d]; i++) shards *= m->size[l->axis[d][i]];
  return shards;
}

int64_t layout_repeat(const mesh *m, const layout *l) {
  int64_t repeat = m->devices;
  for (int d = 0; d < l->rank; d++) repeat /= layout_shard_count(m, l, d);
  return repeat;
}

int64_t layout_shard_size(const mesh *m, const layout *l, int d, int64_t size) {
  int64_t shards = layout_shard_count(m, l, d);
  if (l->shard_size[d]) return l->shard_size[d];
  return size / shards + (size % shards != 0);
}

int64_t layout_padded_size(const mesh *m, const layout *l, int d, int64_t size) {
  int64_t all;
  if (__builtin_mul_overflow(layout_shard_size(m, l, d, size), layout_shard_count(m, l, d), &all))
    return INT64_MAX;
  return all;
}

int layout_short_dim(const mesh *m, const layout *l, const int64_t *shape) {
  for (int d = 0; d < l->rank; d++)
    if (layout_padded_size(m, l, d, shape[d]) < shape[d]) return d;
  return -1;
}

int64_t layout_shard_index(const mesh *m, const layout *l, int d, int64_t position) {
  int64_t index = 0;
  for (int i = 0; i < l->n[d]; i++) {
    int axis = l->axis[d][i];
    index = index * m->size[axis] + mesh_coordinate(m, position, axis);
  }
  return index;
}

void layout_slice(const mesh *m, const layout *l, const int64_t *shape, int64_t position,
                  int64_t *start, int64_t *stop) {
  for (int d = 0; d < l->rank; d++) {
    int64_t shard = layout_shard_size(m, l, d, shape[d]);
    start[d] = layout_shard_index(m, l, d, position) * shard;
    if (start[d] > shape[d]) start[d] = shape[d];
    stop[d] = shape[d] - start[d] < shard ? shape[d] : start[d] + shard;
  }
}

int layout_free_axes(const mesh *m, const layout *l, uint8_t out[LAYOUT_AXES]) {
  int n = 0;
  for (int a = 0; a < m->axes; a++)
    if (layout_dim_of(l, a) < 0) out[n++] = (uint8_t)a;
  return n;
}
