/* Attributes of a node: a record of words in the order of the op's row, interned in the pool.
 * Kinds: i and t one word, f the bits of a double, s an interned string, l a count and its words.
 */
#ifndef IR_ATTR_H
#define IR_ATTR_H

#include "ir/graph.h"

enum { ATTR_WORDS_MAX = 40, ATTR_LIST_MAX = 12 };

typedef struct {
  int64_t word[ATTR_WORDS_MAX];
  int n;
} attr_record;

/* Builders: call in the order of the row. */
void attr_put_int(attr_record *a, int64_t v);
void attr_put_float(attr_record *a, double v);
void attr_put_str(attr_record *a, hp_graph *g, const char *s);
void attr_put_list(attr_record *a, const int64_t *v, int n);
uint32_t attr_intern(hp_graph *g, const attr_record *a); /* 0 with the graph poisoned on failure */

/* The record of a node of that op in another graph's pool, with its strings; 0 for 0, or with `to`
 * poisoned. */
uint32_t attr_copy(hp_graph *to, const hp_graph *from, int op, uint32_t attr);

/* Readers by key; the key must be in the op's row (our bug otherwise). */
int64_t attr_int(const hp_graph *g, const ir_node *n, const char *key);
double attr_float(const hp_graph *g, const ir_node *n, const char *key);
const char *attr_str(const hp_graph *g, const ir_node *n, const char *key);
int attr_list(const hp_graph *g, const ir_node *n, const char *key, int64_t out[ATTR_LIST_MAX]);
/* Does the record have just the words that the row of op asks for? */
bool attr_fits(const hp_graph *g, int op, uint32_t attr);

/* Steps through the keys of a row: name, its length, kind; false at the end.  *at starts as the
 * row's text. */
bool attr_next_key(const char **at, const char **name, int *len, char *kind);

#endif
