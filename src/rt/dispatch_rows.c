#include "rt/dispatch_rows.h"

#include "base/mem.h"

typedef struct {
  uint8_t axis[MESH_AXES];
  int n;
  int64_t devices;
} axis_list;

static hp_status read_axes(const mesh *m, const program *p, const prog_inst *n, const char *key,
                           axis_list *out) {
  int64_t axes[ATTR_LIST_MAX];
  *out = (axis_list){.n = inst_list(p, n, key, axes), .devices = 1};
  for (int i = 0; i < out->n; i++) {
    if (axes[i] < 0 || axes[i] >= m->axes || i >= MESH_AXES)
      HP_FAIL(HP_ERR_INTERNAL, "%s: %lld in %s is no axis of the mesh, which has %d",
              op_table[n->op].name, (long long)axes[i], key, m->axes);
    out->axis[i] = (uint8_t)axes[i];
    out->devices *= m->size[axes[i]];
  }
  return HP_OK;
}

/* A device's number along the axes, the first outermost. */
static int32_t number_along(const mesh *m, const axis_list *axes, int64_t position) {
  int64_t number = 0;
  for (int i = 0; i < axes->n; i++)
    number = number * m->size[axes->axis[i]] + mesh_coordinate(m, position, axes->axis[i]);
  return (int32_t)number;
}

/* The groups of shards and members: their numbers along `match`.  A shard of the experts is that of
 * the device with its number along `experts`. */
static void number_groups(const mesh *m, int64_t position, const axis_list *axes,
                          const axis_list *experts, const axis_list *match, int32_t *shard_group,
                          int32_t *member_group) {
  int64_t at[COMM_MAX];
  mesh_get_ranks(m, position, experts->axis, experts->n, at);
  for (int64_t i = 0; i < experts->devices; i++) shard_group[i] = number_along(m, match, at[i]);
  mesh_get_ranks(m, position, axes->axis, axes->n, at);
  for (int64_t i = 0; i < axes->devices; i++) member_group[i] = number_along(m, match, at[i]);
}

hp_status dispatch_rows_create(const mesh *m, int64_t position, const program *p,
                               const prog_inst *n, dispatch_rows **out) {
  axis_list axes, experts, match;
  const ir_value *ids = &program_arg(p, n, 1)->type;
  int64_t slots = ids->dim[ids->rank - 1], rows = 1;
  for (int d = 0; d < ids->rank - 1; d++) rows *= ids->dim[d];
  HP_TRY(read_axes(m, p, n, "axes", &axes));
  HP_TRY(read_axes(m, p, n, "experts", &experts));
  HP_TRY(read_axes(m, p, n, "match", &match));
  if (experts.devices != inst_int(p, n, "shards") || experts.devices > COMM_MAX || rows > INT32_MAX)
    HP_FAIL(HP_ERR_INTERNAL, "%s of %lld rows by %lld shards of experts; the mesh has %lld",
            op_table[n->op].name, (long long)rows, (long long)inst_int(p, n, "shards"),
            (long long)experts.devices);
  dispatch_rows *r = mem_calloc(1, sizeof *r);
  HP_TRY_MEM(r);
  r->memory = mem_calloc((size_t)(experts.devices + axes.devices + 2 * rows), sizeof *r->memory);
  if (!r->memory) {
    mem_free(r);
    return HP_ERR_OOM;
  }
  int32_t *shard_group = r->memory, *member_group = shard_group + experts.devices;
  number_groups(m, position, &axes, &experts, &match, shard_group, member_group);
  r->of = (comm_rows){.dims = ids->rank - 1,
                      .slots = slots,
                      .experts = inst_int(p, n, "size"),
                      .shards = experts.devices,
                      .shard_group = shard_group,
                      .member_group = member_group,
                      .room = member_group + axes.devices};
  *out = r;
  return HP_OK;
}

void dispatch_rows_free(dispatch_rows *r) {
  if (!r) return;
  mem_free(r->memory);
  mem_free(r);
}
