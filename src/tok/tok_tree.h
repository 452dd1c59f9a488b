/* Reading tokenizer files' JSON (base/tree.h): texts that may hold NULs, and components by type. */
#ifndef TOK_TOK_TREE_H
#define TOK_TOK_TREE_H

#include "base/tree.h"

#include <string.h>

/* The value of a key; NULL when it is absent or null. */
static inline const tree_node *tok_get(const tree_node *m, const char *key) {
  const tree_node *n = tree_get(m, key);
  return n && n->kind != TREE_NULL ? n : NULL;
}
static inline bool tok_is(const tree_node *n, const char *text) {
  return n && n->kind == TREE_STRING && n->len == strlen(text) && !memcmp(n->string, text, n->len);
}

/* The string under a key; tok_opt_text leaves *out as it is when the key is absent or null. */
hp_status tok_need_text(const tree_node *m, const char *key, const tree_node **out);
hp_status tok_opt_text(const tree_node *m, const char *key, const tree_node **out);
/* A whole number from 0 on; the second leaves *out as it is when the key is absent or null. */
hp_status tok_need_count(const tree_node *m, const char *key, size_t *out);
hp_status tok_opt_count(const tree_node *m, const char *key, size_t *out);
/* The "type" of a component object.  `what` names the sort of component in messages. */
hp_status tok_type(const tree_node *component, const char *what, const tree_node **out);
/* Fails: this type of component is not known; `expected` lists those that are. */
hp_status tok_unknown(const tree_node *type, const char *what, const char *expected);

#endif
