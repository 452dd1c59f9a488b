#include "comm/world_state.h"

int world_waits_for(void) { return world.waits_for; }

/* --- notes ------------------------------------------------------------------------------------ */

static void take_note(const note *n) {
  if (n->rank < 0 || n->rank >= world.facts.size) return;
  if (n->kind == NOTE_FAILED && world.failed < 0) world.failed = n->rank;
  if (n->kind == NOTE_VERDICT) world.verdict = *n;
  if (n->kind == NOTE_ENDED && !world.ended[n->rank].here) {
    world.ended[n->rank] = *n;
    world.n_ended++;
  }
}

hp_status world_listen(void) {
  const char *why =
      world.t->receive(&world.in, sizeof world.in, TRANSPORT_ANY, TAG_NOTE, &world.in_request);
  return why ? world_refuse(why) : HP_OK;
}

hp_status world_read_notes(void) {
  for (;;) {
    bool done = false;
    const char *why = world.t->test(&world.in_request, &done);
    if (why) return world_refuse(why);
    if (!done) return HP_OK;
    take_note(&world.in);
    HP_TRY(world_listen());
  }
}

void world_send_note(note_kind kind, int first, int last) {
  note *n = &world.out[kind];
  n->kind = (int32_t)kind;
  n->here = true;
  for (int i = first; i <= last; i++)
    if (i != world.facts.rank)
      world.t->send(n, sizeof *n, i, TAG_NOTE, &world.out_request[kind][i]);
}

void world_fail(void) {
  pthread_mutex_lock(&world.lock);
  if (world.t && !world.out[NOTE_FAILED].here) {
    if (world.failed < 0) world.failed = world.facts.rank;
    world.out[NOTE_FAILED].rank = world.facts.rank;
    world_send_note(NOTE_FAILED, 0, world.facts.size - 1);
  }
  pthread_mutex_unlock(&world.lock);
}

/* --- messages --------------------------------------------------------------------------------- */

static hp_status report_failure(void) {
  HP_FAIL(HP_ERR_COMM, "process %d failed, and the others cannot go on without it", world.failed);
}

/* Tests those requests once, with the lock held; *left: how many are not done, *peer: of one. Notes
 * are read before: a process that fails has sent its data before its note, and what has come of
 * others by then is not to be given up. */
static hp_status test_all(comm_request *r, int64_t n, int64_t *left, int *peer) {
  const char *failure = NULL;
  hp_status st = world_read_notes();
  *left = 0;
  for (int64_t i = 0; i < n; i++) {
    const char *why = r[i].done ? NULL : world.t->test(&r[i].id, &r[i].done);
    if (why) {
      failure = why;
      r[i].taken = true; /* what came of it is not to be read */
    }
    if (r[i].done) continue;
    *peer = r[i].peer;
    ++*left;
  }
  return failure ? world_refuse(failure) : st;
}

hp_status world_wait_some(const wait_place *at, comm_request *r, int64_t n, int64_t *left) {
  const int64_t before = *left;
  hp_status st = HP_OK;
  bool looks = false;
  for (int64_t turn = 0; !st && *left >= before; turn++) {
    int peer = -1;
    pthread_mutex_lock(&world.lock);
    st = test_all(r, n, left, &peer);
    if (!st && *left && world.failed >= 0) st = report_failure();
    if (!st && !turn && *left >= before) looks = world_wait_begin(at, r, n);
    if (!st && looks && *left >= before) st = world_wait_look();
    if (looks && (st || *left < before)) world_wait_end();
    pthread_mutex_unlock(&world.lock);
    world.waits_for = peer;
    if (!st && *left >= before) world_pause(turn);
  }
  world.waits_for = -1;
  return st;
}

hp_status world_wait(const wait_place *at, comm_request *r, int64_t n) {
  hp_status st = HP_OK;
  for (int64_t left = n; !st && left;) st = world_wait_some(at, r, n, &left);
  return st;
}

hp_status world_post(bool sends, void *data, int64_t bytes, int64_t peer, int tag,
                     comm_request *r) {
  *r = (comm_request){.peer = (int)peer};
  pthread_mutex_lock(&world.lock);
  const char *why = sends ? world.t->send(data, (size_t)bytes, r->peer, tag, &r->id)
                          : world.t->receive(data, (size_t)bytes, r->peer, tag, &r->id);
  pthread_mutex_unlock(&world.lock);
  return why ? world_refuse(why) : HP_OK;
}
