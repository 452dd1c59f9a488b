/* Lists of names in a training file. */
#include "train/train_config.h"

#include <string.h>

hp_status train_config_split(train_config *c, const tree_node *v, train_names *out) {
  *out = (train_names){0};
  if (!v) return HP_OK;
  size_t n = 1;
  if (v->kind == TREE_LIST) n = v->len;
  else {
    const char *s;
    HP_TRY(tree_as_string(v, &s));
    for (; *s; s++) n += *s == ',';
  }
  const char **name = arena_alloc(&c->mem, n ? n : 1, sizeof *name);
  HP_TRY_MEM(name);
  const char *s = v->kind == TREE_STRING ? v->string : NULL;
  for (size_t i = 0; i < n; i++) {
    if (v->kind == TREE_LIST) HP_TRY(tree_as_string(v->child[i], &s));
    size_t len = v->kind == TREE_LIST ? strlen(s) : strcspn(s, ",");
    const char *first = s + strspn(s, " \t"), *last = s + len;
    while (last > first && (last[-1] == ' ' || last[-1] == '\t')) last--;
    if (last <= first) TREE_FAIL(v, "holds an empty name; expected names separated by commas");
    name[i] = arena_strndup(&c->mem, first, (size_t)(last - first));
    HP_TRY_MEM(name[i]);
    s += len + (s[len] == ',');
  }
  *out = (train_names){name, n};
  return HP_OK;
}
