/* Processes that wait for each other: they find it out by messages along their waits, as nobody
 * else looks where no supervisor runs.
 *
 * A process that waits for long sends a probe to those it waits for; who gets one and waits as well
 * passes it on, unless it has come to where the sender waits.  A probe that returns to its origin,
 * which has waited for the same all the time, has gone round a circle in which nobody can go on
 * (Chandy, Misra, Haas: Distributed Deadlock Detection, 1983).  Twice, since a message may be under
 * way.  Processes that compute answer nothing, and are waited for. */
#include "base/thread.h"
#include "comm/world_state.h"

#include <stdio.h>
#include <string.h>

/* Seconds to the first look, and the most between two; each pause is as long as all before it. */
static const double LOOK_S = 2, PAUSE_MAX_S = 60;

/* --- messages --------------------------------------------------------------------------------- */

hp_status world_listen_probes(void) {
  const char *why = world.t->receive(&world.probe_in, sizeof world.probe_in, TRANSPORT_ANY,
                                     TAG_PROBE, &world.probe_request);
  return why ? world_refuse(why) : HP_OK;
}

static bool is_sent(probe_slot *s) {
  if (s->busy && world.t->test(&s->request, &s->done)) s->done = true; /* the library has failed */
  if (s->busy && s->done) s->busy = false;
  return !s->busy;
}

/* Left out while the last one is under way: there will be another. */
static void send_probe(int to, const probe *p) {
  probe_slot *s = &world.probe_out[to];
  if (to == world.facts.rank || !is_sent(s)) return;
  *s = (probe_slot){.p = *p};
  s->p.from = world.facts.rank;
  s->busy = !world.t->send(&s->p, sizeof s->p, to, TAG_PROBE, &s->request);
}

static void send_to_awaited(const probe *p) {
  const process_wait *w = &world.waiting;
  for (int64_t i = 0; i < w->n; i++)
    if (!w->request[i].done) send_probe(w->request[i].peer, p);
}

static void finish_sends(void) {
  enum { TURNS = 5000 };
  for (int i = 0; i < world.facts.size; i++)
    for (int64_t turn = 0; !is_sent(&world.probe_out[i]) && turn < TURNS; turn++) world_pause(turn);
}

void world_end_probes(bool tell) {
  const probe ended = {.kind = PROBE_ENDED};
  for (int i = 0; tell && i < world.facts.size; i++) send_probe(i, &ended);
  finish_sends();
  world.t->cancel(&world.probe_request);
}

/* --- what they mean --------------------------------------------------------------------------- */

/* Two that wait at one rendezvous have nothing for each other, or have told each other what they
 * bring to it. */
static bool brings_other_call(const wait_place *a, const wait_place *b) {
  return a->kind == WAIT_RENDEZVOUS && b->kind == WAIT_RENDEZVOUS && a->id == b->id &&
         a->sequence == b->sequence && a->call.signature != b->call.signature;
}

static bool has_come(const wait_place *at) {
  if (at->kind == WAIT_ALL) return world.calls >= at->sequence;
  for (const world_set *s = world.sets; at->kind == WAIT_RENDEZVOUS && s; s = s->next)
    if (s->c.id == at->id && s->c.sequence >= at->sequence) return true;
  return false;
}

static void refuse(wait_failure why, int rank, const char *what) {
  process_wait *w = &world.waiting;
  if (w->failure) return;
  w->failure = why;
  w->other = rank;
  snprintf(w->other_what, sizeof w->other_what, "%.*s", COMM_WHAT - 1, what);
}

static void take_back(const probe *p) {
  process_wait *w = &world.waiting;
  if (p->number != w->number || p->round == w->returned) return;
  if (w->returned) refuse(WAITS_IN_CIRCLE, p->first, p->what);
  w->returned = p->round;
}

static void pass_on(const probe *p) {
  const process_wait *w = &world.waiting;
  probe_mark *seen = &world.probe_seen[p->origin];
  if (seen->number == p->number && seen->round == p->round) return;
  *seen = (probe_mark){p->number, p->round};
  probe next = *p;
  next.at = *w->at;
  if (p->first < 0) {
    next.first = world.facts.rank;
    memcpy(next.what, w->at->call.what, sizeof next.what);
  }
  send_to_awaited(&next);
}

static bool is_rank(int32_t rank) { return rank >= 0 && rank < world.facts.size; }

static void take_probe(const probe *p) {
  const process_wait *w = &world.waiting;
  if (!is_rank(p->from)) return;
  if (p->kind == PROBE_ENDED) {
    if (!world.gone[p->from]) world.gone[p->from] = GONE_TOLD;
    return;
  }
  if (world.ending) {
    send_probe(p->from, &(probe){.kind = PROBE_ENDED});
    return;
  }
  if (!is_rank(p->origin) || !w->at) return;
  if (brings_other_call(&p->at, w->at)) refuse(WAITS_ELSEWHERE, p->from, p->at.call.what);
  if (has_come(&p->at)) return;
  if (p->origin != world.facts.rank) pass_on(p);
  else if (is_rank(p->first)) take_back(p);
}

hp_status world_read_probes(void) {
  for (;;) {
    bool done = false;
    const char *why = world.t->test(&world.probe_request, &done);
    if (why) return world_refuse(why);
    if (!done) return HP_OK;
    take_probe(&world.probe_in);
    HP_TRY(world_listen_probes());
  }
}

/* --- waiting ---------------------------------------------------------------------------------- */

bool world_wait_begin(const wait_place *at, const comm_request *r, int64_t n) {
  bool free = at && !world.waiting.at;
  if (free)
    world.waiting = (process_wait){.at = at,
                                   .request = r,
                                   .n = n,
                                   .number = world.waiting.number + 1,
                                   .began_s = time_now_s(),
                                   .pause_s = LOOK_S};
  return free;
}

void world_wait_end(void) { world.waiting.at = NULL; }

/* Of one that has ended, what it has sent before may still be under way at the first look. */
static void find_ended(void) {
  process_wait *w = &world.waiting;
  for (int64_t i = 0; i < w->n; i++) {
    uint8_t *gone = &world.gone[w->request[i].peer];
    if (w->request[i].done || !*gone) continue;
    if (*gone == GONE_SEEN) refuse(WAITS_FOR_ENDED, w->request[i].peer, "");
    *gone = GONE_SEEN;
  }
}

static hp_status report(const process_wait *w) {
  char text[3 * COMM_WHAT + 64];
  int me = world.facts.rank;
  const char *own = w->at->call.what, *other = w->other_what;
  switch (w->failure) {
  case WAITS_IN_CIRCLE:
    snprintf(text, sizeof text, "each waits for the other, rank %d at %s, and rank %d at %s", me,
             own, w->other, other);
    break;
  case WAITS_ELSEWHERE:
    snprintf(text, sizeof text, "rank %d is at %s, and rank %d at %s", me, own, w->other, other);
    break;
  default:
    snprintf(text, sizeof text, "rank %d is at %s, to which rank %d does not come: it has ended",
             me, own, w->other);
  }
  HP_FAIL(HP_ERR_ARG, "the programs of ranks %d and %d do not match: %s", me, w->other, text);
}

hp_status world_wait_look(void) {
  process_wait *w = &world.waiting;
  double now = time_now_s();
  HP_TRY(world_read_probes());
  if (now >= w->began_s + w->waited_s + w->pause_s) {
    w->waited_s = now - w->began_s;
    w->pause_s = w->waited_s < PAUSE_MAX_S ? w->waited_s : PAUSE_MAX_S;
    w->round++;
    find_ended();
    send_to_awaited(&(probe){.kind = PROBE_WAITS,
                             .origin = world.facts.rank,
                             .first = -1,
                             .number = w->number,
                             .round = w->round,
                             .at = *w->at});
  }
  return w->failure ? report(w) : HP_OK;
}
