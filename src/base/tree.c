#include "base/tree.h"

#include "base/escape.h"
#include "base/hash.h"
#include "base/str.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SMALL_MAP = 8, SHOWN_MAX = 60 };

void tree_free(tree *t) {
  arena_free(&t->mem);
  t->root = NULL;
}

tree_node *tree_new(arena *mem, tree_kind kind, const char *source, size_t line, size_t column) {
  tree_node *n = arena_alloc(mem, 1, sizeof *n);
  if (!n) return NULL;
  n->kind = kind;
  n->source = source;
  n->line = line > UINT32_MAX ? UINT32_MAX : (uint32_t)line;
  n->column = column > UINT32_MAX ? UINT32_MAX : (uint32_t)column;
  return n;
}

/* --- map index ------------------------------------------------------------------------ */

static size_t slots_of(size_t len) {
  size_t slots = 32;
  while (slots < 2 * len) slots *= 2;
  return slots;
}

static bool key_is(const tree_node *n, const char *key, size_t len) {
  return n->key_len == len && !memcmp(n->key, key, len);
}

/* The slot of a key in an indexed map: its own, or the empty one where it would go. */
static uint32_t *find_slot(const tree_node *m, const char *key, size_t len) {
  size_t mask = slots_of(m->len) - 1;
  for (size_t i = hash_bytes(key, len) & mask;; i = (i + 1) & mask) {
    uint32_t *slot = &m->index[i];
    if (!*slot || key_is(m->child[*slot - 1], key, len)) return slot;
  }
}

/* The child number of a key among the first `upto` children, or -1. */
static int64_t find_child(const tree_node *m, const char *key, size_t len, size_t upto) {
  if (m->index) return (int64_t)*find_slot(m, key, len) - 1;
  for (size_t i = 0; i < upto; i++)
    if (key_is(m->child[i], key, len)) return (int64_t)i;
  return -1;
}

hp_status tree_adopt(arena *mem, tree_node *container, tree_node *const *items, size_t n) {
  if (n > UINT32_MAX / 4)
    HP_FAIL(HP_ERR_INPUT, "%s: a list or map of %zu values", container->source, n);
  container->child = arena_alloc(mem, n, sizeof *items);
  HP_TRY_MEM(container->child);
  container->len = (uint32_t)n;
  container->index = NULL;
  if (container->kind == TREE_MAP && n > SMALL_MAP) {
    container->index = arena_alloc(mem, slots_of(n), sizeof *container->index);
    HP_TRY_MEM(container->index);
  }
  for (size_t i = 0; i < n; i++) {
    tree_node *item = items[i];
    item->parent = container;
    container->child[i] = item;
    if (container->kind != TREE_MAP) continue;
    int64_t first = find_child(container, item->key, item->key_len, i);
    if (first >= 0) {
      tree_place p = tree_where(container->child[first]);
      TREE_FAIL(item, "this key is already set at %s; remove one of them", p.text);
    }
    if (container->index) *find_slot(container, item->key, item->key_len) = (uint32_t)i + 1;
  }
  return HP_OK;
}

hp_status tree_set(arena *mem, tree_node *m, tree_node *value) {
  int64_t i = find_child(m, value->key, value->key_len, m->len);
  if (i >= 0) {
    value->parent = m;
    m->child[i] = value;
    return HP_OK;
  }
  tree_node **items = mem_calloc((size_t)m->len + 1, sizeof *items);
  HP_TRY_MEM(items);
  if (m->len) memcpy(items, m->child, m->len * sizeof *items);
  items[m->len] = value;
  hp_status st = tree_adopt(mem, m, items, (size_t)m->len + 1);
  mem_free(items);
  return st;
}

const tree_node *tree_get_n(const tree_node *m, const char *key, size_t key_len) {
  if (!m || m->kind != TREE_MAP) return NULL;
  int64_t i = find_child(m, key, key_len, m->len);
  return i < 0 ? NULL : m->child[i];
}

const tree_node *tree_get(const tree_node *m, const char *key) {
  return tree_get_n(m, key, strlen(key));
}

/* --- words for messages --------------------------------------------------------------- */

/* Appends text to a place, escaped and cut at its end. */
static void put(tree_place *p, const char *text, size_t n) {
  size_t at = strlen(p->text);
  escape_text(p->text + at, sizeof p->text - at, text, n, false);
}

static void putf(tree_place *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void putf(tree_place *p, const char *fmt, ...) {
  char buf[128];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(buf, sizeof buf, fmt, ap);
  va_end(ap);
  put(p, buf, strlen(buf));
}

static size_t number_of(const tree_node *n) {
  size_t i = 0;
  while (i < n->parent->len && n->parent->child[i] != n) i++;
  return i;
}

static void put_path(tree_place *p, const tree_node *n) {
  const tree_node *up[TREE_DEPTH_MAX + 2];
  int depth = 0;
  for (; n->parent && depth < TREE_DEPTH_MAX + 2; n = n->parent) up[depth++] = n;
  for (int i = depth - 1; i >= 0; i--) {
    if (!up[i]->key) {
      putf(p, "[%zu]", number_of(up[i]));
      continue;
    }
    if (i != depth - 1) put(p, ".", 1);
    put(p, up[i]->key, up[i]->key_len < SHOWN_MAX ? up[i]->key_len : SHOWN_MAX);
  }
}

tree_place tree_where(const tree_node *n) {
  tree_place p = {""};
  put(&p, n->source, strlen(n->source));
  if (n->line) putf(&p, ":%u:%u", (unsigned)n->line, (unsigned)n->column);
  if (n->parent) {
    put(&p, ": ", 2);
    put_path(&p, n);
  }
  return p;
}

tree_place tree_what(const tree_node *n) {
  tree_place p = {""};
  str s = {0};
  switch (n->kind) {
  case TREE_NULL: putf(&p, "null"); break;
  case TREE_BOOL: putf(&p, "%s", n->boolean ? "true" : "false"); break;
  case TREE_INT: putf(&p, "%lld", (long long)n->integer); break;
  case TREE_FLOAT:
    str_add_double(&s, n->number);
    putf(&p, "%s", s.at ? s.at : "a number");
    str_free(&s);
    break;
  case TREE_STRING:
    putf(&p, "the string \"");
    put(&p, n->string, n->len < SHOWN_MAX ? n->len : SHOWN_MAX);
    putf(&p, n->len > SHOWN_MAX ? "...\"" : "\"");
    break;
  case TREE_LIST: putf(&p, "a list of %u", (unsigned)n->len); break;
  case TREE_MAP: putf(&p, "a map of %u keys", (unsigned)n->len); break;
  }
  return p;
}

hp_status tree_error(const tree_node *n, const char *file, int line, const char *fmt, ...) {
  char text[1024];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  return err_set(HP_ERR_INPUT, file, line, "%s: %s", tree_where(n).text, text);
}

/* --- typed values --------------------------------------------------------------------- */

static const char *const expected[] = {
    [TREE_NULL] = "null",         [TREE_BOOL] = "true or false", [TREE_INT] = "an integer",
    [TREE_FLOAT] = "a number",    [TREE_STRING] = "a string",    [TREE_LIST] = "a list",
    [TREE_MAP] = "a map of keys",
};

hp_status tree_expect(const tree_node *n, tree_kind kind) {
  if (n->kind != kind) TREE_FAIL(n, "expected %s, found %s", expected[kind], tree_what(n).text);
  return HP_OK;
}

hp_status tree_as_bool(const tree_node *n, bool *out) {
  HP_TRY(tree_expect(n, TREE_BOOL));
  *out = n->boolean;
  return HP_OK;
}

hp_status tree_as_int(const tree_node *n, int64_t *out) {
  /* 2^63 and above do not fit; NaN fails both comparisons */
  bool whole = n->kind == TREE_FLOAT && n->number >= -0x1p63 && n->number < 0x1p63 &&
               n->number == trunc(n->number);
  if (n->kind == TREE_FLOAT && !whole)
    TREE_FAIL(n, "expected an integer of 64 bits, found %s", tree_what(n).text);
  if (!whole) HP_TRY(tree_expect(n, TREE_INT));
  *out = whole ? (int64_t)n->number : n->integer;
  return HP_OK;
}

hp_status tree_as_double(const tree_node *n, double *out) {
  if (n->kind != TREE_INT) HP_TRY(tree_expect(n, TREE_FLOAT));
  *out = n->kind == TREE_INT ? (double)n->integer : n->number;
  return HP_OK;
}

hp_status tree_as_string(const tree_node *n, const char **out) {
  HP_TRY(tree_expect(n, TREE_STRING));
  if (memchr(n->string, 0, n->len))
    TREE_FAIL(n, "the text holds a NUL character, which is not allowed here");
  *out = n->string;
  return HP_OK;
}

hp_status tree_need(const tree_node *m, const char *key, const tree_node **out) {
  HP_TRY(tree_expect(m, TREE_MAP));
  const tree_node *n = tree_get(m, key);
  if (!n) TREE_FAIL(m, "the key \"%s\" is missing", key);
  *out = n;
  return HP_OK;
}

hp_status tree_need_number(const tree_node *m, const char *key, double least, double *out) {
  const tree_node *n;
  HP_TRY(tree_need(m, key, &n));
  HP_TRY(tree_as_double(n, out));
  if (!(*out >= least && *out <= 1e30))
    TREE_FAIL(n, "%g is out of range; expected a number %s", *out,
              least > 0 ? "above 0" : "of 0 or more");
  return HP_OK;
}

/* The value of an optional key, NULL when it is missing or null. */
static hp_status option(const tree_node *m, const char *key, const tree_node **out) {
  HP_TRY(tree_expect(m, TREE_MAP));
  const tree_node *n = tree_get(m, key);
  *out = n && n->kind != TREE_NULL ? n : NULL;
  return HP_OK;
}

#define GETTERS(name, type)                                                                        \
  hp_status tree_need_##name(const tree_node *m, const char *key, type *out) {                     \
    const tree_node *n;                                                                            \
    HP_TRY(tree_need(m, key, &n));                                                                 \
    return tree_as_##name(n, out);                                                                 \
  }                                                                                                \
  hp_status tree_opt_##name(const tree_node *m, const char *key, type absent, type *out) {         \
    const tree_node *n;                                                                            \
    HP_TRY(option(m, key, &n));                                                                    \
    if (n) return tree_as_##name(n, out);                                                          \
    *out = absent;                                                                                 \
    return HP_OK;                                                                                  \
  }
GETTERS(bool, bool)
GETTERS(int, int64_t)
GETTERS(double, double)
typedef const char *c_string;
GETTERS(string, c_string)

#define CONTAINERS(name, kind)                                                                     \
  hp_status tree_need_##name(const tree_node *m, const char *key, const tree_node **out) {         \
    const tree_node *n;                                                                            \
    HP_TRY(tree_need(m, key, &n));                                                                 \
    HP_TRY(tree_expect(n, kind));                                                                  \
    *out = n;                                                                                      \
    return HP_OK;                                                                                  \
  }                                                                                                \
  hp_status tree_opt_##name(const tree_node *m, const char *key, const tree_node **out) {          \
    const tree_node *n;                                                                            \
    HP_TRY(option(m, key, &n));                                                                    \
    if (n) HP_TRY(tree_expect(n, kind));                                                           \
    *out = n;                                                                                      \
    return HP_OK;                                                                                  \
  }
CONTAINERS(list, TREE_LIST)
CONTAINERS(map, TREE_MAP)

hp_status tree_unknown_key(const tree_node *item, const char *const *known, size_t n) {
  const char *near = str_nearest(item->key, known, n);
  if (near) TREE_FAIL(item, "unknown key; did you mean \"%s\"?", near);
  TREE_FAIL(item, "unknown key");
}

hp_status tree_check_keys(const tree_node *m, const char *const *known, size_t n) {
  HP_TRY(tree_expect(m, TREE_MAP));
  for (size_t i = 0; i < m->len; i++) {
    const tree_node *item = m->child[i];
    size_t k = 0;
    while (k < n && strcmp(item->key, known[k])) k++;
    if (k == n) return tree_unknown_key(item, known, n);
  }
  return HP_OK;
}
