#include "test.h"

#include "backend/backend.h"
#include "backend/cpu/engine/engine_table.h"
#include "base/io.h"
#include "base/yaml.h"
#include "train/memory_limit.h"
#include "train/train_config.h"

#include <math.h>

#define MINIMUM "model_name_or_path: m\nstage: pt\nfinetuning_type: full\ndataset: d\n"

static tree source;

static hp_status parse(const char *text, train_config *c) {
  tree_free(&source);
  HP_TRY(yaml_parse(text, strlen(text), "run.yaml", &source));
  return train_config_parse(source.root, c);
}

static hp_status parse_only(const char *text) {
  train_config c;
  hp_status st = parse(text, &c);
  if (!st) train_config_free(&c);
  return st;
}

static void done(train_config *c) {
  train_config_free(c);
  tree_free(&source);
}

TEST(a_minimal_file_gets_the_defaults_of_llamafactory) {
  train_config c;
  CHECK_OK(parse(MINIMUM, &c));
  CHECK_STR(c.model_name_or_path, "m");
  CHECK_EQ(c.per_device_train_batch_size, 8);
  CHECK(c.learning_rate == 5e-5 && c.num_train_epochs == 3 && c.adam_epsilon == 1e-8);
  CHECK_EQ(c.max_steps, -1);
  CHECK_EQ(c.cutoff_len, 2048);
  CHECK_EQ(c.seed, 42);
  CHECK_EQ(c.max_samples, TRAIN_NONE);
  CHECK(isnan(c.eval_steps) && c.logging_steps == 500);
  CHECK_STR(c.dataset_dir, "data");
  CHECK(c.is.packed && c.is.shuffle && c.is.train && !c.is.evaluate_after);
  CHECK_EQ(c.is.block, 2048);
  CHECK_EQ(c.is.schedule, SCHEDULE_LINEAR);
  CHECK_EQ(c.is.compute, HP_F32);
  CHECK_EQ(c.is.recompute, RECOMPUTE_AUTO);
  CHECK_EQ(c.is.resume, RESUME_IF_ANY);
  CHECK_EQ(c.is.dataset.n, 1);
  CHECK_EQ(c.notes.len, 0);
  done(&c);
}

static void check_engine(const char *name) {
  train_config c;
  char text[sizeof MINIMUM + 64];
  snprintf(text, sizeof text, MINIMUM "engine: %s\n", name);
  CHECK_OK(parse(text, &c));
  CHECK_STR(c.is.engine, name);
  done(&c);
}

TEST(the_key_of_engines_has_those_of_the_table) {
  int n;
  const gemm_engine *const *row = engine_rows(&n);
  for (int i = 0; i < n; i++) check_engine(row[i]->name);
  check_engine(ENGINE_FASTEST);
}

TEST(the_files_of_the_recorded_runs_are_read) {
  train_config c;
  char model[1100];
  const char *pt = test_data("golden/llamafactory/pt/config.yaml");
  const char *sft = test_data("golden/llamafactory/sft-llama3/config.yaml");
  snprintf(model, sizeof model, "model_name_or_path=%s", test_data("golden/llamafactory/model"));
  const char *const more[] = {model, "stage=pt", "max_steps=7", "warmup_ratio=~"};
  CHECK_OK(train_config_load(pt, more, 1, false, &c));
  CHECK(c.learning_rate == 1e-3 && c.weight_decay == 0.1 && c.is.warmup == 0.1);
  CHECK_EQ(c.max_steps, 50);
  CHECK_EQ(c.is.block, 64);
  CHECK_EQ(c.is.schedule, SCHEDULE_COSINE);
  CHECK(!c.is.shuffle && c.plot_loss && c.is.resume == RESUME_NEVER && !c.is.tensorboard);
  train_config_free(&c);
  CHECK_OK(train_config_load(sft, more, 1, false, &c));
  CHECK_EQ(c.stage, STAGE_sft);
  CHECK(!c.is.packed);
  CHECK_EQ(c.is.block, 160);
  train_config_free(&c);
  CHECK_OK(train_config_load(sft, more, 4, false, &c));
  CHECK_EQ(c.max_steps, 7);
  CHECK(c.is.warmup == 0);
  train_config_free(&c);
  const char *const hub[] = {"model_name_or_path=Qwen/Qwen3-4B"};
  CHECK_FAILS(train_config_load(pt, hub, 1, false, &c), "hub ids are not fetched; download");
  CHECK_FAILS(train_config_load("nowhere.yaml", NULL, 0, false, &c), "nowhere.yaml");
}

/* text -> a part of the message that refuses it */
static const struct {
  const char *more, *says;
} refused[] = {
    {"learing_rate: 1e-5\n", "did you mean"},
    {"learing_rate: 1e-5\n", "run.yaml:5:"},
    {"learing_rate: 1e-5\n", "learning_rate"},
    {"learning_rate: fast\n", "expected a number"},
    {"learning_rate: -1\n", "out of range"},
    {"max_steps: 1.5\n", "run.yaml:5:12: max_steps: expected"},
    {"max_steps: 0\n", "or -1 to go by num_train_epochs"},
    {"per_device_train_batch_size: 0\n", "out of range"},
    {"num_train_epochs: 0\n", "expected more than 0"},
    {"num_train_epochs: .nan\n", "out of range"},
    {"seed: -1\n", "out of range"},
    {"seed: 4294967296\n", "out of range"},
    {"adam_beta2: 1.0\n", "below 1"},
    {"bf16: maybe\n", "bf16"},
    {"fp16: true\n", "fp16: true is not built; write bf16: true"},
    {"pure_bf16: true\n", "write bf16: true"},
    {"deepspeed: no/ds_z3.json\n", "run.yaml:5:12: deepspeed: no/ds_z3.json"},
    {"quantization_bit: 4\n", "not built; leave it out"},
    {"hyper_parallel: {recompute: yess}\n",
     "the string \"yess\" is not known; expected auto, none, full, a number of layers"},
    {"hyper_parallel: {recompute: ful}\n", "did you mean \"full\""},
    {"hyper_parallel: {recompute: {a: full}}\n",
     "a map of 1 keys is not known; expected auto, none"},
    {"hyper_parallel: {offload: disk}\n",
     "offload: \"disk\" is not known; expected auto, none, or as"},
    {"pipeline: {schedule: zbv}\n", "write it in hyper_parallel: hyper_parallel: {pipeline: ...}"},
    {"hyper_parallel: {learning_rate: 1}\n", "write it outside of hyper_parallel"},
    {"mix_strategy: interleave_once\n", "interleave_once is not built; write concat"},
    {"mix_strategy: interleaf\n",
     "\"interleaf\" is not known; expected concat, interleave_under or interleave_over"},
    {"train_sampling_strategy: group_by_length\ndisable_shuffling: true\n",
     "leave one of them out"},
    {"group_by_length: true\n", "write train_sampling_strategy: group_by_length"},
    {"train_sampling_strategy: sequental\n",
     "is not known, or not built; expected random, sequential or group_by_length (did you mean "
     "\"sequential\"?)"},
    {"optim: adagrad\n", "adagrad is not built; write adamw_torch, adamw_torch_fused, sgd, "
                         "adafactor or lion_32bit, or use_muon: true"},
    {"optim: adamax\n", "\"adamax\" is not known; expected adamw_torch, adamw_torch_fused, sgd, "
                        "adafactor or lion_32bit"},
    {"optim: adamw_8bit\n", "adamw_8bit is not built; write adamw_torch, whose state is f32"},
    {"optim: paged_lion_8bit\n", "paged_lion_8bit is not built; write lion_32bit, whose state"},
    {"use_galore: true\n", "leave it out, and choose the optimizer by optim or use_muon"},
    {"use_dft_loss: true\n", "leave it out: stages pt and sft learn by the cross-entropy"},
    {"use_asft_loss: true\n", "use_asft_loss: true is not built"},
    {"use_eaft_loss: true\n", "use_eaft_loss: true is not built"},
    {"ignore_pad_token_for_loss: false\n", "write ignore_pad_token_for_loss: true"},
    {"optim: adamw_torc\n", "did you mean \"adamw_torch\""},
    {"rope_scaling: yarn\n", "rope_parameters"},
    {"neat_packing: true\n", "neat_packing is for stage sft"},
    {"train_on_prompt: true\n", "it is for stage sft"},
    {"streaming: true\n", "streaming: false"},
    {"push_to_hub: true\n", "push_to_hub: false"},
    {"lr_scheduler_type: cosin\n", "did you mean \"cosine\""},
    {"lr_scheduler_type: cosine\nlr_scheduler_kwargs: {cycles: 2}\n",
     "run.yaml:6:22: lr_scheduler_kwargs: schedule cosine has no argument"},
    {"lr_scheduler_type: cosine\nlr_scheduler_kwargs: {num_cycles: [1]}\n", "num_cycles"},
    {"lr_scheduler_type: cosine\nlr_scheduler_kwargs: 3\n", "lr_scheduler_kwargs"},
    {"lr_scheduler_type: cosine_with_min_lr\n", "needs one of min_lr and min_lr_rate"},
    {"lr_scheduler_type: reduce_lr_on_plateau\n", "follows the evaluation's loss"},
    {"logging_steps: 2.5\n", "whole number of steps"},
    {"logging_steps: 0\n", "1 or more"},
    {"save_steps: -3\n", "out of range"},
    {"eval_strategy: steps\n", "evaluation needs data"},
    {"eval_strategy: often\n", "no, steps or epoch"},
    {"do_eval: true\n", "evaluation needs data"},
    {"do_train: false\n", "nothing to do"},
    {"val_size: 0.1\neval_dataset: e\n", "keep one of them"},
    {"val_size: 1.0\n", "1.0 is the complete dataset"},
    {"save_strategy: best\n", "best needs an evaluation"},
    {"metric_for_best_model: accuracy\n", "write loss"},
    {"metric_for_best_model: loss\neval_on_each_dataset: true\n",
     "but metric_for_best_model needs"},
    {"load_best_model_at_end: true\n", "load_best_model_at_end: false"},
    {"interleave_probs: 0.5,0.5\n", "mix_strategy is concat"},
    {"mix_strategy: interleave_under\ninterleave_probs: 0.5,0.5\n", "2 shares for 1 datasets"},
    {"mix_strategy: interleave_under\ninterleave_probs: 0.5,0.6\n", "add up to 1.1"},
    {"mix_strategy: interleave_under\ninterleave_probs: a,b\n", "\"a\" is no number"},
    {"mix_strategy: interleave_once\n", "not built"},
    {"cutoff_len: 1\npacking: true\n", "cutoff_len: 2 or more"},
    {"cutoff_len: 0\n", "out of range"},
    {"resume_from_checkpoint: true\noverwrite_output_dir: true\n", "begins anew"},
    {"resume_from_checkpoint: 7\n", "resume_from_checkpoint"},
    {"report_to: 5\n", "report_to"},
    {"include_num_input_tokens_seen: some\n", "non_padding"},
    {"evaluation_strategy: \"no\"\neval_strategy: \"no\"\n", "another spelling of eval_strategy"},
    {"dtype: f32\nbf16: true\n", "contradicts bf16: true"},
    {"dtype: f64\n", "auto, f32 or bf16"},
    {"devices: 2000000\n", "run.yaml:5:10: devices: 2000000 devices; 1 to 1048576 are possible"},
    {"memory_limit: lots\n", "16GiB"},
    {"memory_limit: 0\n", "above 0"},
    {"memory_limit: 0%\n", "from 1% to 100%"},
    {"memory_limit: 101%\n", "from 1% to 100%"},
    {"memory_limit: 50 %%\n", "found the string \"50 %%\""},
    {"hyper_parallel: {memory_limit: x%}\n", "from 1% to 100%"},
    {"memory_limit: 50%\nhyper_parallel: {memory_limit: 51%}\n", "memory_limit"},
    {"host_limit: 50%\n", "expected a size"},
    {"fsdp: full_shard\n", "write strategy: dp=2"},
    {"strategy: dp=2,pp=65\n", "pp=65; at most 64 are possible"},
    {"strategy: dp=0\n", "\"dp=0\" is no degree"},
    {"devices: 8\nstrategy: dp=2,tp=2\n", "is 4 devices, of 8"},
    {"hyper_parallel: 3\n", "hyper_parallel"},
    {"hyper_parallel: {device: 1}\n", "did you mean"},
    {"hyper_parallel: {devices: 4000000}\n",
     "run.yaml:5:27: hyper_parallel.devices: 4000000 devices"},
    {"devices: 1\nhyper_parallel: {devices: 2}\n", "differs from run.yaml:5:10: devices"},
    {"hyper_parallel: {device_matrix: [2, 1]}\n", "needs alias_name"},
    {"hyper_parallel: {device_matrix: [2, 0], alias_name: [a, b]}\n", "axis 1 has size 0"},
    {"hyper_parallel: {device_matrix: [2], alias_name: [a], tensor_map: {x: [b]}}\n",
     "\"b\" is not an axis of the mesh"},
    {"hyper_parallel: {device_matrix: [2], alias_name: [a], tensor_map: {x: a}}\n", "tensor_map.x"},
    {"hyper_parallel: {device_matrix: [2], alias_name: [a], strategy: dp=2}\n", "keep one of them"},
    {"devices: 3\nhyper_parallel: {device_matrix: [2], alias_name: [a]}\n",
     "3 devices, and 2 in device_matrix"},
    {"hyper_parallel: {device_matrix: [1, 1], alias_name: [dp]}\n", "1 names for the 2 axes"},
    {"hyper_parallel: {alias_name: [dp]}\n", "needs device_matrix"},
    {"hyper_parallel: {pipeline: {stages: 0}}\n", "0; expected 1 to 4096"},
    {"hyper_parallel: {pipeline: {schedule: zbv}}\n", "write strategy: pp=2, or stages: 2"},
    {"strategy: pp=2\nhyper_parallel: {pipeline: {stages: 3}}\n", "3 stages on pp=2"},
    {"gradient_accumulation_steps: 2\nhyper_parallel: {pipeline: {stages: 2, microbatches: 4}}\n",
     "4, and gradient_accumulation_steps is 2"},
    {"hyper_parallel: {pipeline: {stage: 1}}\n", "did you mean"},
    {"hyper_parallel: {pipeline: {stages: 2, post_validation: maybe}}\n",
     "run.yaml:5:57: hyper_parallel.pipeline.post_validation: expected true or false"},
    {"hyper_parallel: {pipeline: {stages: 2, postvalidation: true}}\n", "did you mean"},
    {"strategy: pp=2\nhyper_parallel: {update: next_step}\n",
     "run.yaml:6:26: hyper_parallel.update: next_step is not built for pipelines"},
    {"hyper_parallel: {pipeline: {cut: [4]}}\n",
     "run.yaml:5:34: hyper_parallel.pipeline.cut: 1 stages; expected 2 to 4096"},
    {"hyper_parallel: {pipeline: {cut: 4}}\n", "pipeline.cut: expected a list"},
    {"hyper_parallel: {pipeline: {cut: [4, -1]}}\n", "-1 layers; expected 0 or more"},
    {"hyper_parallel: {pipeline: {cut: [4, 4], stages: 3}}\n",
     "2 stages, which contradicts 3 (run.yaml:5:50"},
    {"strategy: pp=2\nhyper_parallel: {pipeline: {cut: [4, 4, 4]}}\n", "3 stages on pp=2"},
    {"strategy: pp=1\nhyper_parallel: {pipeline: {cut: [4, 4]}}\n",
     "cut: a cut without a pipeline; write strategy: pp=2"},
    {"hyper_parallel: {groups: {a: {devices: 0-1}}}\n", "groups.a: the key \"module\" is missing"},
    {"strategy: tp=2\nhyper_parallel: {groups: {a: {devices: 0, module: m}}}\n",
     "run.yaml:5:11: strategy: contradicts groups (run.yaml:6:26: hyper_parallel.groups)"},
    {"hyper_parallel: {groups: {a: {devices: 0-1, module: m, strategy: tp=3}}}\n",
     "hyper_parallel.groups.a.strategy: strategy \"tp=3\""},
    {"devices: 3\nhyper_parallel: {groups: {a: {devices: 0-1, module: m}}}\n",
     "3 devices, and the groups have 2"},
    {"hyper_parallel: {groups: {a: {devices: 0-1, module: m}}, pipeline: {stages: 2}}\n",
     "2 stages, and the groups have 1"},
    {"hyper_parallel: {groups: {a: {devices: 0, module: m}}, pipeline: {cut: [4, 4]}}\n",
     "the groups say their layers"},
    {"hyper_parallel: {offload: {weights: hots}}\n",
     "run.yaml:5:37: hyper_parallel.offload.weights: weights: \"hots\" is not known; expected "
     "auto, "
     "none, host or flash (did you mean \"host\"?)"},
    {"hyper_parallel: {offload: {weight: host}}\n", "(did you mean \"weights\"?)"},
    {"hyper_parallel: {offload: [host]}\n", "hyper_parallel.offload: expected"},
    {"offload: optimizer=flash\n", "optimizer: flash needs folders for it (flash)"},
    {"flash: [/tmp]\n", "flash \"/tmp\" needs flash_limit"},
    {"flash_limit: 1GiB\n", "flash_limit needs flash"},
    {"flash: [/tmp, /tmp]\nflash_limit: 1GiB\n", "\"/tmp\" is given twice"},
    {"flash_limit: much\n", "expected a size"},
    {"host_limit: 0\n", "expected a size"},
    {"offload: none\nhyper_parallel: {offload: {weights: host}}\n", "differs from run.yaml:5:10"},
    {"deepspeed: {zero_optimization: {stage: 4}}\n", "expected a stage from 0 to 3"},
    {"deepspeed: {zero_optimization: {stage: 3}}\nstrategy: zero=1\n",
     "stage 3 contradicts zero=1 of the strategy"},
    {"deepspeed: {zero_optimization: {offload_param: {device: gpu}}}\n",
     "\"gpu\" is not known; expected none, cpu or nvme (did you mean \"cpu\"?)"},
    {"deepspeed: {zero_optimization: {offload_param: {device: nvme}}}\n", "nvme needs nvme_path"},
    {"deepspeed: {zero_optimization: {offload_param: {device: nvme, nvme_path: /tmp}}}\n",
     "needs flash_limit"},
    {"deepspeed: {zero_optimization: {offload_optimizer: {device: cpu}}}\noffload: none\n",
     "contradicts run.yaml:6:10: offload"},
    {"deepspeed: {gradient_accumulation_steps: 3}\n",
     "3 contradicts gradient_accumulation_steps: 1"},
    {"deepspeed: {gradient_clipping: 0.5}\n", "contradicts max_grad_norm: 1"},
    {"deepspeed: {fp16: {enabled: true}}\n", "fp16 is not built"},
    {"deepspeed: {bf16: {enabled: true}}\n", "contradicts bf16: false"},
    {"deepspeed: 3\n", "expected"},
    {"hyper_parallel: {recompute: []}\n", "is an empty list; write none"},
    {"hyper_parallel: {recompute: -1}\n", "is -1; expected a number of layers from 0 on"},
    {"hyper_parallel: {recompute: 2}\ngradient_checkpointing: true\n", "contradicts"},
    {"hyper_parallel: {recompute: full}\ndisable_gradient_checkpointing: true\n", "contradicts"},
    {"gradient_checkpointing: true\ndisable_gradient_checkpointing: true\n", "remove one"},
    {"hyper_parallel: {plan: plan.yaml}\n", "plan: auto"},
    {"dataset_dir: [a]\n", "dataset_dir"},
    {"eval_dataset: a,,b\n", "empty name"},
    {"lora_rank: big\n", "lora_rank"},
};

TEST(what_cannot_be_done_is_refused_by_name_with_its_place) {
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    str s = {0};
    str_printf(&s, MINIMUM "%s", refused[i].more);
    hp_status st = parse_only(s.at);
    if (!st || !strstr(err_message(), refused[i].says))
      test_fail(__FILE__, __LINE__, "%s gives\n  \"%s\", want \"%s\" in it", refused[i].more,
                st ? err_message() : "no failure", refused[i].says);
    err_clear();
    str_free(&s);
  }
  tree_free(&source);
}

/* The message lists these, in this order, and no more. */
static void check_list(const char *text, const char *const *says, int n) {
  char number[32], head[64];
  hp_status st = parse_only(text);
  const char *at = err_message();
  snprintf(head, sizeof head, "%d errors in the configuration:\n  1. ", n);
  if (!st || strncmp(at, head, strlen(head)))
    test_fail(__FILE__, __LINE__, "\"%s\" does not begin with \"%s\"", at, head);
  for (int i = 0; i < n; i++) {
    snprintf(number, sizeof number, "\n  %d. ", i + 1);
    if (!(at = strstr(at, number)) || strncmp(at + strlen(number), says[i], strlen(says[i])))
      test_fail(__FILE__, __LINE__, "%d is not \"%s\" in\n%s", i + 1, says[i], err_message());
  }
  snprintf(number, sizeof number, "\n  %d. ", n + 1);
  CHECK(!strstr(err_message(), number));
  err_clear();
  tree_free(&source);
}

TEST(all_errors_of_a_file_are_told_at_once) {
  static const char *const says[] =
      {"run.yaml:5:15: learing_rate: unknown key; did you mean \"learning_rate\"?",
       "run.yaml:6:12: max_steps: expected an integer",
       "run.yaml:7:15: warmup_ratio: 1.5 is out of range; expected a number from 0 to 1",
       "run.yaml:8:7: fp16: true is not built",
       "run.yaml:9:26: hyper_parallel.device: unknown key; did you mean \"devices\"?",
       "run.yaml:9:41: hyper_parallel.interleave: 99 is out of range",
       "run.yaml:10:8: dtype: f32 contradicts bf16: true (run.yaml:13:7: bf16)",
       "run.yaml:11:16: eval_strategy: evaluation needs data",
       "run.yaml:12:13: save_steps: 2.5: expected a whole number of steps"};
  check_list(MINIMUM "learing_rate: 1e-5\n"
                     "max_steps: 1.5\n"
                     "warmup_ratio: 1.5\n"
                     "fp16: true\n"
                     "hyper_parallel: {device: 1, interleave: 99}\n"
                     "dtype: f32\n"
                     "eval_strategy: epoch\n"
                     "save_steps: 2.5\n"
                     "bf16: true\n",
             says, (int)(sizeof says / sizeof *says));
}

TEST(of_stages_and_methods_only_those_that_are_built_are_expected) {
  CHECK_FAILS(parse_only("stage: ptt\nfinetuning_type: full\nmodel_name_or_path: m\ndataset: d\n"),
              "run.yaml:1:8: stage: \"ptt\" is not known; expected pt, sft, rm, dpo or kto (did "
              "you mean \"pt\"?)");
  CHECK_FAILS(parse_only("stage: ppo\nfinetuning_type: full\nmodel_name_or_path: m\ndataset: d\n"),
              "stage ppo is not built yet");
  CHECK_FAILS(parse_only("stage: pt\nfinetuning_type: loro\nmodel_name_or_path: m\ndataset: d\n"),
              "\"loro\" is not known; expected full");
  CHECK_FAILS(parse_only("stage: pt\nfinetuning_type: oft\nmodel_name_or_path: m\ndataset: d\n"),
              "finetuning_type oft is not built");
  str help = {0};
  train_config_print_help(&help);
  CHECK(strstr(help.at, "one of pt, sft, rm, dpo, kto [") &&
        strstr(help.at, "freeze, lora [lora]"));
  CHECK(!strstr(help.at, "ppo,") && !strstr(help.at, "!"));
  str_free(&help);
  tree_free(&source);
}

/* What is wrong with the grammar of a key and with its value, in the file and in arguments. */
TEST(errors_come_in_the_order_of_the_file_and_arguments_last) {
  static const char text[] = MINIMUM "max_steps: 5\nlearning_rate: fast\n"
                                     "hyper_parallel: {engine: packed, engine: scalar}\n"
                                     "max_steps: 6\nseed: -1\n";
  static const char *const more[] = {"save_steps=2.5", "seed=\x01", "warmup_steps=1.5",
                                     "eval_strategy=epoch"};
  static const char *const says[] =
      {"c.yaml:1:21: model_name_or_path: there is no folder \"m\"",
       "c.yaml:4:10: dataset: dataset \"d\"",
       "c.yaml:6:16: learning_rate: expected a number",
       "c.yaml:7:42: hyper_parallel.engine: this key is already set at ",
       "c.yaml:8:12: max_steps: this key is already set at ",
       "c.yaml:9:7: seed: -1 is out of range",
       "argument 1: save_steps: 2.5",
       "argument 2: byte 0 of the value: control characters are not allowed; remove them",
       "argument 3: warmup_steps: 1.5",
       "argument 4: eval_strategy: evaluation needs data"};
  enum { SAYS = sizeof says / sizeof *says };
  str path = {0};
  train_config c;
  CHECK_OK(path_join(&path, test_dir(), "c.yaml"));
  CHECK_OK(file_write(path.at, text, strlen(text)));
  CHECK(train_config_load(path.at, more, 4, true, &c) == HP_ERR_INPUT);
  const char *at = err_message();
  for (int i = 0; i < SAYS; i++) {
    const char *found = strstr(at, says[i]);
    if (!found) test_fail(__FILE__, __LINE__, "no \"%s\" behind the others in\n%s", says[i], at);
    at = found;
  }
  CHECK(!strstr(err_message(), "save the file"));
  CHECK(!strncmp(err_message(), "10 errors", 9));
  err_clear();
  str_free(&path);
}

TEST(a_wrong_value_brings_no_errors_in_its_wake) {
  /* of what a wrong value would have said nothing is known */
  CHECK_FAILS(parse_only(
                  "stage: pt\nfinetuning_type: full\nmodel_name_or_path: m\ndataset: {a: 1}\n"
                  "val_size: 0.1\nmix_strategy: interleave_under\ninterleave_probs: 1\n"
                  "do_eval: true\n"),
              "run.yaml:4:10: dataset: expected a string");
  tree_free(&source);
}

TEST(of_a_hundred_errors_as_many_are_told_as_a_message_holds) {
  str s = {0};
  str_add(&s, MINIMUM);
  for (int i = 0; i < 100; i++) str_printf(&s, "no_such_key_with_a_rather_long_name_%d: 1\n", i);
  CHECK(parse_only(s.at) == HP_ERR_INPUT);
  CHECK(!strncmp(err_message(), "100 errors in the configuration:\n  1. run.yaml:5:", 49));
  CHECK(strstr(err_message(), "\n  20. run.yaml:24:"));
  const char *more = strstr(err_message(), "\n  and ");
  CHECK(more && strstr(more, " more"));
  err_clear();
  str_free(&s);
  tree_free(&source);
}

/* MINIMUM and one key of the file or the block. */
static hp_status parse_key(const train_key *k, const char *value) {
  char text[512];
  snprintf(text, sizeof text,
           k->group == GROUP_PARALLEL ? MINIMUM "hyper_parallel: {%s: %s}\n" : MINIMUM "%s: %s\n",
           k->name, value);
  return parse_only(text);
}

static void check_out_of_range(const train_key *k, const char *value) {
  char says[256];
  snprintf(says, sizeof says, "%s: ", k->name);
  if (!parse_key(k, value) || !strstr(err_message(), says))
    test_fail(__FILE__, __LINE__, "%s: %s is accepted", k->name, value);
  err_clear();
}

TEST(every_number_has_a_range_and_is_finite) {
  static const char *const never[] = {".nan", ".inf", "-.inf", "1e300", "-1e300"};
  char value[64];
  for (int i = 0; i < KEY_COUNT; i++) {
    const train_key *k = train_key_get(i);
    if (k->status != TRAIN_USED || (k->type != TRAIN_INT && k->type != TRAIN_NUM)) continue;
    if (!(k->least < k->most)) test_fail(__FILE__, __LINE__, "%s has no range", k->name);
    for (size_t n = 0; n < sizeof never / sizeof *never; n++) check_out_of_range(k, never[n]);
    if (i != KEY_freeze_trainable_layers) check_out_of_range(k, "-2"); /* there: the first two */
    snprintf(value, sizeof value, "%.17g", k->most * 1.01 + 1);
    check_out_of_range(k, value);
    snprintf(value, sizeof value, k->type == TRAIN_INT ? "%.0f" : "%g",
             k->least - (k->type == TRAIN_INT ? 1 : 1e-3));
    check_out_of_range(k, value);
  }
  tree_free(&source);
}

TEST(shares_and_rates_have_the_ranges_they_can_have) {
  static const struct {
    const char *line;
    bool fine;
  } row[] = {{"warmup_ratio: 1\n", true},     {"warmup_ratio: 1.5\n", false},
             {"warmup_ratio: -0.1\n", false}, {"warmup_steps: 0.5\n", true},
             {"warmup_steps: 20\n", true},    {"warmup_steps: 1.5\n", false},
             {"learning_rate: 2\n", true},    {"learning_rate: 1e7\n", false},
             {"adam_beta1: 0\n", true},       {"adam_beta1: 1\n", false},
             {"adam_epsilon: 1.5\n", false},  {"val_size: 10\ndo_eval: true\n", true},
             {"val_size: 2.5\n", false},      {"weight_decay: 0.1\n", true},
             {"weight_decay: 1e7\n", false},  {"moe_aux_loss_coef: 0.01\n", true}};
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    str s = {0};
    str_printf(&s, MINIMUM "%s", row[i].line);
    if (!parse_only(s.at) != row[i].fine)
      test_fail(__FILE__, __LINE__, "%s is %s", row[i].line, row[i].fine ? "refused" : "accepted");
    err_clear();
    str_free(&s);
  }
  tree_free(&source);
}

TEST(missing_keys_are_asked_for_with_what_to_write) {
  CHECK_FAILS(parse_only("stage: ppo"), "stage ppo is not built");
  CHECK_FAILS(parse_only("stage: pt\nfinetuning_type: oft"), "oft is not built; write "
                                                             "finetuning_type: full");
  CHECK_FAILS(parse_only("stage: pt\nfinetuning_type: full"), "model_name_or_path is missing");
  CHECK_FAILS(parse_only("stage: pt\nfinetuning_type: full\nmodel_name_or_path: m"),
              "dataset is missing");
  CHECK_FAILS(parse_only("[1]"), "run.yaml");
  tree_free(&source);
}

TEST(keys_without_effect_are_told_and_defaults_of_refused_keys_pass) {
  train_config c;
  CHECK_OK(parse(MINIMUM
                 "dataloader_num_workers: 4\ntrust_remote_code: true\nfp16: false\n"
                 "deepspeed: null\nquantization_bit: ~\nfsdp: \"\"\nddp_timeout: 180000000\n"
                 "label_smoothing_factor: 0\nlora_target: all\nmax_samples:\n",
                 &c));
  CHECK_EQ(c.notes.len, 4);
  CHECK(strstr(c.notes.at[0], "dataloader_num_workers: accepted, changes no number"));
  CHECK_EQ(c.max_samples, TRAIN_NONE);
  done(&c);
  CHECK_OK(parse(MINIMUM "pref_ftx: 0.1\npref_loss: orpo\nkto_chosen_weight: 2\n", &c));
  CHECK_EQ(c.notes.len, 3);
  CHECK(strstr(c.notes.at[0], "pref_ftx: without effect: it is for stages dpo and kto"));
  CHECK(strstr(c.notes.at[1], "pref_loss: without effect: it is for stage dpo"));
  CHECK(strstr(c.notes.at[2], "kto_chosen_weight: without effect: it is for stage kto"));
  done(&c);
}

TEST(derived_settings_follow_transformers_and_llamafactory) {
  train_config c;
  CHECK_OK(
      parse(MINIMUM "warmup_ratio: 0.1\nwarmup_steps: 20\npacking: true\ncutoff_len: 64\n", &c));
  CHECK(c.is.warmup == 0.1);
  CHECK_EQ(c.is.block, 63);
  CHECK_EQ(c.notes.len, 2);
  done(&c);
  CHECK_OK(parse(MINIMUM "packing: false\nval_size: 5\neval_strategy: steps\nlogging_steps: 10\n"
                         "report_to: [tensorboard, wandb]\nbf16: true\nseed: 1\ndata_seed: 9\n"
                         "include_num_input_tokens_seen: true\nmemory_limit: 1.5GiB\n"
                         "disable_gradient_checkpointing: true\n",
                 &c));
  CHECK(!c.is.packed && c.is.evaluate_after && c.is.tensorboard && c.eval_steps == 10);
  CHECK_EQ(c.is.val_count, 5);
  CHECK_EQ(c.is.compute, HP_BF16);
  CHECK_EQ(c.is.data_seed, 9);
  CHECK_EQ(c.is.count, COUNT_ALL);
  CHECK_EQ(c.is.memory_limit, 1610612736);
  CHECK_EQ(c.is.recompute, RECOMPUTE_NONE);
  CHECK_EQ(c.notes.len, 1); /* wandb */
  done(&c);
  CHECK_OK(parse(MINIMUM
                 "lr_scheduler_type: cosine_with_min_lr\n"
                 "lr_scheduler_kwargs: '{\"min_lr_rate\": 0.1}'\n"
                 "eval_strategy: no\nsave_strategy: no\nresume_from_checkpoint: a/checkpoint-5\n"
                 "overwrite_output_dir: true\nval_size: 1\n",
                 &c));
  CHECK_EQ(c.is.schedule_args, 1);
  CHECK(c.is.schedule_arg[0].number == 0.1);
  CHECK_EQ(c.is.resume, RESUME_FROM);
  CHECK_STR(c.is.resume_path, "a/checkpoint-5");
  CHECK_EQ(c.is.val_count, 1);
  done(&c);
  CHECK_OK(parse("model_name_or_path: m\nstage: pt\nfinetuning_type: full\n"
                 "dataset: a , b\neval_dataset: [x, y, z]\nmix_strategy: interleave_over\n"
                 "interleave_probs: [0.25, 0.75]\ndo_eval: false\n"
                 "hyper_parallel: {devices: 1, memory_limit: 1048576, recompute: full, offload: "
                 "none, device_matrix: [1, 1], alias_name: [dp, tp], pipeline: {stages: 1}}\n",
                 &c) == HP_ERR_INPUT
               ? HP_OK
               : HP_ERR_INTERNAL); /* 2 shares for 3 eval datasets */
  err_clear();
  CHECK_OK(parse("model_name_or_path: m\nstage: pt\nfinetuning_type: full\n"
                 "dataset: a , b\nmix_strategy: interleave_over\ninterleave_probs: [0.25, 0.75]\n"
                 "hyper_parallel: {devices: 1, memory_limit: 1048576, recompute: full, offload: "
                 "none, device_matrix: [1, 1], alias_name: [dp, tp], pipeline: {stages: 1}}\n",
                 &c));
  CHECK_EQ(c.is.dataset.n, 2);
  CHECK_STR(c.is.dataset.at[0], "a");
  CHECK_STR(c.is.dataset.at[1], "b");
  CHECK(c.is.interleave_probs[1] == 0.75);
  CHECK_EQ(c.is.memory_limit, 1048576);
  CHECK_EQ(c.is.recompute, RECOMPUTE_FULL);
  done(&c);
}

TEST(a_cutoff_beyond_the_models_positions_is_refused) {
  train_config c;
  CHECK_OK(parse(MINIMUM "cutoff_len: 128\n", &c));
  CHECK_OK(train_config_check_model(&c, 128));
  CHECK_OK(train_config_check_model(&c, 0));
  CHECK_FAILS(train_config_check_model(&c, 127), "run.yaml:5:13: cutoff_len: 128 tokens, but");
  done(&c);
}

TEST(sizes_are_read_with_their_units) {
  static const struct {
    const char *text;
    uint64_t want; /* 0: refused */
  } row[] = {{"16GiB", 17179869184u},
             {"16 GiB", 17179869184u},
             {"1.5K", 1536},
             {"2MB", 2000000},
             {"1", 1},
             {"0", 0},
             {"", 0},
             {"GiB", 0},
             {"1e3", 0},
             {"-1", 0},
             {"1XiB", 0},
             {"99999999TiB", 0},
             {"1.2.3G", 0},
             {"7T", 7696581394432u}};
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    uint64_t got = 0;
    bool ok = memory_size_parse(row[i].text, &got);
    CHECK_EQ(ok, row[i].want != 0);
    if (ok) CHECK_EQ(got, row[i].want);
  }
}

/* Keys that may stand in the file or in the block are printed in both. */
TEST(a_printed_config_has_the_same_in_the_file_and_in_the_block) {
  static const char *const one[] = {"engine: onednn\n",
                                    "hyper_parallel: {engine: onednn}\n",
                                    "deterministic: layout\n",
                                    "hyper_parallel: {deterministic: layout}\n",
                                    "devices: 2\n",
                                    "hyper_parallel: {devices: 2}\n",
                                    "memory_limit: 3MiB\n",
                                    "hyper_parallel: {memory_limit: 3MiB}\n",
                                    "memory_limit: 50%\n",
                                    "hyper_parallel: {memory_limit: 12.5%}\n",
                                    "strategy: dp=2\n",
                                    "hyper_parallel: {strategy: dp=2}\n",
                                    "hyper_parallel: {device_matrix: [2], alias_name: [dp]}\n"};
  for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
    train_config c, again;
    char text[256];
    str a = {0}, b = {0};
    tree t;
    snprintf(text, sizeof text, MINIMUM "%s", one[i]);
    CHECK_OK(parse(text, &c));
    train_config_print(&c, &a);
    CHECK_OK(yaml_parse(a.at, a.len, "printed.yaml", &t));
    CHECK_OK(train_config_parse(t.root, &again));
    train_config_print(&again, &b);
    CHECK_STR(a.at, b.at);
    CHECK_STR(again.is.engine, c.is.engine);
    CHECK_EQ(again.is.no_partial_sums, c.is.no_partial_sums);
    CHECK_EQ(again.is.memory_limit, c.is.memory_limit);
    train_config_free(&again);
    tree_free(&t);
    done(&c);
    str_free(&a);
    str_free(&b);
  }
}

TEST(a_printed_config_reads_back_as_itself) {
  train_config c, again;
  CHECK_OK(parse(MINIMUM "eval_strategy: epoch\nval_size: 0.25\nlearning_rate: 3.7e-4\n"
                         "lr_scheduler_type: polynomial\nlr_scheduler_kwargs: {power: 2}\n"
                         "run_name: \"a \\\"b\\\": #c\"\nmemory_limit: 3MiB\ntemplate: llama3\n"
                         "hyper_parallel: {recompute: none}\n",
                 &c));
  str a = {0}, b = {0};
  train_config_print(&c, &a);
  tree t;
  CHECK_OK(yaml_parse(a.at, a.len, "printed.yaml", &t));
  CHECK_OK(train_config_parse(t.root, &again));
  train_config_print(&again, &b);
  CHECK_STR(a.at, b.at);
  CHECK(again.learning_rate == 3.7e-4);
  CHECK_STR(again.run_name, "a \"b\": #c");
  CHECK_EQ(again.is.recompute, RECOMPUTE_NONE);
  train_config_free(&again);
  tree_free(&t);
  done(&c);
  str_free(&a);
  str_free(&b);
}

TEST(help_names_every_key_in_lines_that_fit) {
  str s = {0};
  train_config_print_help(&s);
  for (int k = 0; k < KEY_COUNT; k++) {
    const train_key *key = train_key_get(k);
    if (key->status != TRAIN_SYNONYM && !strstr(s.at, key->name))
      test_fail(__FILE__, __LINE__, "%s is not in the help", key->name);
  }
  for (const char *p = s.at; *p;) {
    size_t n = strcspn(p, "\n");
    if (n > 100) test_fail(__FILE__, __LINE__, "too long: %.*s", (int)n, p);
    p += n + 1;
  }
  str_free(&s);
}

TEST(every_default_in_the_table_is_of_its_type_and_names_are_unique) {
  for (int k = 0; k < KEY_COUNT; k++) {
    const train_key *key = train_key_get(k);
    CHECK_EQ(train_key_find(key->name, k >= KEY_TOP_COUNT), k);
    if (key->status == TRAIN_SYNONYM) {
      int means = train_key_find(key->help, false);
      CHECK(means >= 0 && train_key_get(means)->status == TRAIN_USED);
      continue;
    }
    if (key->status != TRAIN_REFUSED || !strcmp(key->otherwise, "null")) continue;
    str s = {0}; /* a refused key passes when its default is written out */
    str_printf(&s, MINIMUM "%s: %s\n", key->name, key->otherwise);
    CHECK_OK(parse_only(s.at));
    str_free(&s);
  }
  tree_free(&source);
}

TEST(offload_is_read_by_class_and_by_pattern) {
  train_config c;
  CHECK_OK(parse(MINIMUM, &c));
  for (int k = 0; k < HP_MEMORY_CLASSES; k++) CHECK_EQ(c.is.tiers.offload[k], HP_OFFLOAD_AUTO);
  CHECK(!c.is.tiers.flash.len && !c.is.tiers.flash_limit && !c.is.tiers.host_limit);
  done(&c);
  CHECK_OK(parse(MINIMUM "hyper_parallel: {offload: none}\n", &c));
  for (int k = 0; k < HP_MEMORY_CLASSES; k++) CHECK_EQ(c.is.tiers.offload[k], HP_OFFLOAD_NONE);
  done(&c);
  CHECK_OK(parse(MINIMUM "hyper_parallel:\n  offload: {weights: host, optimizer: flash, kv: none,\n"
                         "            \"*.mlp.*\": none, model.norm.weight: auto}\n"
                         "  flash: [/mnt/a, /mnt/b]\n  flash_limit: 2GiB\n  host_limit: 1MiB\n",
                 &c));
  const tier_options *o = &c.is.tiers;
  CHECK_EQ(o->offload[HP_MEMORY_PARAMS], HP_OFFLOAD_HOST);
  CHECK_EQ(o->offload[HP_MEMORY_OPTIMIZER], HP_OFFLOAD_FLASH);
  CHECK_EQ(o->offload[HP_MEMORY_OTHER], HP_OFFLOAD_NONE);
  CHECK_EQ(o->offload[HP_MEMORY_GRADIENTS], HP_OFFLOAD_AUTO);
  CHECK_EQ(o->homes.len, 2);
  CHECK_STR(o->homes.at[0].pattern, "*.mlp.*");
  CHECK_EQ(o->homes.at[0].offload, HP_OFFLOAD_NONE);
  CHECK_STR(o->homes.at[1].pattern, "model.norm.weight");
  CHECK_EQ(o->flash.len, 2);
  CHECK_STR(o->flash.at[1], "/mnt/b");
  CHECK(o->flash_limit == UINT64_C(2) << 30 && o->host_limit == 1 << 20);
  done(&c);
  CHECK_OK(parse(MINIMUM
                 "offload: \"weights=host,*.mlp.*=none\"\nflash: /a,/b\nflash_limit: 1MiB\n",
                 &c));
  CHECK_EQ(c.is.tiers.offload[HP_MEMORY_PARAMS], HP_OFFLOAD_HOST);
  CHECK_EQ(c.is.tiers.homes.len, 1);
  CHECK_EQ(c.is.tiers.flash.len, 2);
  done(&c);
}

TEST(the_keys_of_deepspeed_are_synonyms) {
  train_config c;
  CHECK_OK(parse(MINIMUM "devices: 2\ndeepspeed:\n  zero_optimization:\n    stage: 3\n"
                         "    overlap_comm: true\n    stage3_max_live_parameter: 1\n"
                         "    offload_optimizer: {device: cpu, pin_memory: true}\n"
                         "    offload_param: {device: nvme, nvme_path: /mnt/nvme}\n"
                         "  bf16: {enabled: auto}\n  train_batch_size: auto\n  steps_per_print: 9\n"
                         "hyper_parallel: {flash_limit: 1GiB, offload: {activations: none}}\n",
                 &c));
  const tier_options *o = &c.is.tiers;
  CHECK_EQ(c.is.place.group[0].by.zero, 3);
  CHECK_EQ(o->offload[HP_MEMORY_OPTIMIZER], HP_OFFLOAD_HOST);
  CHECK_EQ(o->offload[HP_MEMORY_PARAMS], HP_OFFLOAD_FLASH);
  CHECK_EQ(o->offload[HP_MEMORY_ACTIVATIONS], HP_OFFLOAD_NONE);
  CHECK_EQ(o->flash.len, 1);
  CHECK_STR(o->flash.at[0], "/mnt/nvme");
  CHECK_EQ(c.notes.len, 1);
  CHECK(strstr(c.notes.at[0], "zero_optimization.overlap_comm"));
  CHECK(strstr(c.notes.at[0], "zero_optimization.offload_optimizer.pin_memory"));
  CHECK(strstr(c.notes.at[0], "steps_per_print"));
  CHECK(!strstr(c.notes.at[0], "train_batch_size") && !strstr(c.notes.at[0], "stage3_max"));
  CHECK_EQ(c.warnings.len, 1);
  CHECK(strstr(c.warnings.at[0], "stage3_max_live_parameter (did you mean"));
  done(&c);
  CHECK_OK(parse(MINIMUM
                 "deepspeed: {zero_optimization: {stage: 1, offload_param: {device: none}}}\n"
                 "strategy: zero=1\noffload: weights=none\n",
                 &c));
  CHECK_EQ(c.is.tiers.offload[HP_MEMORY_PARAMS], HP_OFFLOAD_NONE);
  CHECK_EQ(c.is.place.group[0].by.zero, 1);
  done(&c);
}
