/* Communicators of a job of processes: regions are packed, and go to those who need them. */
#include "base/mem.h"
#include "comm/host_collectives.h"
#include "comm/world_state.h"

#include <string.h>

typedef struct {
  char *at;
  int64_t bytes;
} room;

typedef struct {
  comm base;
  room in, out;          /* regions that come; regions that lie in several runs, on their way */
  comm_header own;       /* of the rendezvous at hand: what this process brings to it, */
  comm_header *theirs;   /* and what the members bring, in their order */
  comm_request *request; /* headers to receive, what is sent, then data to receive */
  int64_t requests, headers, sent, posted;
} processes;

static processes *get_processes(comm *c) { return (processes *)c; }

static void free_sets(const comm *of) {
  pthread_mutex_lock(&world.lock);
  for (world_set **at = &world.sets; *at;) {
    world_set *s = *at;
    if (s->c.of != of) {
      at = &s->next;
      continue;
    }
    *at = s->next;
    mem_free(s->rank);
    mem_free(s);
  }
  pthread_mutex_unlock(&world.lock);
}

static void processes_close(comm *c) {
  processes *p = get_processes(c);
  if (world.failed >= 0) return; /* messages under way still use it */
  free_sets(c);
  mem_free(p->in.at);
  mem_free(p->out.at);
  mem_free(p->theirs);
  mem_free(p->request);
  mem_free(p);
}

static hp_status make_set(processes *p, const int64_t *rank, int64_t n, int64_t me,
                          world_set **out) {
  world_set *s = mem_calloc(1, sizeof *s);
  HP_TRY_MEM(s);
  s->rank = mem_calloc((size_t)n, sizeof *s->rank);
  if (!s->rank) {
    mem_free(s);
    return HP_ERR_OOM;
  }
  memcpy(s->rank, rank, (size_t)n * sizeof *rank);
  s->c = (communicator){&p->base, comm_hash_ranks(rank, n), 0, n, me, s->rank};
  pthread_mutex_lock(&world.lock);
  s->next = world.sets;
  *out = world.sets = s;
  pthread_mutex_unlock(&world.lock);
  return HP_OK;
}

static hp_status processes_join(comm *c, const int64_t *rank, int64_t n, int64_t me,
                                communicator **out) {
  processes *p = get_processes(c);
  HP_TRY(comm_check_ranks(c, rank, n));
  world_set *s = world.sets;
  while (s && !(s->c.of == c && comm_has_ranks(&s->c, rank, n, me))) s = s->next;
  if (!s) HP_TRY(make_set(p, rank, n, me, &s));
  *out = &s->c;
  return HP_OK;
}

static uint64_t count_rendezvous(communicator *c) {
  pthread_mutex_lock(&world.lock);
  uint64_t sequence = ++c->sequence;
  pthread_mutex_unlock(&world.lock);
  return sequence;
}

static void processes_begin(communicator *c) { (void)c; }

static void processes_end(communicator *c, bool failed) {
  (void)c;
  if (failed) world_fail();
}

/* --- packing ---------------------------------------------------------------------------------- */

static int64_t count_bytes(const comm_region *p) { return p->n * p->run; }
static bool lies_together(const comm_region *p) {
  return !p->row && (p->n == 1 || p->run == p->stride);
}
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

/* With each other process a header, and what data need more than one message. */
static hp_status processes_reserve(comm *c, int64_t bytes) {
  int64_t each_way = 2 * c->ranks + bytes / TRANSPORT_BYTES_MAX;
  return make_rooms(get_processes(c), bytes, bytes, 2 * each_way);
}

static uint64_t processes_buffer_bytes(const comm *c) {
  const processes *p = (const processes *)c;
  return (uint64_t)p->in.bytes + (uint64_t)p->out.bytes;
}

/* Nothing goes between two members that have nothing for each other. */
static bool exchanges(const communicator *c, const comm_region *give, const comm_region *take,
                      int64_t i) {
  return i != c->me && (count_bytes(&give[i]) || count_bytes(&take[i]));
}

static hp_status processes_prepare(communicator *c, const comm_region *give,
                                   const comm_region *take) {
  processes *p = get_processes(c->of);
  int64_t in = 0, out = 0, messages = 0;
  for (int64_t i = 0; i < c->n; i++) {
    if (!exchanges(c, give, take, i)) continue;
    in += count_bytes(&take[i]);
    if (!lies_together(&give[i])) out += count_bytes(&give[i]);
    messages += 2 + count_messages(&give[i]) + count_messages(&take[i]);
  }
  p->posted = 0;
  return make_rooms(p, in, out, messages);
}

static void pack_region(const char *from, const comm_region *p, char *to) {
  const comm_view v = {from, p->stride, p->row};
  for (int64_t k = 0; k < p->n; k++) memcpy(to + k * p->run, comm_view_run(&v, k), (size_t)p->run);
}

static hp_status post_message(processes *p, const communicator *c, bool sends, void *data,
                              int64_t bytes, int64_t peer) {
  int tag = TAG_RENDEZVOUS + (int)(c->id % RENDEZVOUS_TAGS);
  for (int64_t k = 0; k < bytes; k += TRANSPORT_BYTES_MAX) {
    int64_t n = bytes - k < TRANSPORT_BYTES_MAX ? bytes - k : TRANSPORT_BYTES_MAX;
    HP_TRY(world_post(sends, (char *)data + k, n, peer, tag, &p->request[p->posted++]));
  }
  return HP_OK;
}

/* --- rendezvous ------------------------------------------------------------------------------- */

/* Between two processes the messages of a communicator keep their order, so those of a rendezvous
 * follow its header. */
static hp_status post_headers(processes *p, const communicator *c, const comm_region *give,
                              const comm_region *take) {
  for (int64_t i = 0; i < c->n; i++)
    if (exchanges(c, give, take, i))
      HP_TRY(post_message(p, c, false, &p->theirs[i], sizeof *p->theirs, c->rank[i]));
  p->headers = p->posted;
  return HP_OK;
}

/* The next of the communicator first, so that not all send to one at once. */
static hp_status post_sends(processes *p, const communicator *c, const char *data,
                            const comm_region *give, const comm_region *take) {
  char *to = p->out.at;
  for (int64_t k = 1; k < c->n; k++) {
    int64_t i = (c->me + k) % c->n;
    const comm_region *x = &give[i];
    char *at = (char *)(uintptr_t)data + x->start;
    if (!exchanges(c, give, take, i)) continue;
    HP_TRY(post_message(p, c, true, &p->own, sizeof p->own, c->rank[i]));
    if (!lies_together(x)) {
      pack_region(at, x, to);
      at = to;
      to += count_bytes(x);
    }
    HP_TRY(post_message(p, c, true, at, count_bytes(x), c->rank[i]));
  }
  p->sent = p->posted;
  return HP_OK;
}

static void find_places(const processes *p, const communicator *c, const char *data,
                        const comm_region *take, comm_view *seen) {
  const char *at = p->in.at;
  for (int64_t i = 0; i < c->n; i++) {
    bool own = i == c->me;
    seen[i] = own ? (comm_view){data + take[i].start, take[i].stride, take[i].row}
                  : (comm_view){.at = at, .stride = take[i].run};
    if (!own) at += count_bytes(&take[i]);
  }
}

static hp_status check_header(const processes *p, const communicator *c, int64_t i) {
  const comm_header *x = &p->theirs[i];
  bool same = x->communicator == c->id && x->sequence == c->sequence;
  if (same && x->call.signature == p->own.call.signature) return HP_OK;
  err_clear();
  return comm_refuse_calls(c, c->me, &p->own.call, i, &x->call, x->sequence);
}

/* Of members whose header has come and agrees, the data are received: those of another rendezvous
 * may be more or fewer messages than are expected here, or longer. */
static hp_status post_receives(processes *p, const communicator *c, const comm_region *give,
                               const comm_region *take, const comm_view *seen) {
  comm_request *r = p->request;
  for (int64_t i = 0; i < c->n; i++) {
    if (!exchanges(c, give, take, i)) continue;
    bool comes = r->done && !r->taken;
    r->taken |= r->done;
    r++;
    if (!comes) continue;
    HP_TRY(check_header(p, c, i));
    HP_TRY(post_message(p, c, false, (char *)(uintptr_t)seen[i].at, count_bytes(&take[i]),
                        c->rank[i]));
  }
  return HP_OK;
}

/* A failure to wait is reported only if the headers that have come agree. */
static hp_status await_headers(processes *p, const communicator *c, const comm_region *give,
                               const comm_region *take, const comm_view *seen) {
  const wait_place at = {WAIT_RENDEZVOUS, c->id, c->sequence, p->own.call};
  hp_status st = HP_OK;
  for (int64_t left = p->headers; left && !st;) {
    st = world_wait_some(&at, p->request, p->headers, &left);
    hp_status differs = post_receives(p, c, give, take, seen);
    if (differs) return differs;
  }
  return st;
}

static hp_status world_rendezvous(communicator *c, const comm_call *call, const void *data,
                                  const comm_region *give, const comm_region *take,
                                  comm_view *seen) {
  processes *p = get_processes(c->of);
  HP_TRY(processes_prepare(c, give, take));
  p->own = (comm_header){.call = *call, .communicator = c->id, .sequence = count_rendezvous(c)};
  find_places(p, c, data, take, seen);
  HP_TRY(post_headers(p, c, give, take));
  HP_TRY(post_sends(p, c, data, give, take));
  HP_TRY(await_headers(p, c, give, take, seen));
  return world_wait(NULL, p->request + p->sent, p->posted - p->sent);
}

static hp_status processes_leave(communicator *c) {
  processes *p = get_processes(c->of);
  return world_wait(NULL, p->request + p->headers, p->sent - p->headers);
}

static const comm_iface iface = {.name = "mpi",
                                 .close = processes_close,
                                 .reserve = processes_reserve,
                                 .buffer_bytes = processes_buffer_bytes,
                                 .join = processes_join,
                                 .prepare = processes_prepare,
                                 .begin = processes_begin,
                                 .end = processes_end,
                                 .rendezvous = world_rendezvous,
                                 .leave = processes_leave,
                                 .collective = HOST_COLLECTIVES,
                                 .post = world_post_transfer,
                                 .wait = world_wait_transfer};

hp_status comm_world_open(comm **out) {
  processes *p = mem_calloc(1, sizeof *p);
  HP_TRY_MEM(p);
  p->base = (comm){.iface = &iface, .ranks = world.facts.size, .first = world.facts.rank, .own = 1};
  /* a number of each to each, such as whether it can go on, needs no memory from here on */
  hp_status st = processes_reserve(&p->base, p->base.ranks * (int64_t)sizeof(int64_t));
  if (!st) p->theirs = mem_calloc((size_t)p->base.ranks, sizeof *p->theirs);
  if (!st && !p->theirs) st = HP_ERR_OOM;
  if (st) processes_close(&p->base);
  else *out = &p->base;
  return st;
}
