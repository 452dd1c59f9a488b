/* YAML: what is accepted prints as JSON that reads back to the same text.  The same bytes are also
 * tried as a command-line override. */
#include "fuzz.h"

#include "base/json.h"
#include "base/yaml.h"

#include <string.h>

static char *print(const tree_node *n) {
  str s = {0};
  json_writer w = {.out = &s};
  json_put_tree(&w, n);
  return str_take(&s);
}

static void check_printable(const tree *t) {
  tree again;
  char *one = print(t->root);
  HP_ASSERT(one);
  HP_ASSERT(!json_parse(one, strlen(one), "again", &again));
  char *two = print(again.root);
  HP_ASSERT(two && !strcmp(one, two));
  mem_free(one);
  mem_free(two);
  tree_free(&again);
}

static void try_override(const char *text, size_t n) {
  static const char base[] = "a: 1\nm: {x: 1, l: [1, {y: z}]}\n";
  char argument[512];
  tree t;
  if (n >= sizeof argument) return;
  memcpy(argument, text, n);
  argument[n] = 0;
  HP_ASSERT(!yaml_parse(base, sizeof base - 1, "base", &t));
  if (!yaml_override(&t, argument, 1)) check_printable(&t);
  tree_free(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
  tree t;
  if (!yaml_parse((const char *)bytes, n, "fuzz", &t)) {
    check_printable(&t);
    tree_free(&t);
  }
  err_clear();
  try_override((const char *)bytes, n);
  err_clear();
  return 0;
}
