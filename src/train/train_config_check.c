/* The rules between keys: what LlamaFactory and Transformers derive, refuse, or refuse here. */
#include "dataset/chat_template.h"
#include "train/losses.h"
#include "train/settings.h"
#include "train/train_deepspeed.h"
#include "train/train_generation.h"
#include "train/train_groups.h"
#include "train/train_megatron.h"
#include "train/train_megatron_layers.h"
#include "train/train_mesh.h"
#include "train/train_optimizer.h"
#include "train/train_pipeline.h"
#include "train/train_preference.h"
#include "train/train_recompute.h"
#include "train/train_tiers.h"
#include "train/train_tuning.h"

#include "base/json.h"
#include "base/yaml.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- method, model ---------------------------------------------------------------------------- */

static hp_status check_stage(train_config *c) {
  const train_loss *loss = &losses[c->stage];
  if (loss->samples) return HP_OK;
  TREE_FAIL(train_config_at(c, KEY_stage), "stage %s is not built yet; only these are: %s",
            loss->stage, train_key_get(KEY_stage)->help);
}

static hp_status check_model_is_named(train_config *c) {
  if (c->model_name_or_path) return HP_OK;
  TREE_FAIL(c->root,
            "model_name_or_path is missing; write the folder of a Hugging Face checkpoint");
}

static hp_status decide_work(train_config *c) {
  c->is.train = c->do_train < 0 ? !c->do_predict : c->do_train;
  c->is.evaluate_after = c->do_eval || c->eval_strategy != WHEN_NO;
  if (c->is.train || c->is.evaluate_after || c->do_predict) return HP_OK;
  TREE_FAIL(train_config_at(c, KEY_do_train),
            "do_train, do_eval and do_predict are all false: nothing to do; write do_train: true");
}

hp_status train_config_check_model(const train_config *c, int64_t max_position_embeddings) {
  if (max_position_embeddings > 0 && c->is.block > max_position_embeddings)
    TREE_FAIL(train_config_at(c, KEY_cutoff_len),
              "%lld%s tokens, but the model in %s has %lld positions (max_position_embeddings); "
              "write cutoff_len: %lld or less",
              (long long)c->cutoff_len, c->at[KEY_cutoff_len] ? "" : " (the default)",
              c->model_name_or_path, (long long)max_position_embeddings,
              (long long)max_position_embeddings);
  return HP_OK;
}

/* --- datasets --------------------------------------------------------------------------------- */

static hp_status decide_val_size(train_config *c) {
  double v = c->val_size;
  if (!(v > 1e-6)) return HP_OK;
  const tree_node *at = train_config_at(c, KEY_val_size);
  if (c->eval_dataset)
    TREE_FAIL(at, "val_size and eval_dataset are both set (%s); keep one of them",
              tree_where(c->eval_dataset).text);
  if (!c->dataset) TREE_FAIL(at, "val_size takes samples from dataset, which is not set");
  if (v < 1) {
    c->is.val_share = v;
    return HP_OK;
  }
  if (v != floor(v))
    TREE_FAIL(at, "%.10g: expected a share below 1, or a whole number of samples", v);
  if (v == 1 && at->kind == TREE_FLOAT)
    TREE_FAIL(at, "1.0 is the complete dataset; write a share below 1, or a number of samples");
  c->is.val_count = (int64_t)v;
  return HP_OK;
}

static hp_status decide_probs(train_config *c) {
  if (!c->interleave_probs) return HP_OK;
  if (c->mix_strategy == MIX_CONCAT)
    TREE_FAIL(c->interleave_probs, "is for mix_strategy interleave_under or interleave_over, but "
                                   "mix_strategy is concat");
  train_names text;
  tree_node one = *c->interleave_probs;
  if (one.kind == TREE_FLOAT || one.kind == TREE_INT)
    TREE_FAIL(c->interleave_probs, "expected one share a dataset, as \"0.7,0.3\"");
  HP_TRY(one.kind == TREE_LIST ? HP_OK : train_config_split(c, c->interleave_probs, &text));
  size_t n = one.kind == TREE_LIST ? one.len : text.n;
  double *p = arena_alloc(&c->mem, n ? n : 1, sizeof *p), sum = 0;
  HP_TRY_MEM(p);
  for (size_t i = 0; i < n; i++) {
    if (one.kind == TREE_LIST) HP_TRY(tree_as_double(one.child[i], &p[i]));
    else if (!str_to_f64(text.at[i], &p[i]))
      TREE_FAIL(c->interleave_probs,
                "\"%s\" is no number; expected one share a dataset, as "
                "\"0.7,0.3\"",
                text.at[i]);
    if (!(p[i] >= 0)) TREE_FAIL(c->interleave_probs, "a share is %g; expected 0 or more", p[i]);
    sum += p[i];
  }
  if (fabs(sum - 1) > 1e-8)
    TREE_FAIL(c->interleave_probs, "the shares add up to %.10g; expected 1", sum);
  if (n != c->is.dataset.n || (c->is.eval_dataset.n > 1 && n != c->is.eval_dataset.n))
    TREE_FAIL(c->interleave_probs, "%zu shares for %zu datasets; expected one each", n,
              n != c->is.dataset.n ? c->is.dataset.n : c->is.eval_dataset.n);
  c->is.interleave_probs = p;
  return HP_OK;
}

/* In stage sft a pack has cutoff_len tokens; the last one is padding. */
static hp_status decide_packing(train_config *c) {
  bool texts = losses[c->stage].data == DATASET_TEXTS, sft = c->stage == STAGE_sft;
  if (c->neat_packing && !sft)
    TREE_FAIL(train_config_at(c, KEY_neat_packing), "neat_packing is for stage sft");
  c->is.packed = texts ? c->packing != 0 : sft && (c->packing == 1 || c->neat_packing);
  c->is.block = c->cutoff_len;
  if (c->packing == 1 && !texts && !sft)
    TREE_FAIL(train_config_at(c, KEY_packing), "packing is for stages pt and sft");
  if (!c->is.packed || (texts && c->packing != 1)) return HP_OK;
  /* LlamaFactory takes one off where packing is written out, and not where it is the default */
  c->is.block--;
  if (!c->is.block)
    TREE_FAIL(
        train_config_at(c, KEY_cutoff_len),
        "packing: true makes blocks of cutoff_len - 1 = 0 tokens; write cutoff_len: 2 or more");
  if (!texts) return HP_OK;
  return train_config_note(c,
                           "packing: true, written out, makes blocks of cutoff_len - 1 = %lld "
                           "tokens, as in LlamaFactory; leave packing out for blocks of %lld",
                           (long long)c->is.block, (long long)c->cutoff_len);
}

/* Keys of one stage alone. */
static hp_status check_chat(train_config *c) {
  bool sft = c->stage == STAGE_sft;
  int key = c->train_on_prompt ? KEY_train_on_prompt : KEY_mask_history;
  if ((c->train_on_prompt || c->mask_history) && !sft)
    TREE_FAIL(train_config_at(c, key), "it is for stage sft; leave it out");
  if (c->compute_accuracy && !sft)
    TREE_FAIL(train_config_at(c, KEY_compute_accuracy), "it is for stage sft; leave it out");
  if (c->label_smoothing_factor > 0 && losses[c->stage].preference)
    TREE_FAIL(train_config_at(c, KEY_label_smoothing_factor), "it is for stages pt and sft");
  if (c->train_on_prompt && c->mask_history)
    TREE_FAIL(train_config_at(c, KEY_mask_history),
              "train_on_prompt learns all, mask_history the last answer alone; keep one of them");
  if (!c->template || losses[c->stage].data == DATASET_TEXTS) return HP_OK;
  chat_template t;
  HP_TRY(chat_template_find(c->template, &t));
  if (c->train_on_prompt && t.ends_turns)
    TREE_FAIL(train_config_at(c, KEY_train_on_prompt),
              "it does not go with template %s, which learns its end token with the next prompt",
              c->template);
  return HP_OK;
}

static hp_status decide_names(train_config *c) {
  return train_config_split(c, c->dataset, &c->is.dataset);
}

static hp_status decide_eval_names(train_config *c) {
  return train_config_split(c, c->eval_dataset, &c->is.eval_dataset);
}

static hp_status check_dataset_is_named(train_config *c) {
  if (c->is.train && !c->is.dataset.n)
    TREE_FAIL(c->root, "dataset is missing; write a name of dataset_info.json, or a file");
  return HP_OK;
}

static hp_status check_mix(train_config *c) {
  if (c->mix_strategy != MIX_INTERLEAVE_ONCE) return HP_OK;
  TREE_FAIL(train_config_at(c, KEY_mix_strategy),
            "interleave_once is not built; write concat, interleave_under or interleave_over");
}

static hp_status check_by_length(train_config *c) {
  if (!c->is.by_length) return HP_OK;
  const tree_node *at = train_config_at(c, KEY_train_sampling_strategy);
  if (c->disable_shuffling)
    TREE_FAIL(at,
              "group_by_length draws an order, and disable_shuffling: true (%s) keeps that of "
              "the data; leave one of them out",
              tree_where(train_config_at(c, KEY_disable_shuffling)).text);
  if (losses[c->stage].data == DATASET_PAIRS)
    TREE_FAIL(at,
              "group_by_length is for samples of one text, but those of stage %s are pairs, as "
              "in Transformers; write random or sequential",
              losses[c->stage].stage);
  return HP_OK;
}

static hp_status decide_order(train_config *c) {
  c->is.by_length = c->train_sampling_strategy == SAMPLING_GROUP_BY_LENGTH;
  HP_TRY(check_by_length(c));
  c->is.shuffle = !c->disable_shuffling && c->train_sampling_strategy == SAMPLING_RANDOM;
  c->is.data_seed = (uint64_t)(c->data_seed == TRAIN_NONE ? c->seed : c->data_seed);
  return HP_OK;
}

static hp_status check_eval_data(train_config *c) {
  bool has_eval = c->is.eval_dataset.n || c->is.val_count || c->is.val_share > 0;
  bool evaluates = c->is.evaluate_after || c->do_predict;
  int key = c->at[KEY_eval_strategy] ? KEY_eval_strategy
            : c->do_eval             ? KEY_do_eval
                                     : KEY_do_predict;
  if (evaluates && !has_eval)
    TREE_FAIL(train_config_at(c, key),
              "evaluation needs data; write eval_dataset, or val_size above 0");
  if (has_eval && !evaluates)
    return train_config_note(c,
                             "%s is set, but nothing evaluates; write eval_strategy: steps or "
                             "do_eval: true",
                             c->eval_dataset ? "eval_dataset" : "val_size");
  return HP_OK;
}

/* --- schedule --------------------------------------------------------------------------------- */

static hp_status read_arg(const tree_node *v, schedule_arg *a) {
  *a = (schedule_arg){.key = v->key};
  if (v->kind == TREE_STRING) return tree_as_string(v, &a->text);
  if (v->kind == TREE_BOOL) {
    a->number = v->boolean;
    return HP_OK;
  }
  return tree_as_double(v, &a->number);
}

static hp_status read_args(train_config *c, const tree_node *v) {
  if (!v) return HP_OK;
  if (v->kind == TREE_STRING) { /* as on a command line: '{"num_cycles": 2}' */
    tree_node *inside;
    HP_TRY(yaml_parse_value(&c->mem, v->string, "lr_scheduler_kwargs", NULL, &inside));
    v = inside;
  }
  HP_TRY(tree_expect(v, TREE_MAP));
  schedule_arg *arg = arena_alloc(&c->mem, v->len ? v->len : 1, sizeof *arg);
  HP_TRY_MEM(arg);
  size_t n = 0;
  for (uint32_t i = 0; i < v->len; i++)
    if (v->child[i]->kind != TREE_NULL) HP_TRY(read_arg(v->child[i], &arg[n++]));
  c->is.schedule_arg = arg;
  c->is.schedule_args = n;
  return HP_OK;
}

static hp_status unknown_schedule(const train_config *c) {
  const char *name[SCHEDULE_COUNT];
  for (int k = 0; k < SCHEDULE_COUNT; k++) name[k] = schedule_name((schedule_kind)k);
  const char *near = str_nearest(c->lr_scheduler_type, name, SCHEDULE_COUNT);
  TREE_FAIL(train_config_at(c, KEY_lr_scheduler_type),
            "there is no schedule \"%s\"%s%s%s; `hyper train --help` lists them",
            c->lr_scheduler_type, near ? " (did you mean \"" : "", near ? near : "",
            near ? "\"?)" : "");
}

static hp_status decide_schedule(train_config *c) {
  c->is.schedule = schedule_find(c->lr_scheduler_type);
  return c->is.schedule == SCHEDULE_COUNT ? unknown_schedule(c) : HP_OK;
}

static hp_status decide_schedule_args(train_config *c) {
  schedule trial;
  HP_TRY(read_args(c, c->lr_scheduler_kwargs));
  hp_status st = schedule_create(c->is.schedule, c->learning_rate, 0, 1, c->is.schedule_arg,
                                 c->is.schedule_args, &trial);
  if (st) {
    static const char key[] = "lr_scheduler_kwargs: "; /* its place says so, too */
    err_report why;
    err_take(st, &why);
    bool given = c->at[KEY_lr_scheduler_kwargs] != NULL;
    bool twice = given && !strncmp(why.message, key, sizeof key - 1);
    TREE_FAIL(train_config_at(c, given ? KEY_lr_scheduler_kwargs : KEY_lr_scheduler_type), "%s",
              why.message + (twice ? sizeof key - 1 : 0));
  }
  schedule_free(&trial);
  return HP_OK;
}

static hp_status check_metric(train_config *c) {
  if (c->metric_for_best_model && strcmp(c->metric_for_best_model, "loss") &&
      strcmp(c->metric_for_best_model, "eval_loss"))
    TREE_FAIL(train_config_at(c, KEY_metric_for_best_model), "\"%s\" is not built; write loss",
              c->metric_for_best_model);
  return HP_OK;
}

static hp_status decide_metric(train_config *c) {
  if (schedule_follows_metric(c->is.schedule) && c->eval_strategy == WHEN_NO)
    TREE_FAIL(train_config_at(c, KEY_lr_scheduler_type),
              "schedule %s follows the evaluation's loss; write eval_strategy: steps or epoch",
              c->lr_scheduler_type);
  if (schedule_follows_metric(c->is.schedule) && !c->metric_for_best_model)
    c->metric_for_best_model = "loss";
  if (c->eval_on_each_dataset &&
      (c->metric_for_best_model || schedule_follows_metric(c->is.schedule)))
    TREE_FAIL(train_config_at(c, KEY_eval_on_each_dataset),
              "true gives a loss for each data set, but %s needs one; write eval_on_each_dataset: "
              "false",
              c->metric_for_best_model ? "metric_for_best_model" : "the schedule");
  return HP_OK;
}

/* --- when ------------------------------------------------------------------------------------- */

static hp_status check_interval(const train_config *c, int key, double x) {
  if (x > 1 && x != floor(x))
    TREE_FAIL(train_config_at(c, key),
              "%.10g: expected a whole number of steps, or a share of all steps below 1", x);
  return HP_OK;
}

static hp_status decide_warmup(train_config *c) {
  c->is.warmup = isnan(c->warmup_ratio) ? c->warmup_steps : c->warmup_ratio;
  HP_TRY(check_interval(c, KEY_warmup_steps, c->warmup_steps));
  if (!isnan(c->warmup_ratio) && c->at[KEY_warmup_steps])
    return train_config_note(c, "warmup_ratio and warmup_steps are both set: warmup_ratio wins, as "
                                "in Transformers 5");
  return HP_OK;
}

static hp_status check_logging(train_config *c) {
  HP_TRY(check_interval(c, KEY_logging_steps, c->logging_steps));
  if (c->logging_strategy == WHEN_STEPS && c->logging_steps == 0)
    TREE_FAIL(train_config_at(c, KEY_logging_steps),
              "0 with logging_strategy steps; write 1 or more, or logging_strategy: \"no\"");
  return HP_OK;
}

static hp_status check_saving(train_config *c) {
  HP_TRY(check_interval(c, KEY_save_steps, c->save_steps));
  if (c->save_total_limit != 1) return HP_OK;
  return train_config_note(c, "save_total_limit: 1 keeps two checkpoints: the older one is the "
                              "way back when the newer one is damaged");
}

static hp_status decide_evaluating(train_config *c) {
  if (!isnan(c->eval_steps)) HP_TRY(check_interval(c, KEY_eval_steps, c->eval_steps));
  if (c->eval_strategy != WHEN_STEPS || c->eval_steps > 0) return HP_OK;
  c->eval_steps = c->logging_steps;
  if (!(c->eval_steps > 0))
    TREE_FAIL(train_config_at(c, KEY_eval_strategy), "steps needs eval_steps of 1 or more");
  return HP_OK;
}

static hp_status check_saving_best(train_config *c) {
  if (c->save_strategy == WHEN_BEST && (c->eval_strategy == WHEN_NO || !c->metric_for_best_model))
    TREE_FAIL(
        train_config_at(c, KEY_save_strategy),
        "best needs an evaluation; write eval_strategy: steps and metric_for_best_model: loss");
  return HP_OK;
}

static hp_status check_length(train_config *c) {
  if (c->max_steps == 0)
    TREE_FAIL(train_config_at(c, KEY_max_steps),
              "0 steps; expected 1 or more, or -1 to go by num_train_epochs");
  if (c->max_steps < 0 && !(c->num_train_epochs > 0))
    TREE_FAIL(train_config_at(c, KEY_num_train_epochs),
              "%g epochs; expected more than 0 (or max_steps of 1 or more)", c->num_train_epochs);
  if (c->max_steps > 0 && c->at[KEY_num_train_epochs])
    return train_config_note(c, "max_steps is set: num_train_epochs has no effect");
  return HP_OK;
}

/* --- output ----------------------------------------------------------------------------------- */

/* Another spelling of what decides the same. */
static const char *one_name(const char *name) {
  static const char *const same[][2] = {{"warmup_ratio", "warmup_steps"},
                                        {"train_sampling_strategy", "disable_shuffling"},
                                        {"bf16", "dtype"},
                                        {"dataset", "data"},
                                        {"eval_dataset", "eval_data"}};
  for (size_t i = 0; i < sizeof same / sizeof *same; i++)
    if (!strcmp(name, same[i][0])) return same[i][1];
  return name;
}

static hp_status decide_override(train_config *c) {
  enum { NAMES_MAX = 64 };
  const char *known[NAMES_MAX];
  size_t n = 0;
  HP_TRY(train_config_split(c, c->resume_override, &c->is.resume_override));
  while (n < NAMES_MAX && (known[n] = settings_override(n))) n++;
  for (size_t i = 0; i < c->is.resume_override.n; i++) {
    const char **name = (const char **)(uintptr_t)&c->is.resume_override.at[i];
    *name = one_name(*name);
    size_t k = 0;
    while (k < n && strcmp(*name, known[k])) k++;
    if (k < n) continue;
    const char *near = str_nearest(*name, known, n);
    TREE_FAIL(c->resume_override,
              "\"%s\" is nothing that a checkpoint holds a run to%s%s%s; expected data, model, "
              "global_batch_size or keys such as learning_rate",
              *name, near ? " (did you mean \"" : "", near ? near : "", near ? "\"?)" : "");
  }
  return HP_OK;
}

static hp_status decide_resume(train_config *c) {
  const tree_node *v = c->resume_from_checkpoint;
  c->is.resume = c->overwrite_output_dir ? RESUME_NEVER : RESUME_IF_ANY;
  if (!v || (v->kind == TREE_BOOL && !v->boolean)) return HP_OK;
  if (v->kind == TREE_BOOL) {
    if (c->overwrite_output_dir)
      TREE_FAIL(v, "true, but overwrite_output_dir: true (%s) begins anew; remove one of them",
                tree_where(train_config_at(c, KEY_overwrite_output_dir)).text);
    c->is.resume = RESUME_NEWEST;
    return HP_OK;
  }
  HP_TRY(tree_as_string(v, &c->is.resume_path));
  if (!*c->is.resume_path) TREE_FAIL(v, "is empty; expected true, or the folder of a checkpoint");
  c->is.resume = RESUME_FROM;
  return HP_OK;
}

static hp_status take_reporter(train_config *c, const tree_node *v) {
  const char *name;
  HP_TRY(tree_as_string(v, &name));
  if (!strcmp(name, "tensorboard") || !strcmp(name, "all")) c->is.tensorboard = true;
  else if (strcmp(name, "none"))
    return train_config_note(c,
                             "report_to %s: not built; the logs are trainer_log.jsonl and, with "
                             "report_to: tensorboard, TensorBoard's",
                             name);
  return HP_OK;
}

static hp_status check_folder(train_config *c) {
  if (!*c->output_dir)
    TREE_FAIL(train_config_at(c, KEY_output_dir), "is empty; expected a folder for the run");
  return HP_OK;
}

static hp_status decide_reporters(train_config *c) {
  const tree_node *v = c->report_to;
  if (!v || v->kind != TREE_LIST) return v ? take_reporter(c, v) : HP_OK;
  for (uint32_t i = 0; i < v->len; i++) HP_TRY(take_reporter(c, v->child[i]));
  return HP_OK;
}

static hp_status decide_count(train_config *c) {
  const tree_node *v = c->include_num_input_tokens_seen;
  const char *word = "no";
  if (v && v->kind == TREE_BOOL) word = v->boolean ? "all" : "no";
  else if (v) HP_TRY(tree_as_string(v, &word));
  static const char *const count[] = {"no", "all", "non_padding"};
  for (int i = 0; i < 3; i++)
    if (!strcmp(word, count[i])) {
      c->is.count = (train_count)i;
      return HP_OK;
    }
  TREE_FAIL(v, "\"%s\": expected true, false, no, all or non_padding", word);
}

/* --- device and the hyper_parallel block ------------------------------------------------------ */

/* The key that holds the value: the block's where it is set there. */
static int key_of(const train_config *c, int key, int block_key) {
  return c->at[block_key] && !c->at[key] ? block_key : key;
}

/* The devices that are asked for; 0: none are. */
static int64_t devices_given(const train_config *c) {
  int key = key_of(c, KEY_devices, KEY_PARALLEL_devices);
  if (!c->at[key]) return 0;
  return key == KEY_devices ? c->devices : c->parallel.devices;
}

/* strategy and devices, which may stand in the file or in the block.  text: with the stages of the
 * pipeline: block. */
static hp_status take_strategy(train_config *c, const char *given, const char *text) {
  int by = key_of(c, KEY_strategy, KEY_PARALLEL_strategy);
  int devices = key_of(c, KEY_devices, KEY_PARALLEL_devices);
  int64_t n = devices_given(c);
  if (!n) n = text ? 0 : 1;
  if (c->strategy && c->parallel.strategy && strcmp(c->strategy, c->parallel.strategy))
    HP_TRY(train_config_note(c, "strategy: %s, in place of %s (%s)", c->strategy,
                             c->parallel.strategy, tree_where(c->at[KEY_PARALLEL_strategy]).text));
  if (!placement_parse(text, n, &c->is.place))
    return train_deepspeed_apply_stage(c, text, &c->is.place.group[0].by);
  char why[512];
  snprintf(why, sizeof why, "%s", err_message());
  err_clear();
  const tree_node *at = c->at[by];
  if (!at) at = given ? train_megatron_at(c) : c->at[devices];
  TREE_FAIL(at ? at : c->parallel.pipeline, "%s", why);
}

static hp_status decide_strategy(train_config *c) {
  const char *given = c->strategy ? c->strategy : c->parallel.strategy, *text;
  str keys = {0}, with_stages = {0};
  hp_status st = given ? HP_OK : train_megatron_strategy(c, devices_given(c), &keys, &given);
  if (!st) st = train_pipeline_strategy(c, given, &with_stages, &text);
  if (!st) st = take_strategy(c, given, text);
  str_free(&keys);
  str_free(&with_stages);
  return st;
}

/* Two keys for one thing: the block's and the file's. */
static hp_status same(const train_config *c, int key, int block_key, bool equal) {
  if (c->at[key] && c->at[block_key] && !equal)
    TREE_FAIL(c->at[block_key], "differs from %s; keep one of them", tree_where(c->at[key]).text);
  return HP_OK;
}

/* Not built. */
static hp_status refuse_plan(train_config *c) {
  if (!c->parallel.plan || !strcmp(c->parallel.plan, "auto")) return HP_OK;
  TREE_FAIL(c->at[KEY_PARALLEL_plan], "plan files are not built; write plan: auto");
}

/* The key that asks for bits which this engine does not give; NULL: none does.  All but ours depend
 * on how tensors are cut, and a measurement may come out otherwise the next time. */
static const tree_node *fixed_bits(const train_config *c, int engine) {
  const tree_node *full = tree_get(c->root, "full_determinism");
  if (c->is.no_partial_sums && engine != ENGINE_PACKED)
    return c->at[key_of(c, KEY_deterministic, KEY_PARALLEL_deterministic)];
  bool asks = full && full->kind == TREE_BOOL && full->boolean;
  return asks && engine == ENGINE_MEASURED ? full : NULL;
}

/* The engine of products; after the keys that ask for fixed bits. */
static hp_status decide_engine(train_config *c) {
  static const char *const name[] = {"packed", "onednn", "openblas", "scalar", "fastest"};
  int by = key_of(c, KEY_engine, KEY_PARALLEL_engine);
  int engine = by == KEY_engine ? c->engine : c->parallel.engine;
  const tree_node *fixed = fixed_bits(c, engine);
  HP_TRY(same(c, KEY_engine, KEY_PARALLEL_engine, c->engine == c->parallel.engine));
  if (fixed)
    TREE_FAIL(c->at[by],
              "%s rounds differently, but %s requires fixed bits (%s); write engine: packed, or "
              "leave one of them out",
              name[engine], fixed->key, tree_where(fixed).text);
  c->is.engine = name[engine];
  return HP_OK;
}

/* A value that stands in the block alone, or in the file alone, or follows from others, is that of
 * both: printed, they are both there. */
static void share_twins(train_config *c) {
  if (!*c->is.mesh) c->devices = placement_devices(&c->is.place);
  if (c->at[KEY_PARALLEL_engine]) c->engine = c->parallel.engine;
  else c->parallel.engine = c->engine;
  if (c->at[KEY_PARALLEL_deterministic]) c->deterministic = c->parallel.deterministic;
  else c->parallel.deterministic = c->deterministic;
  if (c->at[KEY_offload]) c->parallel.offload = c->offload;
}

static hp_status check_devices(train_config *c) {
  return same(c, KEY_devices, KEY_PARALLEL_devices, c->devices == c->parallel.devices);
}

static hp_status decide_memory(train_config *c) {
  c->is.memory_limit = c->memory_limit ? c->memory_limit : c->parallel.memory_limit;
  return same(c, KEY_memory_limit, KEY_PARALLEL_memory_limit,
              c->memory_limit == c->parallel.memory_limit);
}

static hp_status decide_mesh(train_config *c) {
  HP_TRY(train_pipeline_read(c));
  HP_TRY(train_megatron_schedule(c));
  HP_TRY(train_megatron_layout(c));
  if (c->parallel.groups) HP_TRY(train_groups_decide(c));
  else if (c->parallel.device_matrix) HP_TRY(placement_parse("", 0, &c->is.place));
  else HP_TRY(decide_strategy(c));
  HP_TRY(train_mesh_decide(c));
  HP_TRY(train_megatron_check(c));
  return train_pipeline_check(c);
}

static hp_status decide_bits(train_config *c) {
  HP_TRY(same(c, KEY_deterministic, KEY_PARALLEL_deterministic,
              c->deterministic == c->parallel.deterministic));
  c->is.no_partial_sums =
      (c->at[KEY_deterministic] ? c->deterministic : c->parallel.deterministic) ==
      DETERMINISTIC_LAYOUT;
  if (!c->at[KEY_PARALLEL_leaves]) return HP_OK;
  return train_config_note(c, "leaves: without effect: deterministic: layout splits no sum");
}

static hp_status decide_compute(train_config *c) {
  if (c->dtype == DTYPE_F32 && c->bf16)
    TREE_FAIL(c->at[KEY_dtype], "f32 contradicts bf16: true (%s); remove one of them",
              tree_where(c->at[KEY_bf16]).text);
  if (c->dtype == DTYPE_BF16 && c->at[KEY_bf16] && !c->bf16)
    TREE_FAIL(c->at[KEY_dtype], "bf16 contradicts bf16: false (%s); remove one of them",
              tree_where(c->at[KEY_bf16]).text);
  c->is.compute = c->bf16 || c->dtype == DTYPE_BF16 ? HP_BF16 : HP_F32;
  return HP_OK;
}

/* --- all -------------------------------------------------------------------------------------- */

/* A rule and the keys that it reads; -1 ends them. */
typedef struct {
  hp_status (*check)(train_config *c);
  int key[32];
} rule;
#define RULE(check, ...)                                                                           \
  {                                                                                                \
    check, { __VA_ARGS__, -1 }                                                                     \
  }

/* Keys that form the strategy. */
#define STRATEGY_KEYS                                                                              \
  KEY_strategy, KEY_PARALLEL_strategy, KEY_devices, KEY_PARALLEL_devices,                          \
      KEY_PARALLEL_device_matrix, KEY_PARALLEL_alias_name, KEY_PARALLEL_tensor_map,                \
      KEY_tensor_model_parallel_size, KEY_pipeline_model_parallel_size, KEY_context_parallel_size, \
      KEY_hyper_parallel_cp_size, KEY_expert_model_parallel_size, KEY_expert_tensor_parallel_size, \
      KEY_sequence_parallel, KEY_use_distributed_optimizer,                                        \
      KEY_virtual_pipeline_model_parallel_size, KEY_pp_schedule, KEY_PARALLEL_groups,              \
      KEY_pipeline_model_parallel_layout, KEY_decoder_first_pipeline_num_layers,                   \
      KEY_decoder_last_pipeline_num_layers, KEY_num_layers_per_virtual_pipeline_stage,             \
      KEY_microbatch_group_size_per_virtual_pipeline_stage

/* In an order in which what a rule decides is there for those after it. */
static const rule rules[] = {
    RULE(check_stage, KEY_stage),
    RULE(train_tuning_decide, KEY_predict_with_generate, KEY_finetuning_type,
         KEY_adapter_name_or_path, KEY_lora_target, KEY_additional_target, KEY_lora_rank,
         KEY_create_new_adapter, KEY_use_rslora, KEY_lora_dropout, KEY_freeze_trainable_modules,
         KEY_freeze_extra_modules),
    RULE(check_model_is_named, KEY_model_name_or_path),
    RULE(decide_work, KEY_do_train, KEY_do_eval, KEY_do_predict, KEY_eval_strategy),
    RULE(decide_names, KEY_dataset),
    RULE(decide_eval_names, KEY_eval_dataset),
    RULE(check_dataset_is_named, KEY_dataset, KEY_do_train),
    RULE(decide_val_size, KEY_val_size, KEY_eval_dataset, KEY_dataset),
    RULE(check_mix, KEY_mix_strategy),
    RULE(decide_probs, KEY_interleave_probs, KEY_mix_strategy, KEY_dataset, KEY_eval_dataset),
    RULE(decide_packing, KEY_packing, KEY_cutoff_len, KEY_neat_packing),
    RULE(train_preference_check, KEY_pref_beta, KEY_pref_loss, KEY_dpo_label_smoothing,
         KEY_ref_model),
    RULE(check_chat, KEY_train_on_prompt, KEY_mask_history, KEY_template, KEY_compute_accuracy,
         KEY_label_smoothing_factor),
    RULE(decide_order, KEY_train_sampling_strategy, KEY_disable_shuffling, KEY_seed, KEY_data_seed),
    RULE(check_eval_data, KEY_eval_strategy, KEY_do_eval, KEY_do_predict, KEY_eval_dataset,
         KEY_val_size),
    RULE(check_logging, KEY_logging_steps, KEY_logging_strategy),
    RULE(check_saving, KEY_save_steps, KEY_save_strategy, KEY_save_total_limit),
    RULE(decide_evaluating, KEY_eval_steps, KEY_eval_strategy, KEY_logging_steps),
    RULE(check_metric, KEY_metric_for_best_model),
    RULE(decide_schedule, KEY_lr_scheduler_type),
    RULE(decide_schedule_args, KEY_lr_scheduler_kwargs, KEY_lr_scheduler_type, KEY_learning_rate),
    RULE(decide_metric, KEY_metric_for_best_model, KEY_lr_scheduler_type, KEY_eval_strategy,
         KEY_eval_on_each_dataset),
    RULE(check_saving_best, KEY_save_strategy, KEY_eval_strategy, KEY_metric_for_best_model),
    RULE(check_length, KEY_max_steps, KEY_num_train_epochs),
    RULE(train_optimizer_check, KEY_optim, KEY_use_muon, KEY_adam_beta1, KEY_adam_beta2,
         KEY_adam_epsilon, KEY_finetuning_type, KEY_loraplus_lr_ratio),
    RULE(decide_warmup, KEY_warmup_ratio, KEY_warmup_steps),
    RULE(check_folder, KEY_output_dir),
    RULE(decide_resume, KEY_resume_from_checkpoint, KEY_overwrite_output_dir),
    RULE(decide_override, KEY_resume_override),
    RULE(decide_reporters, KEY_report_to),
    RULE(decide_count, KEY_include_num_input_tokens_seen),
    RULE(train_deepspeed_read, KEY_deepspeed),
    RULE(check_devices, KEY_devices, KEY_PARALLEL_devices),
    RULE(decide_memory, KEY_memory_limit, KEY_PARALLEL_memory_limit),
    RULE(decide_mesh, STRATEGY_KEYS, KEY_PARALLEL_pipeline),
    RULE(train_generation_check, KEY_do_predict, KEY_predict_with_generate, KEY_stage,
         KEY_eval_on_each_dataset, KEY_metric_for_best_model, KEY_lr_scheduler_type,
         KEY_compute_accuracy, KEY_num_beams, KEY_PARALLEL_device_matrix),
    RULE(train_pipeline_check_update, KEY_PARALLEL_update, STRATEGY_KEYS),
    RULE(train_batch_size_decide, KEY_per_device_train_batch_size, KEY_gradient_accumulation_steps,
         KEY_global_batch_size, KEY_average_tokens_across_devices, STRATEGY_KEYS),
    RULE(refuse_plan, KEY_PARALLEL_plan),
    RULE(decide_bits, KEY_deterministic, KEY_PARALLEL_deterministic),
    RULE(decide_engine, KEY_engine, KEY_PARALLEL_engine, KEY_deterministic,
         KEY_PARALLEL_deterministic, KEY_full_determinism),
    RULE(train_tiers_decide, KEY_offload, KEY_PARALLEL_offload, KEY_flash, KEY_PARALLEL_flash,
         KEY_flash_limit, KEY_PARALLEL_flash_limit, KEY_host_limit, KEY_PARALLEL_host_limit,
         KEY_deepspeed, KEY_PARALLEL_offload_policy),
    RULE(train_recompute_decide, KEY_PARALLEL_recompute, KEY_gradient_checkpointing,
         KEY_disable_gradient_checkpointing, KEY_PARALLEL_offload_policy, KEY_recompute_granularity,
         KEY_recompute_method, KEY_recompute_num_layers, KEY_recompute_modules),
    RULE(decide_compute, KEY_dtype, KEY_bf16),
    RULE(train_deepspeed_check, KEY_deepspeed, KEY_bf16, KEY_dtype, KEY_max_grad_norm,
         KEY_per_device_train_batch_size, KEY_gradient_accumulation_steps, KEY_global_batch_size),
};

/* Can the rule say anything?  Not of keys with an error of their own. */
static bool applies(const rule *r, const train_config *c) {
  for (const int *k = r->key; *k >= 0; k++)
    if (c->bad[*k]) return false;
  return true;
}

hp_status train_config_decide(train_config *c) {
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
    const rule *r = &rules[i];
    if (!applies(r, c)) continue;
    hp_status st = r->check(c);
    for (const int *k = r->key; st && *k >= 0; k++) c->bad[*k] = true;
    HP_TRY(train_config_keep(c, st));
  }
  if (!c->errors.len) share_twins(c);
  return HP_OK;
}
