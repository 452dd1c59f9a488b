/* What the files of a session share: session.c has its sequences and blocks, session_run.c its
 * programs. */
#ifndef SERVE_SESSION_STATE_H
#define SERVE_SESSION_STATE_H

#include "serve/sequence.h"
#include "serve/session.h"

typedef struct {
  int64_t rows, T; /* sequences of a group; tokens of each */
  hp_program *p;
  uint64_t used; /* the number of its last run */
} session_part;

struct session {
  lm *m;
  int64_t groups, blocks; /* of sequences, that devices share; blocks of each group */
  uint64_t block_bytes;
  block_pool **pool; /* [groups] */
  VEC(sequence) all;
  bool shares;    /* sequences with equal beginnings share them */
  int64_t prompt; /* length that rotary tables are for, if they depend on it */
  VEC(session_part) part;
  uint64_t runs;
  hp_program *last; /* that ran */
  /* Inputs of a program: [B,T], those of span twice, table [B,blocks], and [B]. */
  VEC(int32_t) input;
  VEC(float) logits; /* [B,V], where not all rows are wanted */
};

/* A feed: what is left of each session_tokens. */
typedef struct {
  const session_tokens *t;
  int64_t n;
  int64_t *left; /* of t[i]: tokens that are not fed */
  int64_t *row;  /* of t[i] in the batch of this chunk; -1: it is not in it */
} session_work;

/* One chunk of the feed, of some of its sequences; there must be blocks for all of it. */
hp_status session_run_chunk(session *s, session_work *w, float *logits);
/* Rotary tables that depend on the prompt's length, for a prompt of `length`. */
hp_status session_make_tables(session *s, int64_t length);
void session_free_programs(session *s);

#endif
