/* Answers to a conversation that grows: its tokens stay in the cache of one session, and what is
 * new of them alone is read. */
#ifndef SERVE_CHAT_SESSION_H
#define SERVE_CHAT_SESSION_H

#include "serve/generate.h"
#include "serve/session.h"

typedef struct {
  lm *m;
  const tokenizer *t;
  generation g;
  session *s;    /* NULL before the first answer */
  int64_t room;  /* tokens that its cache holds */
  double load_s; /* of opening the model */
} chat_session;

/* What the session of a conversation begins with, for a memory limit that is a share. */
hp_status chat_session_plan(lm *m, const generation *g, uint64_t *bytes);
void chat_session_close(chat_session *c);
/* The answer ends at g.max_new_tokens, or where the cache that g.cache bytes give is full.
 * HP_ERR_ARG for a conversation that leaves no room for an answer. */
hp_status chat_session_answer(chat_session *c, const lm_tokens *prompt, generation_result *out);

#endif
