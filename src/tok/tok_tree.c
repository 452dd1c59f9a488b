#include "tok/tok_tree.h"

hp_status tok_need_text(const tree_node *m, const char *key, const tree_node **out) {
  HP_TRY(tree_need(m, key, out));
  return tree_expect(*out, TREE_STRING);
}

hp_status tok_opt_text(const tree_node *m, const char *key, const tree_node **out) {
  return tok_get(m, key) ? tok_need_text(m, key, out) : HP_OK;
}

hp_status tok_need_count(const tree_node *m, const char *key, size_t *out) {
  int64_t x;
  HP_TRY(tree_need_int(m, key, &x));
  if (x < 0) TREE_FAIL(tree_get(m, key), "expected 0 or more, found %lld", (long long)x);
  *out = (size_t)x;
  return HP_OK;
}

hp_status tok_opt_count(const tree_node *m, const char *key, size_t *out) {
  return tok_get(m, key) ? tok_need_count(m, key, out) : HP_OK;
}

hp_status tok_type(const tree_node *component, const char *what, const tree_node **out) {
  if (component->kind != TREE_MAP)
    TREE_FAIL(component, "expected %s (an object with a \"type\"), found %s", what,
              tree_what(component).text);
  return tok_need_text(component, "type", out);
}

hp_status tok_unknown(const tree_node *type, const char *what, const char *expected) {
  HP_FAIL(HP_ERR_UNSUPPORTED, "%s: %s %s is not supported; expected %s", tree_where(type).text,
          what, tree_what(type).text, expected);
}
