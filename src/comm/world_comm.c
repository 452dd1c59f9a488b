/* The communicator of a job of processes: regions are packed, and go to those who need them. */
#include "base/mem.h"
#include "comm/world_parts.h"

#include <string.h>

typedef struct {
  char *at;
  int64_t bytes;
} room;

typedef struct {
  comm base;
  room in, out;           /* regions that come; regions that lie in several runs, on their way */
  world_request *request; /* of the rendezvous at hand: those to receive, then those to send */
  int64_t requests, received, posted;
} processes;

static processes *get_processes(comm *c) { return (processes *)c; }

static void processes_close(comm *c) {
  processes *p = get_processes(c);
  if (world.failed >= 0) return; /* messages under way still use it */
  mem_free(p->in.at);
  mem_free(p->out.at);
  mem_free(p->request);
  mem_free(p);
}

static void processes_reset(comm *c) { (void)c; }

/* --- packing ---------------------------------------------------------------------------------- */

static int64_t count_bytes(const comm_region *p) { return p->n * p->run; }
static bool lies_together(const comm_region *p) { return p->n == 1 || p->run == p->stride; }
static int64_t count_messages(const comm_region *p) {
  return (count_bytes(p) + TRANSPORT_BYTES_MAX - 1) / TRANSPORT_BYTES_MAX;
}

static hp_status make_room(room *r, int64_t bytes) {
  if (bytes <= r->bytes) return HP_OK;
  mem_free(r->at);
  *r = (room){.at = mem_calloc((size_t)bytes, 1), .bytes = bytes};
  if (r->at) return HP_OK;
  r->bytes = 0;
  return HP_ERR_OOM;
}

static hp_status make_rooms(processes *p, int64_t in, int64_t out, int64_t messages) {
  HP_TRY(make_room(&p->in, in));
  HP_TRY(make_room(&p->out, out));
  if (messages <= p->requests) return HP_OK;
  mem_free(p->request);
  p->requests = 0;
  p->request = mem_calloc((size_t)messages, sizeof *p->request);
  HP_TRY_MEM(p->request);
  p->requests = messages;
  return HP_OK;
}

static hp_status processes_reserve(comm *c, int64_t bytes) {
  int64_t each_way = c->devices + bytes / TRANSPORT_BYTES_MAX;
  return make_rooms(get_processes(c), bytes, bytes, 2 * each_way);
}

static hp_status processes_prepare(comm *c, const comm_group *g, const comm_region *give,
                                   const comm_region *take) {
  processes *p = get_processes(c);
  int64_t in = 0, out = 0, messages = 0;
  for (int64_t i = 0; i < g->n; i++) {
    if (i == g->me) continue;
    in += count_bytes(&take[i]);
    if (!lies_together(&give[i])) out += count_bytes(&give[i]);
    messages += count_messages(&give[i]) + count_messages(&take[i]);
  }
  p->posted = 0;
  return make_rooms(p, in, out, messages);
}

static void pack_region(const char *from, const comm_region *p, char *to) {
  for (int64_t k = 0; k < p->n; k++) memcpy(to + k * p->run, from + k * p->stride, (size_t)p->run);
}

static hp_status post_message(processes *p, bool sends, char *at, int64_t bytes, int64_t peer) {
  for (int64_t k = 0; k < bytes; k += TRANSPORT_BYTES_MAX) {
    int64_t n = bytes - k < TRANSPORT_BYTES_MAX ? bytes - k : TRANSPORT_BYTES_MAX;
    HP_TRY(world_post(sends, at + k, n, (int)peer, &p->request[p->posted++]));
  }
  return HP_OK;
}

/* --- rendezvous ----------------------------------------------------------------------------------
 */

static hp_status post_receives(processes *p, const comm_group *g, const char *data,
                               const comm_region *take, comm_view *seen) {
  char *at = p->in.at;
  for (int64_t i = 0; i < g->n; i++) {
    bool own = i == g->me;
    seen[i] =
        own ? (comm_view){data + take[i].start, take[i].stride} : (comm_view){at, take[i].run};
    if (own) continue;
    HP_TRY(post_message(p, false, at, count_bytes(&take[i]), g->device[i]));
    at += count_bytes(&take[i]);
  }
  p->received = p->posted;
  return HP_OK;
}

/* The next of the group first, so that not all send to one at once. */
static hp_status post_sends(processes *p, const comm_group *g, const char *data,
                            const comm_region *give) {
  char *to = p->out.at;
  for (int64_t k = 1; k < g->n; k++) {
    int64_t i = (g->me + k) % g->n;
    const comm_region *x = &give[i];
    char *at = (char *)(uintptr_t)data + x->start;
    if (!lies_together(x)) {
      pack_region(at, x, to);
      at = to;
      to += count_bytes(x);
    }
    HP_TRY(post_message(p, true, at, count_bytes(x), g->device[i]));
  }
  return HP_OK;
}

static hp_status world_rendezvous(comm *c, const comm_group *g, const void *data,
                                  const comm_region *give, const comm_region *take,
                                  comm_view *seen) {
  processes *p = get_processes(c);
  HP_TRY(processes_prepare(c, g, give, take));
  HP_TRY(post_receives(p, g, data, take, seen));
  HP_TRY(post_sends(p, g, data, give));
  return world_wait(p->request, p->received);
}

static hp_status processes_leave(comm *c, const comm_group *g) {
  processes *p = get_processes(c);
  (void)g;
  return world_wait(p->request + p->received, p->posted - p->received);
}

static void processes_fail(comm *c, int64_t device) {
  (void)c;
  (void)device;
  world_fail();
}

static const comm_iface iface = {.name = "mpi",
                                 .close = processes_close,
                                 .reserve = processes_reserve,
                                 .prepare = processes_prepare,
                                 .reset = processes_reset,
                                 .rendezvous = world_rendezvous,
                                 .leave = processes_leave,
                                 .fail = processes_fail};

hp_status comm_world_open(comm **out) {
  processes *p = mem_calloc(1, sizeof *p);
  HP_TRY_MEM(p);
  p->base =
      (comm){.iface = &iface, .devices = world.facts.size, .first = world.facts.rank, .own = 1};
  /* a word of each to each, such as whether it can go on, needs no memory from here on */
  hp_status st = processes_reserve(&p->base, p->base.devices);
  if (st) processes_close(&p->base);
  else *out = &p->base;
  return st;
}
