/* One sequence being generated: a model, its cache of keys and values, and the tokens so far.
 *
 * Tokens are fed in chunks of fixed sizes, so that a few programs serve every length.  A token's
 * logits have the same bits however the prompt was cut. */
#ifndef SERVE_SESSION_H
#define SERVE_SESSION_H

#include "model/lm.h"

typedef struct session session;

/* Room for `capacity` tokens in all. */
hp_status session_create(lm *m, int64_t capacity, session **out);
void session_free(session *s);
/* Forgets all tokens. */
void session_reset(session *s);
int64_t session_length(const session *s);
/* Feeds n tokens; logits [V] of the last one.  HP_ERR_ARG for ids out of range or beyond the
 * capacity. */
hp_status session_feed(session *s, const int32_t *ids, int64_t n, float *logits);

/* The program of the last tokens fed, for its figures; NULL before the first. */
hp_program *session_program(const session *s);

#endif
