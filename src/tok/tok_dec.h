/* Decoders of tokenizer.json: the texts of tokens back into readable text. */
#ifndef TOK_TOK_DEC_H
#define TOK_TOK_DEC_H

#include "tok/tok_tree.h"
#include "tok/tok_regex.h"

/* Texts one behind the other; a zeroed list is empty and ready. */
typedef struct {
  str text;
  VEC(size_t) end; /* of each text */
} tok_list;
hp_status tok_list_add(tok_list *l, const char *text, size_t n);
void tok_list_free(tok_list *l);

typedef struct tok_decoder tok_decoder;

/* Reads the "decoder" object (NULL: none, *out is NULL).  Unknown types fail by name. */
hp_status tok_decoder_parse(const tree_node *node, tok_decoder **out);
void tok_decoder_free(tok_decoder *d);

/* Runs all steps over the list, which is changed, and appends the joined texts to *out; without a
 * decoder the texts are joined with spaces. */
hp_status tok_decode(const tok_decoder *d, tok_list *list, str *out);

/* Whether it is the byte-level decoder alone: text is then the bytes of the tokens in a row. */
bool tok_decoder_is_byte_level(const tok_decoder *d);
/* Appends the bytes of a token written in the byte-level alphabet, as is when it is not. */
void tok_decode_bytes(const char *token, size_t n, str *out);

#endif
