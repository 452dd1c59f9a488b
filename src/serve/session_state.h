/* What the files of a session share: session.c has its sequences and blocks, session_run.c its
 * programs. */
#ifndef SERVE_SESSION_STATE_H
#define SERVE_SESSION_STATE_H

#include "serve/sequence.h"
#include "serve/session.h"

/* What a program is made for: sequences of a group, tokens of each, and the cache. */
typedef struct {
  int64_t rows, T;
  model_cache cache;
} session_shape;

typedef struct {
  session_shape shape;
  hp_program *p;
  uint64_t used; /* the number of its last run */
} session_part;

struct session {
  lm *m;
  int64_t groups, blocks; /* of sequences, that devices share; blocks of each group */
  uint64_t block_bytes;
  int tier;          /* of the cache: HP_OFFLOAD_HOST or HP_OFFLOAD_FLASH; 0: the device */
  int64_t sparse;    /* of session_options */
  int64_t slots_max; /* on a tier: blocks of a part of attention, that the device has room for */
  block_pool **pool; /* [groups] */
  VEC(sequence) all;
  bool shares;    /* sequences with equal beginnings share them */
  int64_t window; /* all layers have one: what is before it is given back; 0: they have not */
  int64_t prompt; /* length that rotary tables are for, if they depend on it */
  VEC(session_part) part;
  uint64_t runs;
  hp_program *last; /* that ran */
  /* Inputs of a program: [B,T], those of span twice, table [B,width], [B], and lists of blocks. */
  VEC(int32_t) input;
  VEC(const sequence *) in_row; /* of the batch [B]; NULL: padding */
  VEC(float) logits;            /* [B,V], where not all rows are wanted */
};

/* A feed: what is left of each session_tokens. */
typedef struct {
  const session_tokens *t;
  int64_t n;
  int64_t *left; /* of t[i]: tokens that are not fed */
  int64_t *row;  /* of t[i] in the batch of this chunk; -1: it is not in it */
} session_work;

/* Memory of the larger program for the first chunk, or one token of each, if it is more. */
hp_status session_plan_work(const session *s, const session_work *w, hp_memory *out);
/* One chunk of the feed, of some of its sequences; there must be blocks for all of it. */
hp_status session_run_chunk(session *s, session_work *w, float *logits);
/* Rotary tables that depend on the prompt's length, for a prompt of `length`. */
hp_status session_make_tables(session *s, int64_t length);
void session_free_programs(session *s);
/* Where the cache is, by the options, and how much of it the device has room for. */
hp_status session_choose_tier(session *s, const session_options *o);
/* Refuses the shape, for which the memory limit has no room, with the bytes of its slots. */
hp_status session_too_small(const session *s, const session_shape *x);

#endif
