/* Collectives by rows.  A row goes from one member to another only if the one that works on it has
 * an expert of the row.  All members have the ids of all rows, so sender and receiver make the same
 * lists of rows, and no sizes are exchanged. */
#include "base/hash.h"
#include "comm/host_collectives.h"
#include "comm/host_operation.h"

#include <stdio.h>
#include <string.h>

/* The rows of a shard along `dim`: in blocks of `block`, the dims from `dim` on. */
typedef struct {
  const comm_rows *of;
  int64_t members, rows, block;
  int64_t elements, bytes; /* of a row */
} row_grid;

/* shards: of the tensor along `dim`. */
static row_grid grid_of(const operation *o, int64_t shards) {
  const comm_tensor *t = o->t;
  row_grid g = {.of = t->rows, .members = o->c->n, .rows = 1, .block = 1, .elements = 1};
  for (int d = 0; d < t->shape.rank; d++) {
    int64_t size = d == t->dim ? t->shape.dim[d] / shards : t->shape.dim[d];
    if (d >= g.of->dims) g.elements *= size;
    else if (d >= t->dim) g.block *= size;
    if (d < g.of->dims) g.rows *= size;
  }
  g.bytes = g.elements * size_of(t);
  return g;
}

/* Row r of a shard, among those of all shards. */
static int64_t whole_row(const row_grid *g, int64_t shard, int64_t r) {
  return (r / g->block * g->members + shard) * g->block + r % g->block;
}

static bool needs(const comm_rows *x, int64_t member, int64_t row) {
  for (int64_t j = 0; j < x->slots; j++) {
    int64_t id = x->ids[row * x->slots + j];
    if (id >= 0 && id < x->experts * x->shards &&
        x->shard_group[id / x->experts] == x->member_group[member])
      return true;
  }
  return false;
}

/* The rows of a shard that a member needs, by their number in the shard or among all rows. */
static comm_region list_rows(const row_grid *g, int64_t shard, int64_t member, bool whole,
                             int32_t **room) {
  comm_region list = {.stride = g->bytes, .run = g->bytes, .row = *room};
  for (int64_t r = 0; r < g->rows; r++) {
    int64_t row = whole_row(g, shard, r);
    if (needs(g->of, member, row)) (*room)[list.n++] = (int32_t)(whole ? row : r);
  }
  *room += list.n;
  return list;
}

/* A combine returns the rows that a dispatch sends. */
static void list_all(operation *o, const row_grid *g, bool returns) {
  int32_t *room = g->of->room;
  int64_t me = o->c->me, received = 0;
  for (int64_t i = 0; i < o->c->n; i++) {
    comm_region sent = list_rows(g, me, i, returns, &room);
    comm_region needed = list_rows(g, i, me, returns, &room);
    o->give[i] = returns ? needed : sent;
    o->take[i] = returns ? sent : needed;
    if (i != me) received += o->take[i].n * o->take[i].run;
  }
  o->t->rows->received = received;
}

/* Members with different ids would expect other rows than are sent, so ids are a part of the
 * call. */
static comm_call add_ids(const comm_call *call, const row_grid *g) {
  comm_call with = *call;
  size_t ids = (size_t)(g->rows * g->members * g->of->slots), at = strlen(call->what);
  uint64_t h = hash_bytes(g->of->ids, ids * sizeof *g->of->ids);
  with.signature ^= h;
  snprintf(with.what + at, sizeof with.what - at, ", ids %016llx", (unsigned long long)h);
  return with;
}

/* Is row r the k-th of the region? */
static bool has_row(const comm_region *list, int64_t k, int64_t r) {
  return k < list->n && list->row[k] == r;
}

hp_status host_dispatch(communicator *c, const comm_call *call, const comm_tensor *t,
                        const void *from, void *to, int stream, double *arrived_s) {
  BEGIN(o);
  row_grid g = grid_of(&o, 1);
  comm_call with = add_ids(call, &g);
  o.call = &with;
  list_all(&o, &g, false);
  HP_TRY(host_come(&o, from, arrived_s));
  for (int64_t i = 0; i < c->n; i++)
    for (int64_t r = 0, k = 0; r < g.rows; r++) {
      char *row = (char *)to + whole_row(&g, i, r) * g.bytes;
      if (has_row(&o.take[i], k, r)) memcpy(row, comm_view_run(&o.seen[i], k++), (size_t)g.bytes);
      else memset(row, 0, (size_t)g.bytes);
    }
  return host_leave(&o);
}

hp_status host_combine(communicator *c, const comm_call *call, const comm_tensor *t,
                       const void *from, void *to, int stream, double *arrived_s) {
  BEGIN(o);
  row_grid g = grid_of(&o, c->n);
  int64_t next[COMM_MAX] = {0};
  comm_call with = add_ids(call, &g);
  o.call = &with;
  list_all(&o, &g, true);
  HP_TRY(host_come(&o, from, arrived_s));
  for (int64_t r = 0; r < g.rows; r++) {
    int64_t row = whole_row(&g, c->me, r);
    for (int64_t i = 0; i < c->n; i++)
      o.run[i] = has_row(&o.take[i], next[i], row) ? comm_view_run(&o.seen[i], next[i]++) : NULL;
    HP_TRY(host_reduce_run(&o, g.elements, (char *)to + r * g.bytes));
  }
  return host_leave(&o);
}
