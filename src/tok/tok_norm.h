/* Normalizers of tokenizer.json: text to text, before it is cut into words. */
#ifndef TOK_TOK_NORM_H
#define TOK_TOK_NORM_H

#include "tok/tok_tree.h"
#include "tok/tok_regex.h"

typedef struct tok_normalizer tok_normalizer;

/* Reads the "normalizer" object (NULL: none, *out is NULL).  An unknown type fails with its name.
 * The result does not refer to the tree. */
hp_status tok_normalizer_parse(const tree_node *node, tok_normalizer **out);
void tok_normalizer_free(tok_normalizer *n);

/* Appends the normal form of text to *out; n may be NULL.  HP_ERR_INPUT when the result is out of
 * proportion to the text (TOK_GROWTH_MAX). */
hp_status tok_normalize(const tok_normalizer *n, tok_matcher *m, const char *text, size_t len,
                        str *out);

/* Whether it maps text to the byte-level alphabet, so that raw bytes survive. */
bool tok_normalizer_takes_bytes(const tok_normalizer *n);

/* A stage may enlarge text to this many times its size (and TOK_GROWTH_MIN bytes). */
enum { TOK_GROWTH_MAX = 64, TOK_GROWTH_MIN = 1 << 12 };

#endif
