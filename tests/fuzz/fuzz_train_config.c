/* Training files: what is accepted prints as a file that is accepted and prints the same. */
#include "fuzz.h"

#include "base/yaml.h"
#include "train/train_config.h"

#include <string.h>

static hp_status parse(const char *bytes, size_t n, tree *t, train_config *c) {
  HP_TRY(yaml_parse(bytes, n, "run.yaml", t));
  hp_status st = train_config_parse(t->root, c);
  if (st) tree_free(t);
  return st;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
  tree t = {0}, again_tree = {0};
  train_config c, again;
  str one = {0}, two = {0};
  if (!parse((const char *)bytes, n, &t, &c)) {
    train_config_print(&c, &one);
    HP_ASSERT(!str_status(&one));
    HP_ASSERT(!parse(one.at, one.len, &again_tree, &again));
    train_config_print(&again, &two);
    HP_ASSERT(!strcmp(one.at, two.at));
    train_config_free(&again);
    train_config_free(&c);
    tree_free(&again_tree);
    tree_free(&t);
  }
  err_clear();
  str_free(&one);
  str_free(&two);
  return 0;
}
