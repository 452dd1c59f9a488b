/* The steps of a path from one layout of a value to another, as nodes. */
#include "shard/shard_state.h"

#include <string.h>

/* Seconds of a step on the cluster. */
static double price(const void *model, const path_move *m) {
  const shard_plan *p = model;
  int rounds = m->kind == MOVE_ALL_REDUCE ? 2 : 1;
  return m->bytes > 0 ? cluster_comm_s(p->cluster, p->mesh, m->axis, m->n, m->bytes, rounds) : 0;
}

static hp_status search(const shard *s, const ir_value *x, const layout *from, const layout *to,
                        path *out) {
  path_request q = {.mesh = s->m,
                    .shape = x->dim,
                    .element_bytes = (double)value_bytes(x),
                    .price = price,
                    .model = s->plan};
  double n = (double)value_elements(x);
  q.element_bytes = n > 0 ? q.element_bytes / n : 1;
  return path_find(&q, from, to, out);
}

hp_status shard_path(const shard *s, const ir_value *x, const layout *from, const layout *to,
                     path *out) {
  struct {
    int64_t dim[HP_MAX_RANK], dtype;
    layout from, to;
  } key;
  uint32_t at;
  memset(&key, 0, sizeof key);
  memcpy(key.dim, x->dim, x->rank * sizeof *x->dim);
  key.dtype = x->dtype;
  key.from = *from;
  key.to = *to;
  if (!map_get(&s->ways->place, &key, sizeof key, &at)) {
    at = (uint32_t)s->ways->way.len;
    HP_TRY(search(s, x, from, to, out));
    if (!vec_push(&s->ways->way, *out)) return HP_ERR_OOM;
    return map_set(&s->ways->place, &key, sizeof key, at);
  }
  *out = s->ways->way.at[at];
  return HP_OK;
}

static void put_axes(attr_record *a, const uint8_t *axis, int n) {
  int64_t list[LAYOUT_AXES] = {0};
  for (int i = 0; i < n; i++) list[i] = axis[i];
  attr_put_list(a, list, n);
}

void shard_put_communicator(const shard *s, const uint8_t *axis, int n, attr_record *a) {
  int64_t devices = 1;
  for (int i = 0; i < n; i++) devices *= s->m->size[axis[i]];
  put_axes(a, axis, n);
  attr_put_int(a, devices);
}

val shard_locate(shard *s, val x, const uint8_t *axis, int n, int64_t size) {
  attr_record a = {0};
  shard_put_communicator(s, axis, n, &a);
  attr_put_int(&a, size);
  return ops_add(s->r.to, OP_LOCATE, &x, 1, &a);
}

val shard_reduce(shard *s, val x, const uint8_t *axis, int n, partial_op op) {
  attr_record a = {0};
  shard_put_communicator(s, axis, n, &a);
  attr_put_int(&a, op);
  return ops_add(s->r.to, OP_ALL_REDUCE, &x, 1, &a);
}

static val emit_move(shard *s, const path_move *m, val x) {
  static const op_id ops[] =
      {[MOVE_SPLIT] = OP_LOCAL_SHARD,     [MOVE_GATHER] = OP_ALL_GATHER,
       [MOVE_ALL_TO_ALL] = OP_ALL_TO_ALL, [MOVE_REDUCE_SCATTER] = OP_REDUCE_SCATTER,
       [MOVE_ALL_REDUCE] = OP_ALL_REDUCE, [MOVE_DROP] = OP_DROP};
  attr_record a = {0};
  shard_put_communicator(s, m->axis, m->n, &a);
  if (m->kind != MOVE_ALL_REDUCE && m->kind != MOVE_DROP) attr_put_int(&a, m->dim);
  if (m->kind == MOVE_ALL_TO_ALL) {
    put_axes(&a, m->cut, m->n);
    attr_put_int(&a, m->to);
  }
  if (m->op) attr_put_int(&a, m->op);
  return ops_add(s->r.to, ops[m->kind], &x, 1, &a);
}

/* To the dtype that the value has in the global graph. */
static val narrow(shard *s, val old, val x) {
  s->wide[old] = false;
  return ops_cast(s->r.to, x, (hp_dtype)graph_value(s->r.from, old)->dtype);
}

hp_status shard_bring_owned(shard *s, val old, const layout *to, val *out) {
  path p;
  bool reduces = false;
  if (s->wide[old] && layout_is_partial(to)) s->r.map[old] = narrow(s, old, s->r.map[old]);
  *out = s->r.map[old];
  if (layout_equal(&s->now[old], to)) return graph_status(s->r.to);
  HP_TRY(shard_path(s, graph_value(s->r.from, old), &s->now[old], to, &p));
  for (int i = 0; i < p.n; i++) {
    *out = emit_move(s, &p.move[i], *out);
    reduces |= p.move[i].kind == MOVE_ALL_REDUCE || p.move[i].kind == MOVE_REDUCE_SCATTER;
  }
  if (s->wide[old]) *out = narrow(s, old, *out);
  if (!reduces) return graph_status(s->r.to);
  s->r.map[old] = *out;
  s->now[old] = *to;
  return graph_status(s->r.to);
}
