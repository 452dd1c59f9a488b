/* key.path=value arguments of the command line, by the rules of OmegaConf's from_cli. */
#include "base/yaml.h"

#include "base/str.h"

#include <string.h>

enum { PATH_MAX_KEYS = TREE_DEPTH_MAX };

typedef struct {
  const char *key[PATH_MAX_KEYS];
  size_t len[PATH_MAX_KEYS];
  size_t n;
} key_path;

static bool escapes(const char *s) { return s[0] == '\\' && s[1] && strchr(".[]=", s[1]); }

/* The first `=` that is not escaped, or NULL. */
static const char *find_equals(const char *s) {
  for (; *s && *s != '='; s++)
    if (escapes(s)) s++;
  return *s ? s : NULL;
}

/* One key of the path from *at up to a character of `stops`, without its escapes. */
static hp_status take_key(arena *mem, const char *source, const char **at, const char *end,
                          const char *stops, key_path *out) {
  const char *s = *at;
  char *key = arena_alloc(mem, (size_t)(end - s) + 1, 1);
  size_t n = 0;
  HP_TRY_MEM(key);
  while (s < end && !strchr(stops, *s)) {
    if (escapes(s)) s++;
    key[n++] = *s++;
  }
  if (!n) HP_FAIL(HP_ERR_INPUT, "%s: an empty key; expected KEY=VALUE or A.B=VALUE", source);
  if (out->n == PATH_MAX_KEYS)
    HP_FAIL(HP_ERR_INPUT, "%s: more than %d keys in the path", source, PATH_MAX_KEYS);
  out->key[out->n] = key;
  out->len[out->n++] = n;
  *at = s;
  return HP_OK;
}

/* a.b[c] as the keys a, b, c. */
static hp_status split_path(arena *mem, const char *source, const char *s, const char *end,
                            key_path *out) {
  if (*s != '[') HP_TRY(take_key(mem, source, &s, end, ".[", out));
  while (s < end) {
    bool bracket = *s++ == '[';
    HP_TRY(take_key(mem, source, &s, end, bracket ? "]" : ".[", out));
    if (!bracket) continue;
    if (s == end) HP_FAIL(HP_ERR_INPUT, "%s: a '[' of the key is not closed by ']'", source);
    s++;
    if (s < end && *s != '.' && *s != '[')
      HP_FAIL(HP_ERR_INPUT, "%s: expected '.', '[' or '=' after ']'", source);
  }
  return HP_OK;
}

static size_t depth_of(const tree_node *n) {
  size_t deepest = 0;
  if (n->kind != TREE_LIST && n->kind != TREE_MAP) return 0;
  for (uint32_t i = 0; i < n->len; i++) {
    size_t d = depth_of(n->child[i]);
    if (d > deepest) deepest = d;
  }
  return deepest + 1;
}

/* Puts value into map under its key; a map is merged into a map that is there. */
static hp_status merge(arena *mem, tree_node *map, tree_node *value) {
  tree_node *old = (tree_node *)(uintptr_t)tree_get_n(map, value->key, value->key_len);
  if (!old || old->kind != TREE_MAP || value->kind != TREE_MAP) return tree_set(mem, map, value);
  for (uint32_t i = 0; i < value->len; i++) HP_TRY(merge(mem, old, value->child[i]));
  return HP_OK;
}

/* Descends to the map that holds the last key of the path, making what is missing. */
static hp_status descend(tree *t, const char *source, const key_path *path, tree_node **out) {
  tree_node *at = t->root;
  for (size_t i = 0; i + 1 < path->n; i++) {
    tree_node *below = (tree_node *)(uintptr_t)tree_get_n(at, path->key[i], path->len[i]);
    if (below && below->kind == TREE_LIST)
      HP_FAIL(HP_ERR_INPUT, "%s: %s is a list; give the whole list, as %s=[...]", source,
              tree_where(below).text, path->key[i]);
    if (!below || below->kind != TREE_MAP) {
      below = tree_new(&t->mem, TREE_MAP, source, 0, 0);
      HP_TRY_MEM(below);
      below->key = path->key[i];
      below->key_len = (uint32_t)path->len[i];
      HP_TRY(tree_set(&t->mem, at, below));
    }
    at = below;
  }
  *out = at;
  return HP_OK;
}

/* Its keys are known to a repeated key inside the value once it is in the map. */
static hp_status put_value(tree *t, const char *source, const key_path *path, tree_node *value,
                           const yaml_repeats *repeats) {
  tree_node *map = NULL;
  value->key = path->key[path->n - 1];
  value->key_len = (uint32_t)path->len[path->n - 1];
  HP_TRY(descend(t, source, path, &map));
  value->parent = map;
  if (repeats->len) return yaml_repeat_error(repeats->at[0]);
  return merge(&t->mem, map, value);
}

hp_status yaml_override(tree *t, const char *argument, int number) {
  key_path path = {.n = 0};
  tree_node *value = NULL;
  yaml_repeats repeats = {0};
  const char *source = arena_printf(&t->mem, "argument %d", number);
  HP_TRY_MEM(source);
  HP_TRY(tree_expect(t->root, TREE_MAP));
  const char *equals = find_equals(argument);
  if (!equals)
    HP_FAIL(HP_ERR_INPUT, "%s: \"%.80s\" has no '='; expected KEY=VALUE", source, argument);
  HP_TRY(split_path(&t->mem, source, argument, equals, &path));
  hp_status st = yaml_parse_value(&t->mem, equals + 1, source, &repeats, &value);
  if (!st && path.n + depth_of(value) > TREE_DEPTH_MAX)
    st = err_set(HP_ERR_INPUT, __FILE__, __LINE__, "%s: more than %d levels of keys", source,
                 TREE_DEPTH_MAX);
  if (!st) st = put_value(t, source, &path, value, &repeats);
  vec_free(&repeats);
  return st;
}
