#include "cli/layout_answer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- layouts ---------------------------------------------------------------------------------- */

/* Axes count from the last one, as in the original: the reverse of a mesh's order. */
void answer_tensor_map(json_writer *w, const mesh *m, const layout *l) {
  json_put_key(w, "tensor_map");
  json_open_list(w);
  for (int d = 0; d < l->rank; d++) {
    if (!l->n[d]) json_put_int(w, -1);
    if (l->n[d] == 1) json_put_int(w, m->axes - 1 - l->axis[d][0]);
    if (l->n[d] < 2) continue;
    json_open_list(w);
    for (int i = 0; i < l->n[d]; i++) json_put_int(w, m->axes - 1 - l->axis[d][i]);
    json_close(w);
  }
  json_close(w);
}

void answer_entries(json_writer *w, const mesh *m, const layout *l) {
  bool any = false;
  json_put_key(w, "layout");
  json_open_list(w);
  for (int d = 0; d < l->rank; d++) {
    if (!l->n[d]) json_put_string(w, "None");
    if (l->n[d] == 1) json_put_string(w, m->name[l->axis[d][0]]);
    if (l->n[d] < 2) continue;
    json_open_list(w);
    for (int i = 0; i < l->n[d]; i++) json_put_string(w, m->name[l->axis[d][i]]);
    json_close(w);
  }
  json_close(w);
  answer_tensor_map(w, m, l);
  for (int a = 0; a < m->axes; a++) any |= l->partial[a] != 0;
  if (!any) return;
  json_put_key(w, "partial");
  json_open_map(w);
  for (int a = 0; a < m->axes; a++)
    if (l->partial[a]) {
      json_put_key(w, m->name[a]);
      json_put_string(w, partial_op_name(l->partial[a]));
    }
  json_close(w);
}

/* One per mesh axis. */
static void write_placements(json_writer *w, const mesh *m, const layout *l) {
  json_put_key(w, "placements");
  json_open_list(w);
  for (int a = 0; a < m->axes; a++) {
    char text[32] = "R";
    int d = layout_dim_of(l, a);
    if (d >= 0) snprintf(text, sizeof text, "S(%d)", d);
    if (l->partial[a]) snprintf(text, sizeof text, "P(%s)", partial_op_name(l->partial[a]));
    json_put_string(w, text);
  }
  json_close(w);
}

static void write_slices(json_writer *w, const mesh *m, const layout *l, const int64_t *shape) {
  json_put_key(w, "shard_shape");
  json_open_list(w);
  for (int d = 0; d < l->rank; d++) json_put_int(w, layout_shard_size(m, l, d, shape[d]));
  json_close(w);
  json_put_key(w, "slices");
  json_open_list(w);
  for (int64_t p = 0; p < m->devices; p++) {
    int64_t start[LAYOUT_DIMS], stop[LAYOUT_DIMS];
    layout_slice(m, l, shape, p, start, stop);
    json_open_list(w);
    json_put_int(w, mesh_rank(m, p));
    json_open_list(w);
    for (int d = 0; d < l->rank; d++) {
      json_open_list(w);
      json_put_int(w, start[d]);
      json_put_int(w, stop[d]);
      json_close(w);
    }
    json_close(w);
    json_close(w);
  }
  json_close(w);
}

/* Ranks at these device positions, as a list. */
static void rank_list(json_writer *w, const mesh *m, const int64_t *position, int64_t n) {
  json_open_list(w);
  for (int64_t i = 0; i < n; i++) json_put_int(w, mesh_rank(m, position[i]));
  json_close(w);
}

static hp_status write_replica_groups(json_writer *w, const mesh *m, const layout *l) {
  uint8_t axis[LAYOUT_AXES];
  int n = layout_free_axes(m, l, axis);
  int64_t repeat = layout_repeat(m, l), *group = mem_calloc((size_t)repeat, sizeof *group);
  HP_TRY_MEM(group);
  json_put_key(w, "replica_groups");
  json_open_list(w);
  for (int64_t p = 0; p < m->devices; p++) {
    bool first = true; /* of its group */
    for (int i = 0; i < n; i++) first &= mesh_coordinate(m, p, axis[i]) == 0;
    if (!first) continue;
    mesh_get_ranks(m, p, axis, n, group);
    rank_list(w, m, group, repeat);
  }
  json_close(w);
  mem_free(group);
  return HP_OK;
}

hp_status answer_layout(json_writer *w, const mesh *m, const layout *l, const int64_t *shape) {
  json_put_key(w, "repeat_num");
  json_put_int(w, layout_repeat(m, l));
  write_placements(w, m, l);
  if (!shape) return HP_OK;
  write_slices(w, m, l, shape);
  return write_replica_groups(w, m, l);
}

/* --- ways from one to another ----------------------------------------------------------------- */

/* The group of a move at a device position, its axes in the given order. */
static hp_status write_group(json_writer *w, const mesh *m, const path_move *move,
                             const uint8_t *axis, int64_t position) {
  int64_t n = move_devices(m, move), *group = mem_calloc((size_t)n, sizeof *group);
  HP_TRY_MEM(group);
  mesh_get_ranks(m, position, axis, move->n, group);
  rank_list(w, m, group, n);
  mem_free(group);
  return HP_OK;
}

static hp_status put_move(json_writer *w, const mesh *m, const path_move *move) {
  json_open_map(w);
  json_put_key(w, "op");
  json_put_string(w, move_name(move->kind));
  if (move->kind == MOVE_ALL_TO_ALL) {
    json_put_key(w, "split_dim");
    json_put_int(w, move->to);
    json_put_key(w, "concat_dim");
    json_put_int(w, move->dim);
  } else if (move->kind != MOVE_ALL_REDUCE && move->kind != MOVE_DROP) {
    json_put_key(w, "dim");
    json_put_int(w, move->dim);
  }
  json_put_key(w, "n");
  json_put_int(w, move_devices(m, move));
  if (move->op) {
    json_put_key(w, "reduce");
    json_put_string(w, partial_op_name(move->op));
  }
  json_put_key(w, "group");
  HP_TRY(write_group(w, m, move, move->axis, 0));
  if (move->kind == MOVE_ALL_TO_ALL && memcmp(move->cut, move->axis, (size_t)move->n)) {
    json_put_key(w, "split_group"); /* ranks in the order of the parts that they get */
    HP_TRY(write_group(w, m, move, move->cut, 0));
  }
  json_close(w);
  return HP_OK;
}

hp_status answer_path(json_writer *w, const mesh *m, const path *p) {
  json_put_key(w, "ops");
  json_open_list(w);
  for (int i = 0; i < p->n; i++) HP_TRY(put_move(w, m, &p->move[i]));
  json_close(w);
  json_put_key(w, "groups_of_last_rank");
  json_open_list(w);
  for (int i = 0; i < p->n; i++)
    HP_TRY(write_group(w, m, &p->move[i], p->move[i].axis, m->devices - 1));
  json_close(w);
  json_put_key(w, "local_elements");
  json_put_int(w, p->local);
  json_put_key(w, "peak_elements");
  json_put_int(w, p->peak);
  json_put_key(w, "bytes_per_rank");
  json_put_int(w, (int64_t)floor(p->bytes + 1e-6));
  return HP_OK;
}
