/* Sequences being generated side by side: a model, its cache of keys and values, and the tokens so
 * far, of each its own number.
 *
 * Tokens are fed in chunks of fixed sizes, so that a few programs serve every length and a long
 * prompt needs no more work memory than a chunk.  A token's f32 logits have the same bits however
 * its prompt was cut, and whatever is beside it. */
#ifndef SERVE_SESSION_H
#define SERVE_SESSION_H

#include "model/lm.h"

typedef struct session session;

/* `sequences` of them, with room for `capacity` tokens each. */
hp_status session_create(lm *m, int64_t sequences, int64_t capacity, session **out);
void session_free(session *s);
/* Forgets all tokens. */
void session_reset(session *s);
/* Feeds count[i] tokens ids[i] to sequence i, to one of them at least; row i of logits
 * [sequences, V] is that of the last of them, and is left alone where there are none.  HP_ERR_ARG
 * for ids out of range or beyond the capacity. */
hp_status session_feed(session *s, const int32_t *const *ids, const int64_t *count, float *logits);
/* The program of the last tokens fed, for its figures; NULL before the first. */
hp_program *session_program(const session *s);

#endif
