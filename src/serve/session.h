/* Sequences being generated side by side: a model, its cache of keys and values, and the tokens so
 * far, of each its own number.
 *
 * The cache consists of blocks that sequences take as they grow and give back when they end, so a
 * sequence has no capacity of its own; equal beginnings, and forks, share blocks.  Tokens are fed
 * in chunks of fixed sizes, so that a few programs serve every length and a long prompt needs no
 * more work memory than a chunk.  A token's f32 logits have the same bits however its prompt was
 * cut, whatever else is in the batch, and wherever its blocks lie.  A device has one session at a
 * time. */
#ifndef SERVE_SESSION_H
#define SERVE_SESSION_H

#include "model/lm.h"

typedef struct session session;

typedef struct {
  int64_t sequences, tokens; /* expected: sequences at a time, and tokens of each */
  int64_t blocks;            /* of the cache; 0: by bytes */
  uint64_t bytes;            /* of the cache; 0: as many as the tokens expected need */
  /* HP_OFFLOAD_HOST, _FLASH: the cache is there, and the device has slots for some of its blocks,
   * as many as the memory limit allows; AUTO: on the host, if it does not fit next to the weights.
   */
  int offload;
  int64_t slots;  /* blocks at most that attention goes through at a time; 0: as memory allows */
  int64_t sparse; /* > 0: a token that is fed by itself attends to so many blocks (model_cache) */
} session_options;
hp_status session_create(lm *m, const session_options *o, session **out);
void session_free(session *s);

/* Memory of the larger program, for prompts of so many tokens or one more token of each sequence,
 * with the cache on the device; needs no weights, and leaves nothing there. */
hp_status session_plan(lm *m, const session_options *o, int64_t prompt, hp_memory *out);

/* A sequence without tokens; its number is reused after its end. */
hp_status session_add(session *s, int64_t *sequence);
/* One with the same tokens.  It shares their blocks, until either of them writes. */
hp_status session_fork(session *s, int64_t sequence, int64_t *out);
void session_end(session *s, int64_t sequence);
/* Ends all sequences. */
void session_reset(session *s);
int64_t session_length(const session *s, int64_t sequence); /* tokens so far */

typedef struct {
  int64_t sequence;
  const int32_t *ids;
  int64_t n;
} session_tokens;
/* Feeds tokens to some sequences, at least one to each, in chunks; row i of logits [n,V] is that of
 * the last token of t[i].  HP_ERR_ARG for ids out of range, HP_ERR_OOM if the cache has too few
 * free blocks: then nothing was fed. */
hp_status session_feed(session *s, const session_tokens *t, int64_t n, float *logits);

/* The sequence is longer by n tokens, whose keys and values are whatever the cache holds there: to
 * measure long texts without reading them. */
hp_status session_skip(session *s, int64_t sequence, int64_t n);

typedef struct {
  int64_t blocks, free_blocks; /* of the cache */
  uint64_t block_bytes;        /* in all layers */
} session_cache;
session_cache session_cache_get(const session *s);
/* The program of the last tokens fed, for its figures; NULL before the first. */
hp_program *session_program(const session *s);

#endif
