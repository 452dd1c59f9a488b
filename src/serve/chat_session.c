#include "serve/chat_session.h"

/* Tokens of the first cache, and positions of a model that has no table of them. */
enum { ROOM = 1024, MOST = INT32_MAX / 4 };

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t find_most(const lm *m) { return m->c.rope.theta ? MOST : m->c.max_length; }

static session_options make_options(const generation *g, int64_t tokens) {
  return (session_options){.sequences = 1,
                           .tokens = g->cache ? 1 : tokens,
                           .bytes = g->cache,
                           .offload = g->offload,
                           .sparse = g->sparse};
}

hp_status chat_session_plan(lm *m, const generation *g, uint64_t *bytes) {
  hp_memory memory;
  int64_t room = least(find_most(m), ROOM + g->max_new_tokens);
  const session_options o = make_options(g, room);
  HP_TRY(session_plan(m, &o, least(room, ROOM), &memory));
  *bytes = memory.planned_bytes;
  return HP_OK;
}

void chat_session_close(chat_session *c) {
  session_free(c->s);
  c->s = NULL;
  c->room = 0;
}

/* A cache for so many tokens; it doubles, so that few answers read all of the conversation again.
 */
static hp_status make_cache(chat_session *c, int64_t tokens) {
  int64_t most = find_most(c->m), room = 2 * c->room > ROOM ? 2 * c->room : ROOM;
  if (tokens <= c->m->c.max_length) most = least(most, c->m->c.max_length);
  if (room < tokens) room = tokens;
  room = least(room, most);
  chat_session_close(c);
  const session_options o = make_options(&c->g, room);
  HP_TRY(session_create(c->m, &o, &c->s));
  session_cache have = session_cache_get(c->s);
  c->room = have.blocks / (c->m->groups ? c->m->groups : 1) * CACHE_BLOCK;
  return HP_OK;
}

/* Room for the prompt and an answer; *answer: its tokens at most. */
static hp_status make_room(chat_session *c, int64_t prompt, int64_t *answer) {
  int64_t most = find_most(c->m), want = least(prompt + c->g.max_new_tokens, most);
  if (prompt < most && (!c->s || (!c->g.cache && c->room < want))) HP_TRY(make_cache(c, want));
  if (c->s) most = least(most, c->room);
  if (prompt >= most)
    HP_FAIL(
        HP_ERR_ARG,
        "the conversation has %lld tokens, and there is room for %lld: begin anew with /reset%s",
        (long long)prompt, (long long)most, c->g.cache ? ", or raise --kv-cache" : "");
  *answer = least(c->g.max_new_tokens, most - prompt);
  return HP_OK;
}

hp_status chat_session_answer(chat_session *c, const lm_tokens *prompt, generation_result *out) {
  generation g = c->g;
  HP_TRY(make_room(c, prompt->n, &g.max_new_tokens));
  g.session = c->s;
  HP_TRY(generate_run(c->m, c->t, prompt, &g, out));
  out->load_s = c->load_s;
  return HP_OK;
}
