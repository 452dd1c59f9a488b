/* Added tokens: found in the text itself, before (or, with "normalized", after) normalization. */
#ifndef TOK_TOK_ADDED_H
#define TOK_TOK_ADDED_H

#include "base/hash.h"
#include "tok/tok_norm.h"
#include "tok/tok_trie.h"
#include "tok/tok_vocab.h"

typedef struct {
  tok_text content;
  tok_text pattern; /* what is looked for: the content, normalized if .normalized */
  int32_t id;
  bool single_word, lstrip, rstrip, normalized, special;
} tok_added_token;

/* A zeroed set is empty and ready. */
typedef struct {
  VEC(tok_added_token) token;
  map by_content;  /* -> index */
  int32_t largest; /* id; valid when there are tokens */
  /* The patterns reversed: run from the end of a text, the automaton knows at every byte the
   * longest pattern that begins there, so matching is linear whatever the patterns. */
  tok_trie plain, normalized;
  arena mem;
} tok_added;

/* An entry of "added_tokens" without its id; *out refers to the node. */
hp_status tok_added_parse(const tree_node *node, tok_added_token *out);
/* Adds a token, or gives one that is there already other flags.  Its id is that of the model's
 * vocabulary, else the next free one, as in the reference; `want` is the id that the file says (-1:
 * none), and another one fails.  t->id and t->pattern are ignored, t->content is copied. */
hp_status tok_added_add(tok_added *a, const tok_added_token *t, int64_t want,
                        const tok_vocab *vocab, const tok_normalizer *n, const char *file,
                        unsigned line);
/* Builds the automata; after the last add. */
hp_status tok_added_link(tok_added *a);
void tok_added_free(tok_added *a);

/* The token with this content, or NULL. */
const tok_added_token *tok_added_find(const tok_added *a, const char *content, size_t n);

typedef struct {
  uint32_t at, end;
  int32_t id; /* -1 = text */
} tok_cut;
typedef struct {
  uint32_t at, node;
} tok_hit;
/* Work memory and result of a cut; a zeroed one is ready. */
typedef struct {
  VEC(tok_hit) hit;
  VEC(tok_cut) cut;
} tok_cuts;

/* Cuts text into added tokens and what is between, into out->cut.  `normalized` chooses the set of
 * tokens; with `skip_special` special ones are not looked for. */
hp_status tok_added_cut(const tok_added *a, bool normalized, bool skip_special, const char *text,
                        size_t n, tok_cuts *out);
void tok_cuts_free(tok_cuts *c);

#endif
