/* Which jobs run forwards of the next step before the update of this one. */
#include "base/yaml.h"
#include "test.h"
#include "train/trainer.h"

#include <stdio.h>
#include <string.h>

#define MINIMUM "model_name_or_path: m\nstage: pt\nfinetuning_type: full\ndataset: d\n"

static hp_status parse(const char *text, tree *source, train_config *c) {
  HP_TRY(yaml_parse(text, strlen(text), "run.yaml", source));
  return train_config_parse(source->root, c);
}

/* Forwards of the next step run before the update unless the user, a schedule that leaves no device
 * idle, or a memory limit says otherwise. */
TEST(post_validation_is_on_for_schedules_that_split_the_backward) {
#define PIPE(keys) "strategy: pp=2\nhyper_parallel: {pipeline: {" keys "}}\n"
  static const struct {
    const char *text;
    bool ahead;
  } cases[] = {
      {PIPE("schedule: zbv"), true},
      {PIPE("schedule: zb-h1, post_validation: true"), true},
      {PIPE("schedule: zbv, post_validation: false"), false},
      {PIPE("schedule: zbv") "memory_limit: 1GiB\n", false},
      {PIPE("schedule: zbv, post_validation: true") "memory_limit: 50%\n", false},
      {PIPE("schedule: zbv") "offload: activations=host\n", false},
      {PIPE("schedule: zbv") "offload: '*.mlp.*=host'\n", false},
      {"strategy: pp=2\nhyper_parallel: {pipeline: {schedule: zbv}, offload_policy: layer_ahead}\n",
       false},
      {PIPE("schedule: zbv") "offload: none\n", true},
      {PIPE("schedule: 1f1b, post_validation: true"), false},
      {PIPE("post_validation: true"), false}, /* 1f1b */
      {"strategy: pp=1\nhyper_parallel: {pipeline: {post_validation: true}}\n", false},
      {"", false},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[256];
    tree source = {0};
    train_config c;
    snprintf(text, sizeof text, "%s%s", MINIMUM, cases[i].text);
    CHECK_OK(parse(text, &source, &c));
    if (trainer_step_options(&c).ahead != cases[i].ahead)
      test_fail(__FILE__, __LINE__, "%s: another answer than %d", cases[i].text, cases[i].ahead);
    train_config_free(&c);
    tree_free(&source);
  }
#undef PIPE
}
