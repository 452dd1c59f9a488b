/* Byte-pair encoding: characters of a word are merged, best rank first, leftmost first. */
#ifndef TOK_TOK_BPE_H
#define TOK_TOK_BPE_H

#include "tok/tok_tree.h"
#include "tok/tok_vocab.h"
#include "tok/tokenizer.h"

typedef struct tok_bpe tok_bpe;

typedef struct {
  int32_t id;          /* -1: merged into its left neighbour */
  uint32_t prev, next; /* indices; UINT32_MAX = none */
} tok_symbol;

/* Work memory of one call; a zeroed one is ready. */
typedef struct {
  VEC(tok_symbol) symbol;
  VEC(uint64_t) heap; /* rank << 32 | index of the left symbol */
  str text;
} tok_bpe_work;

/* Options besides vocabulary and merges; texts are NULL when absent. */
typedef struct {
  const tree_node *unk_token, *prefix, *suffix;
  bool fuse_unk, byte_fallback, ignore_merges;
} tok_bpe_options;

/* A model over a filled vocabulary, which it keeps a pointer to. */
hp_status tok_bpe_create(const tok_vocab *vocab, const char *file, const tok_bpe_options *o,
                         tok_bpe **out);
/* Adds a merge; smaller ranks are merged first, equal ones from the left (TOK_RANK_NEXT: the number
 * of merges before this one).  Both parts and their concatenation must be in the vocabulary. */
enum { TOK_RANK_NEXT = -1 };
hp_status tok_bpe_add_merge(tok_bpe *b, const char *left, size_t left_len, const char *right,
                            size_t right_len, int64_t rank, unsigned line);
/* The "merges" list of a model: "a b" or ["a", "b"] each.  `ranks` is our addition to the format,
 * a list of the merges' ranks (NULL: none): a greedy tokenizer by scores has ties, which a bare
 * list cannot say. */
hp_status tok_bpe_parse_merges(tok_bpe *b, const tree_node *merges, const tree_node *ranks);
void tok_bpe_free(tok_bpe *b);

/* Appends the ids of a word. */
hp_status tok_bpe_encode(const tok_bpe *b, tok_bpe_work *w, const char *word, size_t n,
                         token_ids *out);
void tok_bpe_work_free(tok_bpe_work *w);
/* Whether every byte has a <0xXX> token to fall back to. */
bool tok_bpe_takes_bytes(const tok_bpe *b);

#endif
