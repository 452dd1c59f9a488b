/* Shards of tensors to and from global ones; and what the processes of a mesh tell each other
 * besides the collectives of programs. */
#include "rt/device_mesh.h"
#include "rt/mover.h"

#include "base/dtype.h"
#include "shard/box.h"

#include <stdio.h>
#include <string.h>

bool holds_first(const device_mesh *dm, int at, const layout *l) {
  return layout_first(&dm->m, l, at) == at;
}

/* --- processes ---------------------------------------------------------------------------------
 */

typedef struct {
  communicator *c; /* all devices */
  comm_region give[COMM_MAX], take[COMM_MAX];
  comm_view seen[COMM_MAX];
} everyone;

static hp_status run_rendezvous(everyone *e, const char *what, const void *data) {
  comm_call call = comm_call_of(what, NULL);
  return e->c->of->iface->rendezvous(e->c, &call, data, e->give, e->take, e->seen);
}

typedef enum { LEAVES_IT, WANTS_IT, HAS_NO_ROOM } answer;

/* Which processes want it, and whether all have room for what comes. */
static hp_status ask(const device_mesh *dm, everyone *e, char mine, char wants[COMM_MAX]) {
  for (int i = 0; i < dm->n; i++) e->give[i] = e->take[i] = (comm_region){.run = 1, .n = 1};
  HP_TRY(run_rendezvous(e, "a question who reads a tensor", &mine));
  for (int i = 0; i < dm->n; i++) wants[i] = *e->seen[i].at;
  return e->c->of->iface->leave(e->c);
}

/* The regions of a fetch where each of these wants it; wants NULL: as if all did. */
static void fetch_regions(const device_mesh *dm, const layout *l, bool mine, const char *wants,
                          comm_region all, everyone *e) {
  const comm_region none = {0};
  bool gives = holds_first(dm, (int)dm->member[0]->position, l);
  for (int i = 0; i < dm->n; i++) {
    e->give[i] = gives && (!wants || wants[i] == WANTS_IT) ? all : none;
    e->take[i] = mine && holds_first(dm, i, l) ? all : none;
  }
}

/* A process without room, or without its own shard, says so before anybody sends, and none goes
 * on. */
static hp_status agree_to_fetch(const device_mesh *dm, everyone *e, const layout *l, bool lacks,
                                bool mine, comm_region all, char wants[COMM_MAX]) {
  fetch_regions(dm, l, mine, NULL, all, e);
  hp_status st = HP_OK;
  if (lacks) st = err_set(HP_ERR_COMM, __FILE__, __LINE__, "the shard of a tensor cannot be read");
  else if (e->c->of->iface->prepare) st = e->c->of->iface->prepare(e->c, e->give, e->take);
  hp_status asked = ask(dm, e, st ? HAS_NO_ROOM : mine ? WANTS_IT : LEAVES_IT, wants);
  if (st || asked) return st ? st : asked;
  for (int i = 0; i < dm->n; i++)
    if (wants[i] == HAS_NO_ROOM)
      HP_FAIL(
          HP_ERR_COMM,
          "process %lld cannot read its shard of a tensor, or has no memory for those of others",
          (long long)e->c->rank[i]);
  return HP_OK;
}

static void join_shard(const device_mesh *dm, int at, const ir_value *type, const layout *l,
                       const void *shard, void *global) {
  shard_view v = mover_view(&dm->m, at, type, l);
  mover_join_shard(&v, shard, global);
}

hp_status device_mesh_fetch(const device_mesh *dm, const ir_value *type, const layout *l,
                            const void *shard, void *global) {
  everyone e;
  const device *me = dm->member[0];
  char wants[COMM_MAX];
  char what[48];
  ir_value p = *type;
  for (int d = 0; d < p.rank; d++) p.dim[d] = layout_shard_size(&dm->m, l, d, p.dim[d]);
  comm_region all = {.run = (int64_t)value_bytes(&p), .n = 1};
  e.c = dm->member[0]->everyone;
  bool lacks = !shard && all.run && holds_first(dm, (int)me->position, l);
  HP_TRY(agree_to_fetch(dm, &e, l, lacks, global != NULL, all, wants));
  fetch_regions(dm, l, global != NULL, wants, all, &e);
  snprintf(what, sizeof what, "a read of %lld bytes a shard", (long long)all.run);
  HP_TRY(run_rendezvous(&e, what, shard));
  for (int i = 0; i < dm->n; i++)
    if (e.take[i].n) join_shard(dm, i, type, l, i == me->position ? shard : e.seen[i].at, global);
  return e.c->of->iface->leave(e.c);
}

hp_status device_mesh_gather(const device_mesh *dm, const void *mine, size_t bytes, void *all) {
  everyone e = {.c = dm->member[0]->everyone};
  for (int i = 0; i < dm->n; i++)
    e.give[i] = e.take[i] = (comm_region){.run = (int64_t)bytes, .n = 1};
  HP_TRY(run_rendezvous(&e, "a gather of what each process has", mine));
  for (int i = 0; i < dm->n; i++) memcpy((char *)all + (size_t)i * bytes, e.seen[i].at, bytes);
  return e.c->of->iface->leave(e.c);
}

/* Only the member at `from` sends, to those that want it; the region is all of the data. */
static void send_regions(const device_mesh *dm, int64_t from, const char *wants, comm_region all,
                         everyone *e) {
  const comm_region none = {0};
  int64_t me = dm->member[0]->position;
  for (int i = 0; i < dm->n; i++) {
    e->give[i] = me == from && i != from && wants[i] ? all : none;
    e->take[i] = i == from && me != from && wants[me] ? all : none;
  }
}

hp_status device_mesh_send(const device_mesh *dm, int64_t from, const char *wants, void *data,
                           size_t bytes) {
  everyone e = {.c = dm->member[0]->everyone};
  comm_region all = {.run = (int64_t)bytes, .n = 1};
  char what[48], lacks[COMM_MAX], mine = 0;
  if (!bytes) return HP_OK;
  send_regions(dm, from, wants, all, &e);
  hp_status st = e.c->of->iface->prepare ? e.c->of->iface->prepare(e.c, e.give, e.take) : HP_OK;
  if (st) mine = 1;
  hp_status told = device_mesh_gather(dm, &mine, 1, lacks);
  if (st || told) return st ? st : told;
  if (memchr(lacks, 1, (size_t)dm->n))
    HP_FAIL(HP_ERR_COMM, "a process has no memory for %zu bytes of another", bytes);
  send_regions(dm, from, wants, all, &e);
  snprintf(what, sizeof what, "%zu bytes from rank %lld", bytes, (long long)from);
  HP_TRY(run_rendezvous(&e, what, data));
  if (e.take[from].n) memcpy(data, e.seen[from].at, bytes);
  return e.c->of->iface->leave(e.c);
}

/* --- engines ---------------------------------------------------------------------------------- */

device *device_mesh_first(const device_mesh *dm) {
  for (int i = 0; i < dm->own; i++)
    if (dm->member[i]->position == 0) return dm->member[i];
  return NULL;
}

/* Text of the first device's process to all others; `failed` there fails here too. */
static hp_status broadcast_text(const device_mesh *dm, bool failed, str *text) {
  const bool leads = device_mesh_first(dm) != NULL;
  int64_t mine = failed ? -1 : (int64_t)text->len, said[COMM_MAX];
  HP_TRY(device_mesh_gather(dm, &mine, sizeof mine, said));
  const int64_t n = said[0];
  if (n < 0)
    HP_FAIL(HP_ERR_COMM, "process %lld could not choose the engines of products",
            (long long)mesh_rank(&dm->m, 0));
  if (!n) return HP_OK;
  layout replicated = {.rank = 1};
  ir_value type = {.dtype = HP_U8, .rank = 1, .dim = {n}};
  char *got = leads ? NULL : mem_calloc((size_t)n + 1, 1);
  if (!leads) HP_TRY_MEM(got);
  hp_status st = device_mesh_fetch(dm, &type, &replicated, text->at, got);
  if (!st && got) str_add_n(text, got, (size_t)n);
  mem_free(got);
  return st ? st : str_status(text);
}

hp_status device_mesh_choose(device_mesh *dm, int i, program *p) {
  device *d = dm->member[i];
  const backend_iface *b = d->backend;
  bool fastest = !strcmp(b->engine(d->dev), ENGINE_FASTEST);
  if (!fastest || dm->n == 1 || dm->plan_only || !dm->own) return b->choose(d->dev, p);
  device *first = device_mesh_first(dm);
  str text = {0};
  hp_status st = first ? b->choose(first->dev, p) : HP_OK;
  if (!st && first) b->tuning(first->dev, &text);
  if (dm->own < dm->n) {
    hp_status told = broadcast_text(dm, st != HP_OK, &text);
    if (!st) st = told;
  }
  if (!st && d != first) st = b->set_tuning(d->dev, text.at ? text.at : "");
  if (!st && d != first) st = b->choose(d->dev, p);
  str_free(&text);
  return st;
}
