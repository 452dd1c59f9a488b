/* The public API of layouts. */
#include "api/api_call.h"
#include "shard/layout_text.h"
#include "shard/slices.h"

#include <stdio.h>
#include <string.h>

struct hp_layout {
  mesh m;
  layout l;
  bool called;
};

static hp_status make(mesh *m, const layout *l, bool called, hp_layout **out) {
  hp_layout *made = mem_calloc(1, sizeof *made);
  if (!made) mesh_free(m);
  HP_TRY_MEM(made);
  *made = (hp_layout){*m, *l, called};
  *out = made;
  return HP_OK;
}

static hp_status make_on(const mesh *m, const layout *l, hp_layout **out) {
  const char *name[MESH_AXES];
  mesh copy;
  for (int a = 0; a < m->axes; a++) name[a] = m->name[a];
  HP_TRY(mesh_init(m->size, name, m->axes, m->rank, m->devices, &copy));
  return make(&copy, l, true, out);
}

static hp_status need_called(const hp_layout *l, const char *what) {
  if (l->called) return HP_OK;
  HP_FAIL(HP_ERR_LAYOUT,
          "layout: %s needs a tensor's layout; this is a mesh: use hp_layout_call first", what);
}

static hp_status need_rank(const hp_layout *l, hp_shape s) {
  HP_TRY(need_called(l, "a shard"));
  if (s.rank != l->l.rank || s.rank > HP_MAX_RANK)
    HP_FAIL(HP_ERR_SHAPE, "layout: the tensor has %d dims, its layout %d", s.rank, l->l.rank);
  for (int d = 0; d < s.rank; d++)
    if (s.dim[d] < 0)
      HP_FAIL(HP_ERR_SHAPE, "layout: dim %d of the tensor is %lld", d, (long long)s.dim[d]);
  return HP_OK;
}

HP_API hp_status hp_layout_create(const int64_t *device_matrix, const char *const *alias_name,
                                  int n_axes, const int64_t *rank_list, int64_t n_ranks,
                                  hp_layout **out) {
  API_CALL;
  API_NEED(device_matrix);
  API_NEED(alias_name);
  API_NEED(out);
  mesh m;
  HP_TRY(mesh_init(device_matrix, alias_name, n_axes, rank_list, n_ranks, &m));
  const int64_t devices = m.devices;
  if (!rank_list && n_ranks && n_ranks != devices) {
    mesh_free(&m);
    API_REFUSE("rank_list is NULL and n_ranks %lld; expected 0 or %lld, the devices of the mesh",
               (long long)n_ranks, (long long)devices);
  }
  return api_result(__func__, make(&m, &(layout){0}, false, out));
}

HP_API hp_status hp_layout_parse(const char *text, hp_layout **out) {
  API_CALL;
  API_NEED(text);
  API_NEED(out);
  mesh m;
  layout l;
  bool called;
  HP_TRY(layout_parse(text, &m, &l, &called));
  return api_result(__func__, make(&m, &l, called, out));
}

HP_API void hp_layout_free(hp_layout *l) {
  if (!l) return;
  mesh_free(&l->m);
  mem_free(l);
}

HP_API hp_status hp_layout_print(const hp_layout *l, char **text) {
  API_CALL;
  API_NEED(l);
  API_NEED(text);
  str out = {0};
  if (l->called) layout_print(&l->m, &l->l, &out);
  else mesh_print(&l->m, &out), mesh_print_ranks(&l->m, &out);
  return api_text(__func__, HP_OK, &out, text);
}

HP_API hp_status hp_layout_call(const hp_layout *l, const char *tensor_map, hp_layout **out) {
  API_CALL;
  API_NEED(l);
  API_NEED(tensor_map);
  API_NEED(out);
  layout made;
  HP_TRY(layout_parse_on(tensor_map, &l->m, &made));
  return api_result(__func__, make_on(&l->m, &made, out));
}

HP_API hp_status hp_layout_place(const hp_layout *l, const char *const *placement, int n, int rank,
                                 hp_layout **out) {
  API_CALL;
  API_NEED(l);
  API_NEED(placement);
  API_NEED(out);
  layout made;
  HP_TRY(layout_from_placements(&l->m, placement, n, rank, &made));
  return api_result(__func__, make_on(&l->m, &made, out));
}

HP_API hp_status hp_layout_set_partial(hp_layout *l, const char *axis, const char *op) {
  API_CALL;
  API_NEED(l);
  API_NEED(axis);
  API_NEED(op);
  HP_TRY(need_called(l, "a partial reduction"));
  return api_result(__func__, layout_set_partial(&l->m, &l->l, axis, op));
}

HP_API hp_status hp_layout_repeat(const hp_layout *l, int64_t *out) {
  API_CALL;
  API_NEED(l);
  API_NEED(out);
  HP_TRY(need_called(l, "the number of replicas"));
  *out = layout_repeat(&l->m, &l->l);
  return HP_OK;
}

HP_API hp_status hp_layout_slice(const hp_layout *l, hp_shape s, int64_t rank, int64_t *start,
                                 int64_t *stop) {
  API_CALL;
  API_NEED(l);
  API_NEED(start);
  API_NEED(stop);
  HP_TRY(need_rank(l, s));
  int d = layout_short_dim(&l->m, &l->l, s.dim);
  if (d >= 0)
    HP_FAIL(HP_ERR_SHAPE, "layout: dim %d of size %lld is more than its shards hold", d,
            (long long)s.dim[d]);
  int64_t position = mesh_position(&l->m, rank);
  if (position < 0) HP_FAIL(HP_ERR_LAYOUT, "layout: rank %lld is not on the mesh", (long long)rank);
  layout_slice(&l->m, &l->l, s.dim, position, start, stop);
  return HP_OK;
}

HP_API hp_status hp_layout_global(const hp_layout *l, hp_shape shard, hp_shape *out) {
  API_CALL;
  API_NEED(l);
  API_NEED(out);
  hp_shape s = shard;
  HP_TRY(need_rank(l, shard));
  for (int d = 0; d < s.rank; d++)
    if (__builtin_mul_overflow(shard.dim[d], layout_shard_count(&l->m, &l->l, d), &s.dim[d]))
      HP_FAIL(HP_ERR_SHAPE, "layout: dim %d of the global tensor is too large", d);
  *out = s;
  return HP_OK;
}

HP_API hp_status hp_layout_group(const hp_layout *l, const char *axis, int64_t rank, int64_t *ranks,
                                 int64_t room, int64_t *n) {
  API_CALL;
  API_NEED(l);
  API_NEED(axis);
  API_NEED(ranks);
  API_NEED(n);
  int a = mesh_axis(&l->m, axis, strlen(axis));
  int64_t position = mesh_position(&l->m, rank);
  if (a < 0) HP_FAIL(HP_ERR_LAYOUT, "layout: \"%.60s\" is not an axis of the mesh", axis);
  if (position < 0) HP_FAIL(HP_ERR_LAYOUT, "layout: rank %lld is not on the mesh", (long long)rank);
  if (room < l->m.size[a])
    HP_FAIL(HP_ERR_ARG, "layout: axis \"%s\" has %lld ranks, there is room for %lld", axis,
            (long long)l->m.size[a], (long long)room);
  *n = l->m.size[a];
  mesh_get_ranks(&l->m, position, &(uint8_t){(uint8_t)a}, 1, ranks);
  for (int64_t i = 0; i < *n; i++) ranks[i] = mesh_rank(&l->m, ranks[i]);
  return HP_OK;
}
