/* Post-processors of tokenizer.json: the special tokens around the ids of a text. */
#ifndef TOK_TOK_POST_H
#define TOK_TOK_POST_H

#include "tok/tok_tree.h"
#include "tok/tokenizer.h"

enum { TOK_POST_TEXT = -1 };

/* Ids to put down in order; TOK_POST_TEXT is where the text's ids go.  Empty = the text alone. */
typedef struct {
  token_ids item;
} tok_post;

/* Reads the "post_processor" object (NULL: none) into a zeroed one.  Unknown types fail by name. */
hp_status tok_post_parse(const tree_node *node, tok_post *out);
void tok_post_free(tok_post *p);

#endif
