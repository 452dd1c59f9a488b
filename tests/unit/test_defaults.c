/* Defaults and limits that users are told, each pinned to its number: a change of one is a
 * decision, not an accident. */
#include "backend/cpu/engine/engine_measure.h"
#include "base/io.h"
#include "base/json.h"
#include "base/yaml.h"
#include "comm/local_state.h"
#include "pass/chunk.h"
#include "rt/exec.h"
#include "rt/recent_runs.h"
#include "rt/heartbeat.h"
#include "rt/heartbeat_port.h"
#include "serve/generate.h"
#include "test.h"
#include "report/append_log.h"
#include "ckpt/checkpoint.h"
#include "base/retry.h"
#include "train/train_config.h"

/* Keys with their defaults, which are LlamaFactory's and Transformers' where they have the key. */
static const char top[] =
    " model_name_or_path=null train_from_scratch=false template=null moe_aux_loss_coef=null"
    " adapter_name_or_path=null adapter_folder=null additional_target=null create_new_adapter=false"
    " export_dir=null export_size=5 infer_dtype=auto export_legacy_format=false"
    " export_quantization_bit=null export_hub_model_id=null"
    " do_sample=true temperature=0.95 top_p=0.7 top_k=50 max_new_tokens=1024 repetition_penalty=1.0"
    " num_beams=1 skip_special_tokens=true"
    " freeze_trainable_layers=2 freeze_trainable_modules=all freeze_extra_modules=null"
    " pissa_init=false pissa_iter=16 pissa_convert=false use_dora=false loraplus_lr_ratio=null "
    "lora_alpha=null lora_dropout=0.0 lora_rank=8 "
    "lora_target=all "
    "use_rslora=false"
    " stage=sft finetuning_type=lora do_train=null do_eval=false dataset=null eval_dataset=null"
    " pref_beta=0.1 pref_ftx=0.0 pref_loss=sigmoid pref_exact=false dpo_label_smoothing=0.0"
    " simpo_gamma=0.5 kto_chosen_weight=1.0 kto_rejected_weight=1.0 ref_model=null"
    " ref_model_adapters=null ld_alpha=null"
    " tool_format=null default_system=null enable_thinking=true preserve_thinking=false"
    " train_on_prompt=false mask_history=false neat_packing=false label_smoothing_factor=0.0"
    " compute_accuracy=false do_predict=false predict_with_generate=false"
    " tensor_model_parallel_size=null pipeline_model_parallel_size=null"
    " virtual_pipeline_model_parallel_size=null pp_schedule=null context_parallel_size=null"
    " pipeline_model_parallel_layout=null decoder_first_pipeline_num_layers=null"
    " decoder_last_pipeline_num_layers=null num_layers_per_virtual_pipeline_stage=null"
    " microbatch_group_size_per_virtual_pipeline_stage=null"
    " expert_model_parallel_size=null expert_tensor_parallel_size=null sequence_parallel=null"
    " use_distributed_optimizer=null hyper_parallel_cp_size=null"
    " dataset_dir=data cutoff_len=2048 packing=null max_samples=null val_size=0.0"
    " eval_on_each_dataset=false mix_strategy=concat preprocessing_batch_size=1000"
    " preprocessing_num_workers=null disable_shuffling=false train_sampling_strategy=random"
    " dataloader_drop_last=false interleave_probs=null output_dir=trainer_output"
    " overwrite_output_dir=false resume_from_checkpoint=null resume_override=null"
    " logging_strategy=steps logging_steps=500 logging_first_step=false save_strategy=steps"
    " save_steps=500 save_total_limit=null max_failed_saves=10 save_only_model=false"
    " export_dtype=auto plot_loss=false report_to=none logging_dir=null run_name=null"
    " include_num_input_tokens_seen=no disable_tqdm=null per_device_train_batch_size=8"
    " gradient_accumulation_steps=1 global_batch_size=null learning_rate=5e-05"
    " num_train_epochs=3.0 max_steps=-1 lr_scheduler_type=linear lr_scheduler_kwargs=null"
    " warmup_steps=0 warmup_ratio=null optim=adamw_torch_fused use_muon=false weight_decay=0.0 "
    "adam_beta1=0.9"
    " adam_beta2=0.999 adam_epsilon=1e-08 max_grad_norm=1.0 bf16=false seed=42 data_seed=null"
    " neftune_noise_alpha=null"
    " gradient_checkpointing=null disable_gradient_checkpointing=false"
    " recompute_granularity=none recompute_method=none recompute_num_layers=null"
    " recompute_modules=null"
    " average_tokens_across_devices=true per_device_eval_batch_size=8 eval_strategy=no"
    " eval_steps=null eval_delay=0 eval_on_start=false metric_for_best_model=null"
    " greater_is_better=null dtype=auto threads=0 devices=1 memory_limit=null offload=null "
    "flash=null"
    " flash_limit=null host_limit=null deepspeed=null strategy=null verify_replicas_steps=500 "
    "deterministic=run engine=packed hyper_parallel=null";
static const char block[] =
    " cluster=null devices=null plan=auto device_matrix=null alias_name=null tensor_map=null"
    " pipeline=null memory_limit=null offload=auto offload_policy=auto flash=null"
    " flash_limit=null host_limit=null "
    "recompute=auto update=auto host_update=auto deterministic=run"
    " engine=packed leaves=16 groups=null overlap=true dispatch=auto prefetch=null interleave=1 "
    "strategy=null";

/* Of the words of a list, does one say that `name` is `value`? */
static bool has(const char *list, const char *name, const char *value) {
  char word[128];
  snprintf(word, sizeof word, " %s=%s", name, value);
  const char *at = strstr(list, word), *end = at ? at + strlen(word) : NULL;
  return at && (!*end || *end == ' ');
}

TEST(every_key_has_the_default_that_users_know) {
  for (int k = 0; k < KEY_COUNT; k++) {
    const train_key *key = train_key_get(k);
    if (key->status != TRAIN_USED) continue;
    if (!has(k < KEY_TOP_COUNT ? top : block, key->name, key->otherwise))
      test_fail(__FILE__, __LINE__, "%s is %s by default, which this file does not say", key->name,
                key->otherwise);
  }
}

TEST(limits_have_the_values_that_the_pages_tell) {
  static const struct {
    const char *what;
    long long is, want;
  } limits[] = {
      {"tries at the end of a run", RETRY_LAST_TRIES, 4},
      {"checkpoints that stay at least", CHECKPOINTS_LEAST, 2},
      {"bytes of log that wait for a disk", APPEND_LOG_WAITING_MAX, 16 << 20},
      {"seconds for the first words of a connection", HEARTBEAT_FIRST_S, 10},
      {"seconds after which a supervisor's machine is gone", HEARTBEAT_ANSWER_S, 150},
      {"nanoseconds between checks of a local wait", LOCAL_LOOK_NS, 200000000},
      {"percent of the fastest engine's time that are hopeless", (int)(ENGINE_HOPELESS * 100 + 0.5),
       130},
      {"connections of strangers", HEARTBEAT_STRANGERS, 64},
      {"runs that times are taken of", RUNS_KEPT, 8},
      {"bytes of a YAML file", YAML_SIZE_MAX, 8 << 20},
  };
  for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
    if (limits[i].is != limits[i].want)
      test_fail(__FILE__, __LINE__, "%s: %lld, want %lld", limits[i].what, limits[i].is,
                limits[i].want);
}

TEST(kernels_of_a_device_are_taken_to_be_those_of_a_cpu) {
  capabilities can = capabilities_usual();
  CHECK_EQ(can.chunk_bytes, 64 << 20);
  CHECK_NEAR(can.flops_per_byte, 80, 0);
  CHECK_EQ(can.horizontal_rows, 16);
  CHECK(!can.one_type && !can.kernels);
}

static generation defaults_with(const char *config) {
  static lm m;
  char path[1100];
  generation g;
  snprintf(m.path, sizeof m.path, "%s", test_dir());
  snprintf(path, sizeof path, "%s/generation_config.json", m.path);
  if (config) CHECK_OK(file_write(path, config, strlen(config)));
  CHECK_OK(generation_defaults(&m, &g));
  return g;
}

TEST(generation_has_the_defaults_of_transformers_and_is_greedy_unless_told) {
  static const struct {
    const char *config;
    sampling want;
    int64_t tokens;
  } cases[] = {
      {NULL, {0, 1, 1, 0, 0}, 128},
      {"{}", {0, 1, 1, 0, 0}, 128},
      {"{\"temperature\": 0.6, \"top_p\": 0.9, \"top_k\": 7}", {0, 1, 1, 0, 0}, 128},
      {"{\"do_sample\": true}", {1, 1, 1, 50, 0}, 128},
      {"{\"do_sample\": true, \"temperature\": 0.6, \"top_p\": 0.9, \"top_k\": 7, "
       "\"max_new_tokens\": 9,"
       " \"repetition_penalty\": 1.1}",
       {0.6, 0.9, 1.1, 7, 0},
       9},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    generation g = defaults_with(cases[i].config);
    const sampling *is = &g.sampling, *want = &cases[i].want;
    CHECK_NEAR(is->temperature, want->temperature, 0);
    CHECK_NEAR(is->top_p, want->top_p, 0);
    CHECK_NEAR(is->repetition_penalty, want->repetition_penalty, 0);
    CHECK_EQ(is->top_k, want->top_k);
    CHECK_EQ(g.max_new_tokens, cases[i].tokens);
  }
}
