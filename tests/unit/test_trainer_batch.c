#include "test.h"

#include "base/yaml.h"
#include "train/trainer_state.h"

#include <string.h>

/* A run with these keys that goes on from a checkpoint with this state. */
static hp_status keep(const char *keys, const char *state, train_batching *out) {
  tree source;
  train_config c;
  checkpoint from = {0};
  str text = {0}, manifest = {0};
  str_printf(
      &text,
      "model_name_or_path: m\nstage: pt\nfinetuning_type: full\ndataset: d\noutput_dir: o\n%s",
      keys);
  str_printf(&manifest, "{\"state\": %s}", state);
  CHECK_OK(yaml_parse(text.at, text.len, "run.yaml", &source));
  CHECK_OK(train_config_parse(source.root, &c));
  CHECK_OK(json_parse(manifest.at, manifest.len, "MANIFEST.json", &from.manifest));
  hp_status st = trainer_keep_batch(&from, &c);
  *out = c.is.batch;
  tree_free(&from.manifest);
  train_config_free(&c);
  tree_free(&source);
  str_free(&text);
  str_free(&manifest);
  return st;
}

#define OLD                                                                                        \
  "{\"samples\": 10, \"per_device_train_batch_size\": 4, \"gradient_accumulation_steps\": 2}"

TEST(a_manifest_from_before_replicas_has_the_batch_of_all) {
  train_batching b;
  CHECK_OK(keep("per_device_train_batch_size: 4\nstrategy: dp=2\n", OLD, &b));
  CHECK_EQ(b.per_device, 4);
  CHECK_EQ(b.accumulation, 1);
  CHECK_EQ(b.global, 8);
  CHECK_EQ(b.epoch_samples, 10);
  CHECK_OK(keep("per_device_train_batch_size: 4\ngradient_accumulation_steps: 2\n"
                "dataloader_drop_last: true\n",
                OLD, &b));
  CHECK_EQ(b.accumulation, 2);
  CHECK_EQ(b.epoch_samples, 8);
}

TEST(what_an_override_changes_is_dealt_anew) {
  train_batching b;
  static const char *const named[] = {"data", "dataloader_drop_last"};
  CHECK_OK(keep("per_device_train_batch_size: 4\ngradient_accumulation_steps: 2\n", OLD, &b));
  CHECK_EQ(b.epoch_samples, 10);
  for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
    str keys = {0};
    str_printf(&keys,
               "per_device_train_batch_size: 4\ngradient_accumulation_steps: 2\n"
               "dataloader_drop_last: true\nresume_override: [%s]\n",
               named[i]);
    CHECK_OK(keep(keys.at, OLD, &b));
    CHECK_EQ(b.epoch_samples, 0); /* as the data and the sizes say */
    str_free(&keys);
  }
}

TEST(the_micro_batch_gives_way_to_the_global_batch) {
  train_batching b;
  CHECK_OK(keep("per_device_train_batch_size: 3\nstrategy: dp=2\n", OLD, &b));
  CHECK_EQ(b.per_device, 2);
  CHECK_EQ(b.accumulation, 2);
  CHECK_FAILS(keep("strategy: dp=3\n", OLD, &b), "3 data-parallel replicas do not divide");
  CHECK_FAILS(keep("global_batch_size: 16\nstrategy: dp=2\n", OLD, &b), "this run has 16");
  CHECK_OK(keep("global_batch_size: 8\nstrategy: dp=3\n", OLD, &b));
  CHECK_EQ(b.rows, 8);
  CHECK_OK(keep("global_batch_size: 16\nresume_override: global_batch_size\n", OLD, &b));
  CHECK_EQ(b.global, 16);
}

TEST(damaged_sizes_are_refused) {
  static const char *const bad[] =
      {"{\"samples\": 10, \"per_device_train_batch_size\": 0, \"gradient_accumulation_steps\": 2}",
       "{\"samples\": 10, \"per_device_train_batch_size\": 4, \"gradient_accumulation_steps\": -1}",
       "{\"samples\": 0, \"per_device_train_batch_size\": 4, \"gradient_accumulation_steps\": 1}",
       "{\"samples\": 9, \"per_device_train_batch_size\": 4, \"gradient_accumulation_steps\": 1, "
       "\"replicas\": 0}",
       "{\"samples\": 9, \"per_device_train_batch_size\": 9000000000000000000, "
       "\"gradient_accumulation_steps\": 9000000000000000000}"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    train_batching b;
    CHECK_FAILS(keep("strategy: dp=2\n", bad[i], &b), "damaged");
  }
}
