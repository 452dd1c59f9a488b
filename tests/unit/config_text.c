#include "config_text.h"

#include "base/yaml.h"
#include "test.h"

#define MINIMUM "model_name_or_path: m\nstage: pt\nfinetuning_type: full\ndataset: d\n"

hp_status config_text_parse(const char *more, tree *source, train_config *c) {
  str s = {0};
  *source = (tree){0};
  str_printf(&s, MINIMUM "%s", more);
  hp_status st = yaml_parse(s.at, s.len, "run.yaml", source);
  if (!st) st = train_config_parse(source->root, c);
  str_free(&s);
  return st;
}

void config_text_refused(const char *more, const char *says) {
  train_config c;
  tree source;
  hp_status st = config_text_parse(more, &source, &c);
  if (!st || !strstr(err_message(), says))
    test_fail(__FILE__, __LINE__, "%s gives\n  \"%s\", want \"%s\" in it", more,
              st ? err_message() : "no failure", says);
  if (!st) train_config_free(&c);
  err_clear();
  tree_free(&source);
}
