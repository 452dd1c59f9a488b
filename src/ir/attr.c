#include "ir/attr.h"

#include <string.h>

void attr_put_int(attr_record *a, int64_t v) {
  HP_ASSERT(a->n < ATTR_WORDS_MAX);
  a->word[a->n++] = v;
}

void attr_put_float(attr_record *a, double v) {
  int64_t bits;
  memcpy(&bits, &v, sizeof bits);
  attr_put_int(a, bits);
}

void attr_put_str(attr_record *a, hp_graph *g, const char *s) {
  attr_put_int(a, graph_string(g, s));
}

void attr_put_list(attr_record *a, const int64_t *v, int n) {
  HP_ASSERT(n >= 0 && n <= ATTR_LIST_MAX);
  attr_put_int(a, n);
  for (int i = 0; i < n; i++) attr_put_int(a, v[i]);
}

uint32_t attr_intern(hp_graph *g, const attr_record *a) {
  uint32_t id = intern(&g->pool->attrs, a->word, (size_t)a->n * sizeof *a->word);
  if (!id) graph_poison(g, HP_ERR_OOM);
  return id;
}

bool attr_next_key(const char **at, const char **name, int *len, char *kind) {
  while (**at == ' ') ++*at;
  if (!**at) return false;
  const char *colon = strchr(*at, ':');
  *name = *at;
  *len = (int)(colon - *at);
  *kind = colon[1];
  *at = colon + 2;
  return true;
}

uint32_t attr_copy(hp_graph *to, const hp_graph *from, int op, uint32_t attr) {
  attr_record a;
  const char *at = op_table[op].attrs, *name;
  int len;
  char kind;
  size_t bytes;
  if (!attr) return 0;
  const int64_t *w = intern_get(&from->pool->attrs, attr, &bytes);
  a.n = (int)(bytes / sizeof *w);
  HP_ASSERT(a.n <= ATTR_WORDS_MAX);
  memcpy(a.word, w, bytes);
  for (int i = 0; attr_next_key(&at, &name, &len, &kind);) {
    if (kind == 's' && w[i]) a.word[i] = graph_string(to, graph_str(from, (uint32_t)w[i]));
    i += kind == 'l' ? 1 + (int)w[i] : 1;
  }
  return attr_intern(to, &a);
}

/* The words of one key. */
static const int64_t *find_words(const hp_graph *g, const ir_node *n, const char *key) {
  const int64_t *w = intern_get(&g->pool->attrs, n->attr, NULL);
  const char *at = op_table[n->op].attrs, *name;
  int len;
  char kind;
  while (attr_next_key(&at, &name, &len, &kind)) {
    if (!strncmp(name, key, (size_t)len) && !key[len]) return w;
    w += kind == 'l' ? 1 + *w : 1;
  }
  err_bug(__FILE__, __LINE__, key);
}

int64_t attr_int(const hp_graph *g, const ir_node *n, const char *key) {
  return *find_words(g, n, key);
}

double attr_float(const hp_graph *g, const ir_node *n, const char *key) {
  double v;
  memcpy(&v, find_words(g, n, key), sizeof v);
  return v;
}

const char *attr_str(const hp_graph *g, const ir_node *n, const char *key) {
  return graph_str(g, (uint32_t)*find_words(g, n, key));
}

int attr_list(const hp_graph *g, const ir_node *n, const char *key, int64_t out[ATTR_LIST_MAX]) {
  const int64_t *w = find_words(g, n, key);
  for (int64_t i = 0; i < w[0]; i++) out[i] = w[1 + i];
  return (int)w[0];
}

bool attr_fits(const hp_graph *g, int op, uint32_t attr) {
  const char *at = op_table[op].attrs, *name;
  int len;
  char kind;
  size_t bytes = 0;
  const int64_t *w = attr ? intern_get(&g->pool->attrs, attr, &bytes) : NULL;
  size_t have = bytes / sizeof *w, i = 0;
  while (attr_next_key(&at, &name, &len, &kind)) {
    if (i >= have) return false;
    if (kind == 'l' && (w[i] < 0 || w[i] > ATTR_LIST_MAX)) return false;
    if (kind == 's' && (w[i] < 0 || (size_t)w[i] > g->pool->strings.len)) return false;
    if (kind == 't' && (w[i] < 0 || w[i] >= HP_DTYPE_COUNT)) return false;
    i += kind == 'l' ? 1 + (size_t)w[i] : 1;
  }
  return i == have;
}
