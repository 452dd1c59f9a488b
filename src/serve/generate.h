/* Text from a model: prompt in, tokens out, until an end token, a stop text or the limit. */
#ifndef SERVE_GENERATE_H
#define SERVE_GENERATE_H

#include "tok/tokenizer.h"
#include "model/lm_eval.h"
#include "serve/sampling.h"

enum { GENERATION_ENDS_MAX = 64 };

typedef struct {
  sampling sampling;
  int64_t max_new_tokens;
  int32_t eos[GENERATION_ENDS_MAX]; /* tokens that end the text */
  int n_eos;
  const char *stop; /* text that ends it; NULL = none */
  uint64_t cache;   /* bytes for keys and values; 0: what prompt and limit need */
  int offload;      /* where they are, and how many of their blocks a token attends to: as in */
  int64_t sparse;   /* session_options */
  /* Called with pieces of the text as they become final; false ends the text there.  May be NULL.
   */
  bool (*piece)(void *ctx, const char *text, size_t n);
  bool (*goes_on)(void *ctx); /* asked at each token; false ends the text there.  May be NULL. */
  void *ctx;
  /* Has the cache in place of one made for the run, so that a next prompt that begins as this one
   * and its text did is read from there on.  May be NULL. */
  struct session *session;
} generation;

/* From DIR/generation_config.json where it is there, else config.json; greedy unless do_sample. */
hp_status generation_defaults(const lm *m, generation *g);

typedef struct {
  token_ids ids;                /* new ones; the end token, if it came, is the last */
  str text;                     /* of them, without special tokens, cut at the stop text */
  double seconds;               /* of reading the prompt and decoding */
  double first_token_s, load_s; /* of them to the first token; of opening the model: the caller's */
} generation_result;

/* t may be NULL: no text then.  HP_ERR_ARG for a prompt that is empty or has ids out of range. */
hp_status generate_run(lm *m, const tokenizer *t, const lm_tokens *prompt, const generation *g,
                       generation_result *out);
/* The same for n prompts side by side, each with the text that it has by itself; g->piece is for
 * one.  Prompts wait while the cache has no room for all that they may become. */
hp_status generate_many(lm *m, const tokenizer *t, const lm_tokens *prompt, int64_t n,
                        const generation *g, generation_result *out);
void generation_result_free(generation_result *r);
/* {"prompt_tokens": [...], "tokens": [...], "text": "...", "tokens_per_s": ..., "first_token_s":
 * ..., "load_s": ...} */
void generation_print_json(const lm_tokens *prompt, const generation_result *r, str *out);

#endif
