/* Pre-tokenizers of tokenizer.json: normalized text into words.
 *
 * tok_words is the state between stages: one text and the pieces of it, in order.  A piece is an
 * added token (id >= 0, its text is not looked at any more) or words still to be tokenized. */
#ifndef TOK_TOK_PRE_H
#define TOK_TOK_PRE_H

#include "tok/tok_tree.h"
#include "tok/tok_regex.h"

typedef struct {
  uint32_t at, len; /* bytes of the text */
  int32_t id;       /* of an added token; -1 = text */
  bool first;       /* begins where the input begins */
} tok_piece;

/* A zeroed one is empty and ready; the second text and list are what a stage writes before they
 * change places with the first. */
typedef struct {
  str text, next_text;
  VEC(tok_piece) piece, next_piece;
  tok_spans spans;
  tok_matcher matcher;
  size_t limit; /* bytes the text may grow to */
} tok_words;

/* Appends text as one piece, nothing when it is empty. */
hp_status tok_words_add(tok_words *w, const char *text, size_t len, bool first);
hp_status tok_words_add_token(tok_words *w, int32_t id);
void tok_words_free(tok_words *w);

typedef struct tok_pretokenizer tok_pretokenizer;

/* Reads the "pre_tokenizer" object (NULL: none, *out is NULL).  Unknown types fail by name. */
hp_status tok_pretokenizer_parse(const tree_node *node, tok_pretokenizer **out);
void tok_pretokenizer_free(tok_pretokenizer *p);
/* Cuts the pieces; p may be NULL. */
hp_status tok_pretokenize(const tok_pretokenizer *p, tok_words *w);
/* Whether words come out in the byte-level alphabet, so that raw bytes survive. */
bool tok_pretokenizer_takes_bytes(const tok_pretokenizer *p);

#endif
