#include "tok/tok_trie.h"

#include <string.h>

static size_t find_slot(const tok_trie *t, uint64_t key) {
  return (size_t)((key * 0x9E3779B97F4A7C15u) >> 20) & (t->cap - 1);
}

static tok_edge *find_edge(const tok_trie *t, uint64_t key) {
  size_t i = find_slot(t, key);
  while (t->edge[i].key && t->edge[i].key != key) i = (i + 1) & (t->cap - 1);
  return &t->edge[i];
}

uint32_t tok_trie_child(const tok_trie *t, uint32_t node, unsigned char byte) {
  if (!node) return t->root[byte];
  return find_edge(t, ((uint64_t)node << 8 | byte) + 1)->child;
}

static hp_status grow_slots(tok_trie *t) {
  tok_trie bigger = *t;
  bigger.cap = t->cap ? t->cap * 2 : 256;
  bigger.edge = mem_calloc(bigger.cap, sizeof *bigger.edge);
  HP_TRY_MEM(bigger.edge);
  for (size_t i = 0; i < t->cap; i++)
    if (t->edge[i].key) *find_edge(&bigger, t->edge[i].key) = t->edge[i];
  mem_free(t->edge);
  t->edge = bigger.edge;
  t->cap = bigger.cap;
  return HP_OK;
}

hp_status tok_trie_add(tok_trie *t, const char *bytes, size_t n, uint32_t value) {
  if (!t->node.len && !vec_push(&t->node, (tok_node){0})) return HP_ERR_OOM;
  uint32_t at = 0;
  for (size_t i = 0; i < n; i++) {
    unsigned char b = (unsigned char)bytes[i];
    if (t->edges * 2 >= t->cap) HP_TRY(grow_slots(t));
    uint32_t next = tok_trie_child(t, at, b);
    if (!next) {
      if (t->node.len >= UINT32_MAX / 2) HP_FAIL(HP_ERR_INPUT, "tokens of more than 2^31 bytes");
      next = (uint32_t)t->node.len;
      tok_node fresh = {.parent = at, .byte = b, .depth = t->node.at[at].depth + 1};
      if (!vec_push(&t->node, fresh)) return HP_ERR_OOM;
      if (at) {
        uint64_t key = ((uint64_t)at << 8 | b) + 1;
        *find_edge(t, key) = (tok_edge){key, next};
        t->edges++;
      } else {
        t->root[b] = next;
      }
    }
    at = next;
  }
  t->node.at[at].value = value + 1;
  return HP_OK;
}

/* Breadth first, so that the links of a parent and of all shallower nodes are there. */
hp_status tok_trie_link(tok_trie *t) {
  size_t n = t->node.len;
  if (!n) return HP_OK;
  size_t deepest = 0;
  for (size_t i = 1; i < n; i++)
    if (t->node.at[i].depth > deepest) deepest = t->node.at[i].depth;
  uint32_t *order = mem_calloc(n, sizeof *order);
  uint32_t *start = mem_calloc(deepest + 2, sizeof *start);
  if (!order || !start) {
    mem_free(order);
    mem_free(start);
    return HP_ERR_OOM;
  }
  for (size_t i = 0; i < n; i++) start[t->node.at[i].depth + 1]++;
  for (size_t d = 0; d <= deepest; d++) start[d + 1] += start[d];
  for (size_t i = 0; i < n; i++) order[start[t->node.at[i].depth]++] = (uint32_t)i;
  for (size_t k = 1; k < n; k++) {
    tok_node *x = &t->node.at[order[k]];
    uint32_t f = 0;
    if (x->parent) {
      f = t->node.at[x->parent].fail;
      while (f && !tok_trie_child(t, f, x->byte)) f = t->node.at[f].fail;
      f = tok_trie_child(t, f, x->byte);
    }
    x->fail = f;
    x->match = x->value ? order[k] : t->node.at[f].match;
  }
  mem_free(order);
  mem_free(start);
  return HP_OK;
}

void tok_trie_free(tok_trie *t) {
  mem_free(t->edge);
  vec_free(&t->node);
  *t = (tok_trie){0};
}

hp_status tok_trie_add_vocab(tok_trie *t, const tok_vocab *v, const char *file) {
  if (v->longest > TOK_TRIE_TEXT_MAX)
    HP_FAIL(HP_ERR_INPUT, "%s: the vocabulary has a token of %zu bytes; expected at most %d", file,
            v->longest, TOK_TRIE_TEXT_MAX);
  for (size_t id = 0; id < v->n; id++) {
    tok_text x = v->token[id];
    if (x.len) HP_TRY(tok_trie_add(t, x.at, x.len, (uint32_t)id));
  }
  return HP_OK;
}
