#include "topo/mesh.h"

#include <stdlib.h>
#include <string.h>

enum { DEVICES_MAX = 1 << 24 };

/* --- checks ---------------------------------------------------------------------------------- */

static hp_status check_sizes(const int64_t *size, int axes, int64_t *devices) {
  *devices = 1;
  if (axes < 1 || axes > MESH_AXES)
    HP_FAIL(HP_ERR_LAYOUT, "device matrix: has %d axes, expected 1 to %d", axes, MESH_AXES);
  for (int a = 0; a < axes; a++) {
    if (size[a] < 1)
      HP_FAIL(HP_ERR_LAYOUT, "device matrix: axis %d has size %lld, expected at least 1", a,
              (long long)size[a]);
    if (__builtin_mul_overflow(*devices, size[a], devices) || *devices > DEVICES_MAX)
      HP_FAIL(HP_ERR_LAYOUT, "device matrix: more than %d devices", DEVICES_MAX);
  }
  return HP_OK;
}

static hp_status check_name(const char *const *name, int a, int axes) {
  const char *s = name[a];
  if (!s || !*s) HP_FAIL(HP_ERR_LAYOUT, "alias name %d is empty; give every axis a name", a);
  if (!strcmp(s, "None"))
    HP_FAIL(HP_ERR_LAYOUT, "alias name %d is \"None\", which means no axis", a);
  if (strlen(s) >= MESH_NAME)
    HP_FAIL(HP_ERR_LAYOUT, "alias name \"%.32s...\" is longer than %d bytes", s, MESH_NAME - 1);
  for (const char *c = s; *c; c++)
    if ((unsigned char)*c <= ' ' || strchr("(),+:@\"", *c))
      HP_FAIL(HP_ERR_LAYOUT,
              "alias name \"%s\": no blank, quote or any of ( ) , + : @ may be in a name", s);
  for (int b = 0; b < a; b++)
    if (!strcmp(s, name[b]))
      HP_FAIL(HP_ERR_LAYOUT, "alias name \"%s\" names axes %d and %d; names must differ", s, b, a);
  if (!strcmp(s, "interleaved_parallel") && a != axes - 1)
    HP_FAIL(HP_ERR_LAYOUT,
            "alias name \"interleaved_parallel\" is axis %d; it must be the last, %d", a, axes - 1);
  return HP_OK;
}

static int compare_ranks(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

static hp_status check_ranks(const int64_t *rank, int64_t ranks, int64_t devices) {
  if (ranks != devices)
    HP_FAIL(HP_ERR_LAYOUT, "rank list: has %lld ranks, the device matrix %lld devices",
            (long long)ranks, (long long)devices);
  int64_t *sorted = mem_calloc((size_t)ranks, sizeof *sorted);
  HP_TRY_MEM(sorted);
  memcpy(sorted, rank, (size_t)ranks * sizeof *sorted);
  qsort(sorted, (size_t)ranks, sizeof *sorted, compare_ranks);
  int64_t twice = -1, least = sorted[0];
  for (int64_t i = 1; i < ranks && twice < 0; i++)
    if (sorted[i] == sorted[i - 1]) twice = sorted[i];
  mem_free(sorted);
  if (least < 0) HP_FAIL(HP_ERR_LAYOUT, "rank list: rank %lld is negative", (long long)least);
  if (twice >= 0) HP_FAIL(HP_ERR_LAYOUT, "rank list: rank %lld occurs twice", (long long)twice);
  return HP_OK;
}

/* --- the mesh -------------------------------------------------------------------------------- */

hp_status mesh_init(const int64_t *size, const char *const *name, int axes, const int64_t *rank,
                    int64_t ranks, mesh *out) {
  mesh m = {.axes = axes, .consecutive = true};
  HP_TRY(check_sizes(size, axes, &m.devices));
  for (int a = 0; a < axes; a++) {
    HP_TRY(check_name(name, a, axes));
    m.size[a] = size[a];
    memcpy(m.name[a], name[a], strlen(name[a]));
  }
  if (rank) {
    HP_TRY(check_ranks(rank, ranks, m.devices));
    m.rank = mem_calloc((size_t)m.devices, sizeof *m.rank);
    HP_TRY_MEM(m.rank);
    memcpy(m.rank, rank, (size_t)m.devices * sizeof *m.rank);
    for (int64_t p = 1; p < m.devices; p++) m.consecutive &= rank[p] == rank[0] + p;
  }
  *out = m;
  return HP_OK;
}

void mesh_free(mesh *m) {
  mem_free(m->rank);
  *m = (mesh){0};
}

int mesh_axis(const mesh *m, const char *name, size_t n) {
  for (int a = 0; a < m->axes; a++)
    if (strlen(m->name[a]) == n && !memcmp(m->name[a], name, n)) return a;
  return -1;
}

int64_t mesh_rank(const mesh *m, int64_t position) {
  return m->rank ? m->rank[position] : position;
}

int64_t mesh_position(const mesh *m, int64_t rank) {
  if (!m->rank) return rank >= 0 && rank < m->devices ? rank : -1;
  for (int64_t p = 0; p < m->devices; p++)
    if (m->rank[p] == rank) return p;
  return -1;
}

int64_t mesh_stride(const mesh *m, int axis) {
  int64_t stride = 1;
  for (int a = axis + 1; a < m->axes; a++) stride *= m->size[a];
  return stride;
}

int64_t mesh_coordinate(const mesh *m, int64_t position, int axis) {
  return position / mesh_stride(m, axis) % m->size[axis];
}

void mesh_get_ranks(const mesh *m, int64_t position, const uint8_t *axis, int n, int64_t *out) {
  int64_t count = 1;
  for (int i = 0; i < n; i++) {
    position -= mesh_coordinate(m, position, axis[i]) * mesh_stride(m, axis[i]);
    count *= m->size[axis[i]];
  }
  for (int64_t k = 0; k < count; k++) {
    int64_t rest = k;
    out[k] = position;
    for (int i = n - 1; i >= 0; i--) {
      out[k] += rest % m->size[axis[i]] * mesh_stride(m, axis[i]);
      rest /= m->size[axis[i]];
    }
  }
}

void mesh_names(const mesh *m, str *out) {
  for (int a = 0; a < m->axes; a++) str_printf(out, a ? ", %s" : "%s", m->name[a]);
}
