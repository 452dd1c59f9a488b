/* Trie of byte strings with a value each, and its failure links (Aho-Corasick). */
#ifndef TOK_TOK_TRIE_H
#define TOK_TOK_TRIE_H

#include "base/vec.h"
#include "tok/tok_vocab.h"

typedef struct {
  uint64_t key; /* (node << 8 | byte) + 1; 0 = free */
  uint32_t child;
} tok_edge;

typedef struct {
  uint32_t value; /* of the string that ends here, + 1; 0 = none */
  uint32_t parent;
  uint32_t fail;  /* longest proper suffix that is a node */
  uint32_t match; /* nearest of this node and its suffixes that has a value; 0 = none */
  uint32_t depth;
  unsigned char byte;
} tok_node;

/* Node 0 is the root.  A zeroed trie is empty and ready. */
typedef struct {
  tok_edge *edge; /* open addressing: one lookup per byte, however many children */
  size_t cap, edges;
  uint32_t root[256]; /* children of the root; 0 = none */
  VEC(tok_node) node;
} tok_trie;

/* Adds bytes[0..n), n > 0, with a value; an earlier equal string loses its value to it. */
hp_status tok_trie_add(tok_trie *t, const char *bytes, size_t n, uint32_t value);
/* Child of `node` by a byte; 0 when there is none. */
uint32_t tok_trie_child(const tok_trie *t, uint32_t node, unsigned char byte);
/* Sets fail and match of every node; call once after the last add. */
hp_status tok_trie_link(tok_trie *t);
void tok_trie_free(tok_trie *t);

/* Longest token of a model that walks the trie from every position: bounds that walk. */
enum { TOK_TRIE_TEXT_MAX = 1024 };
/* Adds the texts of a vocabulary, value = id; `file` is for the message. */
hp_status tok_trie_add_vocab(tok_trie *t, const tok_vocab *v, const char *file);

#endif
