/* Models of tokenizer.json: a word to ids.  BPE, WordPiece, WordLevel and Unigram. */
#ifndef TOK_TOK_MODEL_H
#define TOK_TOK_MODEL_H

#include "tok/tok_bpe.h"
#include "tok/tok_trie.h"

typedef enum { TOK_BPE, TOK_WORD_PIECE, TOK_WORD_LEVEL, TOK_UNIGRAM } tok_model_kind;

typedef struct {
  tok_model_kind kind;
  tok_vocab vocab;
  const char *file;
  tok_bpe *bpe;
  /* WordPiece and Unigram */
  tok_trie trie;   /* the vocabulary's texts, value = id */
  int32_t unk;     /* -1 = none */
  size_t word_max; /* characters */
  uint32_t inner;  /* node of the trie behind the continuing prefix; 0 = no prefix */
  bool no_inner;   /* no token begins with the prefix */
  double *score;   /* by id */
  double unk_score;
  bool byte_fallback;
  int32_t byte[256];
  arena mem;
} tok_model;

/* Unigram: the best way to a byte of the word. */
typedef struct {
  double score;
  uint32_t from; /* byte where the last token begins; UINT32_MAX = not reached */
  int32_t id;
} tok_best;

/* Work memory of one call; a zeroed one is ready. */
typedef struct {
  tok_bpe_work bpe;
  VEC(tok_best) best;
} tok_model_work;

/* Reads the "model" object into a zeroed model; on failure it is as free leaves it. */
hp_status tok_model_parse(const tree_node *node, tok_model *out);
/* Adds the tokens of an object {token: id}. */
hp_status tok_model_parse_vocab(const tree_node *vocab, tok_model *m);
void tok_model_free(tok_model *m);

/* Appends the ids of a word (well-formed text, n > 0). */
hp_status tok_model_encode(const tok_model *m, tok_model_work *w, const char *word, size_t n,
                           token_ids *out);
void tok_model_work_free(tok_model_work *w);
bool tok_model_takes_bytes(const tok_model *m);

/* Unigram, in a file of its own. */
hp_status tok_unigram_parse(const tree_node *r, tok_model *m);
hp_status tok_unigram_encode(const tok_model *m, tok_model_work *w, const char *word, size_t n,
                             token_ids *out);

#endif
