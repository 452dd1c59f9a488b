/* Where forwards of the next step may run before the update of this one. */
#include "base/yaml.h"
#include "hyperparallel.h"
#include "test.h"
#include "train/trainer.h"

#include <stdio.h>
#include <string.h>

#define MINIMUM "model_name_or_path: m\nstage: pt\nfinetuning_type: full\ndataset: d\n"

/* On unless the user says otherwise. */
TEST(post_validation_is_on_by_default) {
  static const struct {
    const char *text;
    bool ahead;
  } cases[] = {
      {"", true},
      {"strategy: pp=2\n", true},
      {"strategy: pp=2\nhyper_parallel: {pipeline: {post_validation: true}}\n", true},
      {"strategy: pp=2\nhyper_parallel: {pipeline: {post_validation: false}}\n", false},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[256];
    tree source = {0};
    train_config c;
    snprintf(text, sizeof text, "%s%s", MINIMUM, cases[i].text);
    CHECK_OK(yaml_parse(text, strlen(text), "run.yaml", &source));
    CHECK_OK(train_config_parse(source.root, &c));
    CHECK_EQ(trainer_step_options(&c).ahead, cases[i].ahead);
    train_config_free(&c);
    tree_free(&source);
  }
}

/* A device of two stages by that schedule; NULL: one device. */
static bool runs_ahead(const char *by, hp_device_options o, const char *pattern) {
  hp_device *d;
  o.threads = 1;
  o.may_miss = true;
  o.pipeline = by;
  if (by) o.mesh = "(1)(x);(1)(x)";
  CHECK_OK(hp_device_open(&o, &d));
  if (pattern) CHECK_OK(hp_device_home(d, pattern, HP_OFFLOAD_HOST));
  bool ahead = hp_device_runs_ahead(d);
  hp_device_close(d);
  return ahead;
}

TEST(nothing_runs_ahead_of_other_schedules_nor_where_tensors_leave_the_device) {
  const hp_device_options plain = {.interpret = true};
  hp_device_options o = plain;
  CHECK(runs_ahead("zbv", plain, NULL));
  CHECK(runs_ahead("zb-2p", plain, NULL));
  CHECK(!runs_ahead("1f1b", plain, NULL));
  CHECK(!runs_ahead(NULL, plain, NULL));
  CHECK(!runs_ahead("zbv", plain, "*.mlp.*"));
  o.memory_limit = 1 << 30;
  CHECK(!runs_ahead("zbv", o, NULL));
  o = plain;
  o.offload_policy = HP_PLAN_LAYER_AHEAD;
  CHECK(!runs_ahead("zbv", o, NULL));
  for (int k = 0; k < HP_MEMORY_CLASSES; k++) {
    o = plain;
    o.offload[k] = HP_OFFLOAD_HOST;
    CHECK(!runs_ahead("zbv", o, NULL));
    o.offload[k] = HP_OFFLOAD_AUTO;
    CHECK(runs_ahead("zbv", o, NULL));
  }
}
