#include "train/settings.h"

#include "train/losses.h"

#include "base/hash.h"
#include "base/log.h"
#include "train/train_mesh.h"
#include "train/train_optimizer.h"

#include <stdio.h>
#include <string.h>

/* --- values ----------------------------------------------------------------------------------- */

typedef void print_setting(const train_config *c, str *out);

/* sequential sampling is the same as no shuffling */
static void print_unshuffled(const train_config *c, str *out) {
  str_add(out, c->is.by_length ? "group_by_length" : c->is.shuffle ? "false" : "true");
}
static void print_dtype(const train_config *c, str *out) {
  str_add(out, c->is.compute == HP_BF16 ? "bf16" : "f32");
}
static void print_global_batch(const train_config *c, str *out) {
  str_printf(out, "%lld", (long long)c->is.batch.global);
}
static void print_warmup(const train_config *c, str *out) { str_add_double(out, c->is.warmup); }
static void print_schedule_args(const train_config *c, str *out) {
  for (size_t i = 0; i < c->is.schedule_args; i++) {
    const schedule_arg *a = &c->is.schedule_arg[i];
    str_printf(out, "%s%s: ", i ? ", " : "", a->key);
    if (a->text) str_add(out, a->text);
    else str_add_double(out, a->number);
  }
  if (!c->is.schedule_args) str_add(out, "none");
}
static void print_mesh(const train_config *c, str *out) {
  str text = {0};
  const char *mesh;
  if (train_mesh_text(c, &text, &mesh)) out->failed = true;
  else str_add(out, mesh ? mesh : "one device");
  str_free(&text);
}

/* The rows that are keys, printed as they are or by a function. */
static const struct {
  const char *name;
  int key;
  print_setting *print;
  setting_kind kind;
} rows[] = {
    {"dataset", KEY_dataset, NULL, SETTING_DATA},
    {"template", KEY_template, NULL, SETTING_DATA},
    {"cutoff_len", KEY_cutoff_len, NULL, SETTING_DATA},
    {"neat_packing", KEY_neat_packing, NULL, SETTING_DATA},
    {"mask_history", KEY_mask_history, NULL, SETTING_DATA},
    {"train_on_prompt", KEY_train_on_prompt, NULL, SETTING_DATA},
    {"tool_format", KEY_tool_format, NULL, SETTING_DATA},
    {"default_system", KEY_default_system, NULL, SETTING_DATA},
    {"enable_thinking", KEY_enable_thinking, NULL, SETTING_DATA},
    {"preserve_thinking", KEY_preserve_thinking, NULL, SETTING_DATA},
    {"packing", KEY_packing, NULL, SETTING_DATA},
    {"max_samples", KEY_max_samples, NULL, SETTING_DATA},
    {"val_size", KEY_val_size, NULL, SETTING_DATA},
    {"mix_strategy", KEY_mix_strategy, NULL, SETTING_DATA},
    {"interleave_probs", KEY_interleave_probs, NULL, SETTING_DATA},
    {"preprocessing_batch_size", KEY_preprocessing_batch_size, NULL, SETTING_DATA},
    {"preprocessing_num_workers", KEY_preprocessing_num_workers, NULL, SETTING_DATA},
    {"seed", KEY_seed, NULL, SETTING_NUMBER},
    {"data_seed", KEY_data_seed, NULL, SETTING_NUMBER},
    {"disable_shuffling", 0, print_unshuffled, SETTING_NUMBER},
    {"dataloader_drop_last", KEY_dataloader_drop_last, NULL, SETTING_NUMBER},
    {"dtype", 0, print_dtype, SETTING_NUMBER},
    {"stage", KEY_stage, NULL, SETTING_NUMBER},
    {"label_smoothing_factor", KEY_label_smoothing_factor, NULL, SETTING_NUMBER},
    {"pref_loss", KEY_pref_loss, NULL, SETTING_NUMBER},
    {"pref_exact", KEY_pref_exact, NULL, SETTING_NUMBER},
    {"pref_beta", KEY_pref_beta, NULL, SETTING_NUMBER},
    {"pref_ftx", KEY_pref_ftx, NULL, SETTING_NUMBER},
    {"dpo_label_smoothing", KEY_dpo_label_smoothing, NULL, SETTING_NUMBER},
    {"simpo_gamma", KEY_simpo_gamma, NULL, SETTING_NUMBER},
    {"kto_chosen_weight", KEY_kto_chosen_weight, NULL, SETTING_NUMBER},
    {"kto_rejected_weight", KEY_kto_rejected_weight, NULL, SETTING_NUMBER},
    {"ld_alpha", KEY_ld_alpha, NULL, SETTING_NUMBER},
    {"ref_model", KEY_ref_model, NULL, SETTING_NUMBER},
    {"ref_model_adapters", KEY_ref_model_adapters, NULL, SETTING_NUMBER},
    {"finetuning_type", KEY_finetuning_type, NULL, SETTING_TENSORS},
    {"freeze_trainable_layers", KEY_freeze_trainable_layers, NULL, SETTING_TENSORS},
    {"freeze_trainable_modules", KEY_freeze_trainable_modules, NULL, SETTING_TENSORS},
    {"freeze_extra_modules", KEY_freeze_extra_modules, NULL, SETTING_TENSORS},
    {"lora_rank", KEY_lora_rank, NULL, SETTING_TENSORS},
    {"lora_alpha", KEY_lora_alpha, NULL, SETTING_NUMBER},
    {"lora_dropout", KEY_lora_dropout, NULL, SETTING_NUMBER},
    {"lora_target", KEY_lora_target, NULL, SETTING_TENSORS},
    {"additional_target", KEY_additional_target, NULL, SETTING_TENSORS},
    {"loraplus_lr_ratio", KEY_loraplus_lr_ratio, NULL, SETTING_NUMBER},
    {"pissa_init", KEY_pissa_init, NULL, SETTING_NUMBER},
    {"pissa_iter", KEY_pissa_iter, NULL, SETTING_NUMBER},
    {"use_dora", KEY_use_dora, NULL, SETTING_TENSORS},
    {"use_rslora", KEY_use_rslora, NULL, SETTING_NUMBER},
    {"adapter_name_or_path", KEY_adapter_name_or_path, NULL, SETTING_NUMBER},
    {"adapter_folder", KEY_adapter_folder, NULL, SETTING_NUMBER},
    {"create_new_adapter", KEY_create_new_adapter, NULL, SETTING_NUMBER},
    {"global_batch_size", 0, print_global_batch, SETTING_NUMBER},
    {"learning_rate", KEY_learning_rate, NULL, SETTING_NUMBER},
    {"lr_scheduler_type", KEY_lr_scheduler_type, NULL, SETTING_NUMBER},
    {"lr_scheduler_kwargs", 0, print_schedule_args, SETTING_NUMBER},
    {"warmup_steps", 0, print_warmup, SETTING_NUMBER},
    {"weight_decay", KEY_weight_decay, NULL, SETTING_NUMBER},
    {"adam_beta1", KEY_adam_beta1, NULL, SETTING_NUMBER},
    {"adam_beta2", KEY_adam_beta2, NULL, SETTING_NUMBER},
    {"adam_epsilon", KEY_adam_epsilon, NULL, SETTING_NUMBER},
    {"max_grad_norm", KEY_max_grad_norm, NULL, SETTING_NUMBER},
    {"neftune_noise_alpha", KEY_neftune_noise_alpha, NULL, SETTING_NUMBER},
    {"moe_aux_loss_coef", KEY_moe_aux_loss_coef, NULL, SETTING_NUMBER},
    {"eval_strategy", KEY_eval_strategy, NULL, SETTING_NUMBER},
    {"eval_steps", KEY_eval_steps, NULL, SETTING_NUMBER},
    {"eval_delay", KEY_eval_delay, NULL, SETTING_NUMBER},
    {"eval_on_start", KEY_eval_on_start, NULL, SETTING_NUMBER},
    {"per_device_eval_batch_size", KEY_per_device_eval_batch_size, NULL, SETTING_NUMBER},
    {"mesh", 0, print_mesh, SETTING_TOLD},
    {"deterministic", KEY_deterministic, NULL, SETTING_TOLD},
    {"interleave", KEY_PARALLEL_interleave, NULL, SETTING_TOLD},
};
enum { ROWS = sizeof rows / sizeof *rows };

static bool is_of_preference(int key) {
  return key == KEY_pref_loss || key == KEY_pref_exact || key == KEY_pref_beta ||
         key == KEY_pref_ftx || key == KEY_dpo_label_smoothing || key == KEY_simpo_gamma ||
         key == KEY_kto_chosen_weight || key == KEY_kto_rejected_weight || key == KEY_ref_model ||
         key == KEY_ref_model_adapters || key == KEY_ld_alpha;
}

/* Evaluation decides numbers where the schedule follows what it measures, and where it draws from
 * the same generator as the epochs. */
static bool evaluation_decides(const train_config *c) {
  return schedule_follows_metric(c->is.schedule) || c->is.by_length;
}

static bool is_of_evaluation(int key) {
  return key == KEY_eval_strategy || key == KEY_eval_steps || key == KEY_eval_delay ||
         key == KEY_eval_on_start || key == KEY_per_device_eval_batch_size;
}

static bool is_of_lora(int key) {
  static const int keys[] = {KEY_lora_rank,      KEY_lora_alpha,         KEY_lora_dropout,
                             KEY_lora_target,    KEY_loraplus_lr_ratio,  KEY_use_rslora,
                             KEY_use_dora,       KEY_additional_target,  KEY_adapter_name_or_path,
                             KEY_adapter_folder, KEY_create_new_adapter, KEY_pissa_init,
                             KEY_pissa_iter};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (keys[i] == key) return true;
  return false;
}

static bool is_of_freeze(int key) {
  return key == KEY_freeze_trainable_layers || key == KEY_freeze_trainable_modules ||
         key == KEY_freeze_extra_modules;
}

static hp_status add(run_settings *s, const char *name, const char *value, setting_kind kind) {
  const char *copy = arena_strdup(&s->mem, value);
  HP_TRY_MEM(copy);
  return vec_push(&s->all, ((run_setting){name, copy, kind})) ? HP_OK : HP_ERR_OOM;
}

/* A value as people write it: "cosine" without its quotes. */
static const char *unquoted(str *s) {
  if (!s->at) return "";
  bool quoted = s->len >= 2 && s->at[0] == '"' && strchr(s->at + 1, '"') == s->at + s->len - 1;
  if (!quoted || strchr(s->at, '\\')) return s->at;
  s->at[s->len - 1] = 0;
  return s->at + 1;
}

static hp_status add_row(const train_config *c, size_t i, run_settings *s) {
  str text = {0};
  if (!train_optimizer_uses(c, rows[i].key)) return HP_OK;
  if (is_of_preference(rows[i].key) && !losses[c->stage].preference) return HP_OK;
  if (is_of_evaluation(rows[i].key) && !evaluation_decides(c)) return HP_OK;
  if (c->finetuning_type != TUNING_FREEZE && is_of_freeze(rows[i].key)) return HP_OK;
  if (c->finetuning_type != TUNING_LORA && is_of_lora(rows[i].key)) return HP_OK;
  if (rows[i].print) rows[i].print(c, &text);
  else train_config_print_value(c, rows[i].key, &text);
  hp_status st = str_status(&text);
  if (!st) st = add(s, rows[i].name, unquoted(&text), rows[i].kind);
  str_free(&text);
  return st;
}

/* "235 samples, <digest>" */
static hp_status add_samples(run_settings *s, const char *name, const train_data *d,
                             const sample_set *x, setting_kind kind) {
  char hex[33];
  str text = {0};
  HP_TRY(train_data_digest(d, x, hex));
  str_printf(&text, "%lld samples, %s", (long long)x->samples, hex);
  hp_status st = str_status(&text);
  if (!st) st = add(s, name, text.at, kind);
  str_free(&text);
  return st;
}

static hp_status list_all(const train_config *c, const train_data *d, int64_t steps,
                          run_settings *s) {
  char number[24];
  for (size_t i = 0; i < ROWS; i++) HP_TRY(add_row(c, i, s));
  HP_TRY(add_samples(s, "data", d, &d->train, SETTING_NUMBER));
  setting_kind eval = evaluation_decides(c) ? SETTING_NUMBER : SETTING_TOLD;
  for (int64_t i = 0; i < d->evals; i++) {
    const char *name = i ? arena_printf(&s->mem, "eval_data.%lld", (long long)i) : "eval_data";
    HP_TRY_MEM(name);
    HP_TRY(add_samples(s, name, d, &d->eval[i], eval));
  }
  snprintf(number, sizeof number, "%lld", (long long)steps);
  return add(s, "steps", number, SETTING_TOLD);
}

hp_status settings_list(const train_config *c, const train_data *d, int64_t steps,
                        run_settings *out) {
  run_settings s = {0};
  hp_status st = list_all(c, d, steps, &s);
  if (st) settings_free(&s);
  else *out = s;
  return st;
}

void settings_free(run_settings *s) {
  vec_free(&s->all);
  vec_free(&s->changes);
  arena_free(&s->mem);
}

const char *settings_override(size_t i) {
  static const char *const more[] = {"data", "model", "eval_data"};
  enum { MORE = sizeof more / sizeof *more };
  for (size_t k = 0; k < ROWS; k++)
    if (rows[k].kind == SETTING_NUMBER && i-- == 0) return rows[k].name;
  return i < MORE ? more[i] : NULL;
}

bool settings_has_override(const train_config *c, const char *name) {
  for (size_t i = 0; i < c->is.resume_override.n; i++)
    if (!strcmp(c->is.resume_override.at[i], name)) return true;
  return false;
}

void settings_print(const run_settings *s, json_writer *w) {
  json_put_key(w, "settings");
  json_open_map(w);
  for (size_t i = 0; i < s->all.len; i++) {
    json_put_key(w, s->all.at[i].name);
    json_put_string(w, s->all.at[i].value);
  }
  json_close(w);
  json_put_key(w, "changes");
  json_open_list(w);
  for (size_t i = 0; i < s->changes.len; i++) {
    const setting_change *x = &s->changes.at[i];
    json_open_map(w);
    json_put_key(w, "step"), json_put_int(w, x->step);
    json_put_key(w, "name"), json_put_string(w, x->name);
    json_put_key(w, "then"), json_put_string(w, x->then);
    json_put_key(w, "now"), json_put_string(w, x->now);
    json_close(w);
  }
  json_close(w);
}

/* --- comparing -------------------------------------------------------------------------------- */

typedef struct {
  run_settings *now;
  const train_config *c;
  int64_t step;
  str refused, names; /* what is not the same, and what would allow it */
  bool other_tensors; /* nothing would: the checkpoint has other tensors */
} matching;

/* Is the name among those, which have commas between? */
static bool is_listed(const char *names, const char *name) {
  size_t n = strlen(name);
  for (const char *at = names; at && *at;) {
    size_t len = strcspn(at, ",");
    if (len == n && !memcmp(at, name, n)) return true;
    at += len + strspn(at + len, ", ");
  }
  return false;
}

static hp_status note_change(run_settings *s, int64_t step, const char *name, const char *then,
                             const char *now) {
  setting_change x = {step, arena_strdup(&s->mem, name), arena_strdup(&s->mem, then),
                      arena_strdup(&s->mem, now)};
  if (!x.name || !x.then || !x.now || !vec_push(&s->changes, x)) return HP_ERR_OOM;
  return HP_OK;
}

/* `allow`: the name in resume_override; `shown`: the difference in words. */
static hp_status differs(matching *m, const char *allow, const char *name, const char *then,
                         const char *now, const char *shown) {
  if (settings_has_override(m->c, allow) && !m->other_tensors) {
    log_warn("resume_override: %s, from step %lld on", shown, (long long)m->step + 1);
    return note_change(m->now, m->step, name, then, now);
  }
  str_printf(&m->refused, "%s%s", m->refused.len ? "; " : "", shown);
  if (!is_listed(m->names.at, allow))
    str_printf(&m->names, "%s%s", m->names.len ? ", " : "", allow);
  return HP_OK;
}

/* The data has changed: which, how many samples, and what of the keys that make them. */
static void show_data(const matching *m, const tree_node *settings, const char *then,
                      const char *now, str *out) {
  const train_names *d = &m->c->is.dataset;
  str_add(out, "the data has changed (");
  for (size_t i = 0; i < d->n; i++) str_printf(out, "%s%s", i ? ", " : "dataset ", d->at[i]);
  str_printf(out, ": %.*s in the checkpoint, now %.*s", (int)strcspn(then, ","), then,
             (int)strcspn(now, ","), now);
  bool keys = false;
  for (size_t i = 0; i < m->now->all.len; i++) {
    const run_setting *s = &m->now->all.at[i];
    const char *before;
    if (s->kind != SETTING_DATA || tree_opt_string(settings, s->name, s->value, &before)) continue;
    if (!strcmp(before, s->value)) continue;
    str_printf(out, ", %s %s -> %s", s->name, before, s->value);
    keys = true;
  }
  str_add(out, keys ? ")" : ", by the same keys)");
}

static hp_status match_one(matching *m, const tree_node *settings, const run_setting *s) {
  const char *then;
  str shown = {0};
  HP_TRY(tree_opt_string(settings, s->name, s->value, &then));
  if (s->kind == SETTING_DATA || !strcmp(then, s->value)) return HP_OK;
  if (!strcmp(s->name, "data")) show_data(m, settings, then, s->value, &shown);
  else str_printf(&shown, "%s %s -> %s", s->name, then, s->value);
  hp_status st = str_status(&shown);
  if (!st && s->kind == SETTING_TOLD) {
    log_info("other than in the checkpoint: %s", shown.at);
    st = note_change(m->now, m->step, s->name, then, s->value);
  } else if (!st) {
    const char *allow = strncmp(s->name, "eval_data", 9) ? s->name : "eval_data";
    m->other_tensors |= s->kind == SETTING_TENSORS;
    st = differs(m, allow, s->name, then, s->value, shown.at);
  }
  str_free(&shown);
  return st;
}

bool settings_changed(const run_settings *s, int64_t step, const char *name) {
  for (size_t i = 0; i < s->changes.len; i++)
    if (s->changes.at[i].step == step && !strcmp(s->changes.at[i].name, name)) return true;
  return false;
}

/* --- the model's config.json ------------------------------------------------------------------ */

/* Keys that change no number of a run. */
static bool is_idle(const char *key) {
  static const char *const idle[] = {"dtype",         "torch_dtype", "transformers_version",
                                     "_name_or_path", "use_cache",   "architectures"};
  for (size_t i = 0; i < sizeof idle / sizeof *idle; i++)
    if (!strcmp(key, idle[i])) return true;
  return false;
}

/* A value as text; nothing and null are the same. */
static hp_status text_of(const tree_node *n, str *out) {
  json_writer w = {.out = out, .utf8 = true};
  if (n) json_put_tree(&w, n);
  else str_add(out, "null");
  return str_status(out);
}

static hp_status match_key(matching *m, const char *key, const tree_node *then,
                           const tree_node *now) {
  str a = {0}, b = {0}, shown = {0};
  hp_status st = text_of(then, &a);
  if (!st) st = text_of(now, &b);
  if (!st && strcmp(a.at, b.at)) {
    str_printf(&shown, "%s of the model's config.json %.80s -> %.80s", key, a.at, b.at);
    st = str_status(&shown);
    if (!st) st = differs(m, "model", key, a.at, b.at, shown.at);
  }
  str_free(&a);
  str_free(&b);
  str_free(&shown);
  return st;
}

static hp_status match_model(matching *m, const tree_node *then, const tree_node *now) {
  if (!then || then->kind != TREE_MAP || now->kind != TREE_MAP) return HP_OK;
  for (uint32_t i = 0; i < now->len; i++) {
    const tree_node *n = now->child[i];
    if (!is_idle(n->key)) HP_TRY(match_key(m, n->key, tree_get(then, n->key), n));
  }
  for (uint32_t i = 0; i < then->len; i++) {
    const tree_node *n = then->child[i];
    if (!is_idle(n->key) && !tree_get(now, n->key)) HP_TRY(match_key(m, n->key, n, NULL));
  }
  return HP_OK;
}

/* --- all of it -------------------------------------------------------------------------------- */

static hp_status take_changes(run_settings *s, const tree_node *state) {
  const tree_node *list = tree_get(state, "changes");
  if (!list) return HP_OK;
  HP_TRY(tree_expect(list, TREE_LIST));
  for (uint32_t i = 0; i < list->len; i++) {
    int64_t step;
    const char *name, *then, *now;
    HP_TRY(tree_need_int(list->child[i], "step", &step));
    HP_TRY(tree_need_string(list->child[i], "name", &name));
    HP_TRY(tree_need_string(list->child[i], "then", &then));
    HP_TRY(tree_need_string(list->child[i], "now", &now));
    HP_TRY(note_change(s, step, name, then, now));
  }
  return HP_OK;
}

static hp_status refuse(const matching *m, const tree_node *state) {
  if (m->other_tensors)
    TREE_FAIL(
        state,
        "the run would train other weights than those in the checkpoint: %s; restore what was "
        "there, or begin anew with overwrite_output_dir: true",
        m->refused.at);
  TREE_FAIL(state,
            "the run would go on with other numbers: %s; restore what was there, or write "
            "resume_override: [%s] to go on with the change, or begin anew with "
            "overwrite_output_dir: true",
            m->refused.at, m->names.at);
}

hp_status settings_match(run_settings *now, const train_config *c, const tree_node *state,
                         const tree_node *model_then, const tree_node *model_now, int64_t step) {
  matching m = {.now = now, .c = c, .step = step};
  const tree_node *settings = tree_get(state, "settings");
  if (settings) HP_TRY(tree_expect(settings, TREE_MAP));
  else
    log_warn("the checkpoint is from before a run's settings and data were noted in it: they are "
             "taken to be the same");
  HP_TRY(take_changes(now, state));
  hp_status st = match_model(&m, model_then, model_now);
  for (size_t i = 0; settings && !st && i < now->all.len; i++)
    st = match_one(&m, settings, &now->all.at[i]);
  if (!st && (m.refused.failed || m.names.failed)) st = HP_ERR_OOM;
  if (!st && m.refused.len) st = refuse(&m, state);
  str_free(&m.refused);
  str_free(&m.names);
  return st;
}
