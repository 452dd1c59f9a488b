/* The end of a job: one exit code and one message for all processes. */
#include "comm/world_state.h"

#include <stdio.h>
#include <string.h>

static note *get_own_note(void) { return &world.out[NOTE_ENDED]; }

void world_tell(hp_status st, const char *message) {
  if (get_own_note()->text[0]) return;
  get_own_note()->status = (int32_t)st;
  snprintf(world.message, sizeof world.message, "%s", message);
  snprintf(get_own_note()->text, sizeof get_own_note()->text, "%s", message);
}

const char *world_message(void) { return get_own_note()->text; }
hp_status world_reason(void) { return (hp_status)get_own_note()->status; }

static bool is_judged(void) {
  return world.facts.rank ? world.verdict.here : world.n_ended == world.facts.size;
}

/* Reads notes until process 0 has heard of all, or the others have heard from it. */
static hp_status await_notes(void) {
  hp_status st = HP_OK;
  for (int64_t turn = 0; !st && !is_judged(); turn++) {
    pthread_mutex_lock(&world.lock);
    st = world_read_notes();
    if (!st) st = world_read_probes();
    pthread_mutex_unlock(&world.lock);
    if (!is_judged()) world_pause(turn);
  }
  return st;
}

/* The failure to report: a secondary one, caused by the failure of another process, only if there
 * is no primary one. */
static const note *find_first_failure(void) {
  const note *best = NULL;
  for (int i = 0; i < world.facts.size; i++) {
    const note *n = &world.ended[i];
    if (n->code && (!best || (best->status == HP_ERR_COMM && n->status != HP_ERR_COMM))) best = n;
  }
  return best;
}

static void judge_notes(void) {
  const note *failure = find_first_failure();
  note *v = &world.out[NOTE_VERDICT];
  if (failure) *v = *failure;
  if (failure && failure->rank)
    snprintf(v->text, sizeof v->text, ": process %d on %.63s%.1400s", failure->rank, failure->host,
             failure->text);
  world_send_note(NOTE_VERDICT, 1, world.facts.size - 1);
  world.verdict = *v;
}

/* Notes that are on their way must be taken before the library is left. */
static void finish_sends(void) {
  for (int k = 0; k < NOTE_KINDS; k++)
    for (int i = 0; i < world.facts.size; i++) {
      bool sent = world.out[k].here && world.out_request[k][i], done = !sent;
      for (int64_t turn = 0; !done && !world.t->test(&world.out_request[k][i], &done); turn++)
        if (!done) world_pause(turn);
    }
}

void world_leave(void) {
  if (!world.talks) return;
  finish_sends();
  world_end_probes(false);
  world.t->cancel(&world.in_request);
  world.over = true;
  world.t->end();
}

/* What process 0 says where it hears nothing of the others. */
static const char *get_own_message(void) {
  return get_own_note()->text[0] && !world.facts.rank ? world.message : NULL;
}

int world_end(int code, const char **told) {
  *told = get_own_message();
  if (!world.talks) return code;
  if (code) world_fail();
  get_own_note()->rank = world.facts.rank;
  get_own_note()->code = code;
  memcpy(get_own_note()->host, world.facts.host, sizeof get_own_note()->host);
  pthread_mutex_lock(&world.lock);
  world.ending = true;
  if (world.facts.rank) world_send_note(NOTE_ENDED, 0, 0);
  else world.ended[0] = *get_own_note(), world.n_ended++;
  pthread_mutex_unlock(&world.lock);
  if (await_notes()) return code;
  if (!world.facts.rank) judge_notes();
  *told = NULL;
  if (!world.facts.rank && world.verdict.code)
    *told = world.verdict.rank ? world.verdict.text : world.message;
  return world.verdict.code;
}
