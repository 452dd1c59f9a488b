#include "test.h"

#include "train/settings.h"

#include <stdio.h>
#include <string.h>

/* The settings of a run, of which only some are given. */
static void have(run_settings *s, const char *name, const char *value, setting_kind kind) {
  CHECK(vec_push(&s->all, ((run_setting){name, value, kind})));
}

static tree parsed(const char *text) {
  tree t;
  CHECK_OK(json_parse(text, strlen(text), "MANIFEST.json", &t));
  return t;
}

TEST(a_manifest_without_settings_is_taken_to_be_the_same) {
  run_settings now = {0};
  train_config c = {0};
  tree state = parsed("{\"samples\": 3}"), model = parsed("{\"hidden_size\": 8}");
  have(&now, "learning_rate", "0.1", SETTING_NUMBER);
  CHECK_OK(settings_match(&now, &c, state.root, model.root, model.root, 5));
  CHECK_EQ(now.changes.len, 0);
  CHECK_OK(settings_match(&now, &c, state.root, NULL, model.root, 5));
  settings_free(&now);
  tree_free(&state);
  tree_free(&model);
}

TEST(what_differs_is_refused_told_or_noted) {
  static const char *const names[] = {"learning_rate", "model"};
  run_settings now = {0};
  train_config c = {0};
  tree state =
      parsed("{\"settings\": {\"learning_rate\": \"0.1\", \"seed\": \"1\", \"mesh\": \"a\"},"
             " \"changes\": [{\"step\": 2, \"name\": \"seed\", \"then\": \"0\", \"now\": \"1\"}]}");
  tree then = parsed("{\"eps\": 1e-5, \"dtype\": \"bfloat16\", \"gone\": null}");
  tree model = parsed("{\"eps\": 1e-6, \"dtype\": \"float32\"}");
  have(&now, "learning_rate", "0.2", SETTING_NUMBER);
  have(&now, "seed", "1", SETTING_NUMBER);
  have(&now, "mesh", "b", SETTING_TOLD);
  have(&now, "newer", "x", SETTING_NUMBER);
  CHECK_FAILS(settings_match(&now, &c, state.root, then.root, model.root, 5),
              "learning_rate 0.1 -> 0.2");
  c.is.resume_override = (train_names){names, 2};
  now.changes.len = 0;
  CHECK_OK(settings_match(&now, &c, state.root, then.root, model.root, 5));
  CHECK_EQ(now.changes.len, 4);
  CHECK_STR(now.changes.at[0].name, "seed");
  CHECK(settings_changed(&now, 5, "eps"));
  CHECK(settings_changed(&now, 5, "learning_rate"));
  CHECK(settings_changed(&now, 5, "mesh"));
  CHECK(!settings_changed(&now, 5, "seed"));
  str out = {0};
  json_writer w = {.out = &out};
  json_open_map(&w);
  settings_print(&now, &w);
  json_close(&w);
  CHECK(strstr(out.at, "\"learning_rate\": \"0.2\""));
  CHECK(strstr(out.at, "\"then\": \"0.1\""));
  str_free(&out);
  settings_free(&now);
  tree_free(&state);
  tree_free(&then);
  tree_free(&model);
}

TEST(damaged_changes_are_refused) {
  static const char *const bad[] = {"{\"changes\": 1}", "{\"changes\": [1]}",
                                    "{\"changes\": [{\"step\": 1}]}", "{\"settings\": []}"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    run_settings now = {0};
    train_config c = {0};
    tree state = parsed(bad[i]);
    CHECK(settings_match(&now, &c, state.root, NULL, state.root, 5) == HP_ERR_INPUT);
    err_clear();
    settings_free(&now);
    tree_free(&state);
  }
}

/* --- keys ------------------------------------------------------------------------------------- */

/* Keys that a run that goes on may change, or that another setting or check stands for.  A new key
 * is a row of settings.c or is named here. */
static const char free_keys[] =
    /* as another setting or with the data; optim and engine by checks of their own */
    " model_name_or_path template dataset eval_dataset cutoff_len packing max_samples val_size"
    " neat_packing train_on_prompt mask_history tool_format default_system enable_thinking"
    " preserve_thinking mix_strategy interleave_probs preprocessing_batch_size "
    "preprocessing_num_workers"
    " train_sampling_strategy per_device_train_batch_size gradient_accumulation_steps"
    " num_train_epochs max_steps warmup_ratio bf16 optim use_muon engine strategy devices "
    "hyper_parallel"
    " deterministic average_tokens_across_devices tensor_model_parallel_size"
    " pipeline_model_parallel_size virtual_pipeline_model_parallel_size pp_schedule"
    " pipeline_model_parallel_layout decoder_first_pipeline_num_layers"
    " decoder_last_pipeline_num_layers num_layers_per_virtual_pipeline_stage"
    " microbatch_group_size_per_virtual_pipeline_stage"
    " context_parallel_size hyper_parallel_cp_size expert_model_parallel_size"
    " expert_tensor_parallel_size sequence_parallel use_distributed_optimizer"
    /* the state of the checkpoint takes their place */
    " train_from_scratch do_train overwrite_output_dir resume_from_checkpoint resume_override"
    /* what is measured, written and told */
    " pissa_convert do_eval do_predict predict_with_generate compute_accuracy eval_on_each_dataset "
    "metric_for_best_model "
    "greater_is_better"
    " logging_strategy logging_steps logging_first_step save_strategy save_steps save_total_limit "
    "max_failed_saves save_only_model"
    " export_dir export_size infer_dtype export_legacy_format export_quantization_bit"
    " do_sample temperature top_p top_k max_new_tokens repetition_penalty num_beams"
    " skip_special_tokens"
    " export_hub_model_id export_dtype plot_loss report_to logging_dir run_name "
    "include_num_input_tokens_seen"
    " disable_tqdm output_dir dataset_dir"
    /* how the machine does it, with the same bits */
    " gradient_checkpointing disable_gradient_checkpointing threads memory_limit deepspeed offload"
    " recompute_granularity recompute_method recompute_num_layers recompute_modules"
    " flash flash_limit host_limit"
    " verify_replicas_steps ";

/* A change of these is always refused (test_lora.sh). */
static const char tensor_keys[] =
    " finetuning_type freeze_trainable_layers freeze_trainable_modules freeze_extra_modules"
    " lora_rank lora_target additional_target use_dora ";

static const char *const used_keys[] = {
#define USED(group, name, ...) #name,
#define NEUTRAL(...)
#define REFUSED(...)
#define SYNONYM(...)
#include "train/train_keys.def"
#undef USED
#undef NEUTRAL
#undef REFUSED
#undef SYNONYM
};

static bool is_compared(const char *key) {
  const char *name;
  for (size_t i = 0; (name = settings_override(i)); i++)
    if (!strcmp(name, key)) return true;
  return false;
}

TEST(every_key_that_decides_numbers_is_a_setting) {
  for (size_t i = 0; i < sizeof used_keys / sizeof *used_keys; i++) {
    char word[80];
    snprintf(word, sizeof word, " %s ", used_keys[i]);
    bool is_free = strstr(free_keys, word) || strstr(tensor_keys, word);
    if (is_free == is_compared(used_keys[i]))
      printf("%s: expected a row in settings.c or a place in free_keys\n", used_keys[i]);
    CHECK(is_free != is_compared(used_keys[i]));
  }
}
