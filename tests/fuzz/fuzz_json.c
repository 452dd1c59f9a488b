/* JSON: what is accepted prints to a text that reads back to the same text, in every form. */
#include "fuzz.h"

#include "base/json.h"

#include <string.h>

static char *print(const tree_node *n, int indent, bool utf8) {
  str s = {0};
  json_writer w = {.out = &s, .indent = indent, .compact = !indent, .utf8 = utf8};
  json_put_tree(&w, n);
  return str_take(&s);
}

static void check_again(const tree *t, int indent, bool utf8) {
  tree again;
  char *one = print(t->root, indent, utf8);
  HP_ASSERT(one);
  HP_ASSERT(!json_parse(one, strlen(one), "again", &again));
  char *two = print(again.root, indent, utf8);
  HP_ASSERT(two && !strcmp(one, two));
  mem_free(one);
  mem_free(two);
  tree_free(&again);
}

static void read_tokens(const char *text, size_t n) {
  json_reader r = {.name = "fuzz", .text = text, .len = n};
  json_token t = {.kind = JSON_T_NULL};
  while (t.kind != JSON_T_END && !json_next(&r, &t)) HP_ASSERT(r.at <= n);
  json_reader_free(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
  tree t;
  read_tokens((const char *)bytes, n);
  err_clear();
  if (!json_parse((const char *)bytes, n, "fuzz", &t)) {
    check_again(&t, 0, false);
    check_again(&t, 2, true);
    tree_free(&t);
  }
  err_clear();
  return 0;
}
