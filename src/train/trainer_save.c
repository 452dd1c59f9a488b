/* Checkpoints of a run and the exported model. */
#include "base/json.h"
#include "base/log.h"
#include "data/model_files.h"
#include "data/weights.h"
#include "train/trainer_tensors.h"

#include <string.h>

/* --- texts ------------------------------------------------------------------------------------ */

/* config.json as it was read, with the dtype of what is saved. */
static hp_status print_config(const trainer *t, str *out) {
  const tree_node *root = t->m->c.source.root;
  json_writer w = {.out = out, .indent = 2};
  bool told = false;
  json_open_map(&w);
  for (uint32_t i = 0; i < root->len; i++) {
    const tree_node *n = root->child[i];
    bool dtype = !strcmp(n->key, "dtype") || !strcmp(n->key, "torch_dtype");
    json_put_key(&w, n->key);
    if (dtype) json_put_string(&w, "float32");
    else json_put_tree(&w, n);
    told |= dtype;
  }
  if (!told) {
    json_put_key(&w, "dtype");
    json_put_string(&w, "float32");
  }
  json_close(&w);
  str_add_char(out, '\n');
  return str_status(out);
}

/* What a resume needs beside tensors and history; what must not have changed comes first.  picks:
 * of engines, as the device tells them. */
static hp_status print_state(const trainer *t, const char *picks, str *out) {
  const sampler_spec *s = &t->data.order.spec;
  json_writer w = {.out = out};
  str rate = {0}, sums = {0};
  schedule_print_state(&t->rate, &rate);
  run_log_print_sums(&t->log, &sums);
  json_open_map(&w);
  json_put_key(&w, "samples"), json_put_int(&w, s->samples);
  json_put_key(&w, "epoch_samples"), json_put_int(&w, s->epoch_samples);
  json_put_key(&w, "global_batch_size"), json_put_int(&w, s->batch * s->accumulation);
  json_put_key(&w, "replicas"), json_put_int(&w, t->c->is.batch.replicas);
  json_put_key(&w, "per_device_train_batch_size"), json_put_int(&w, t->c->is.batch.per_device);
  json_put_key(&w, "gradient_accumulation_steps"), json_put_int(&w, s->accumulation);
  settings_print(&t->settings, &w);
  json_put_key(&w, "optimizer"), json_put_string(&w, t->so.optimizer == STEP_SGD ? "sgd" : "adamw");
  json_put_key(&w, "optimizer_saved"), json_put_bool(&w, !t->c->save_only_model);
  json_put_key(&w, "engine"), json_put_string(&w, hp_device_engine(t->d));
  json_put_key(&w, "engine_picks"), json_put_string(&w, picks);
  json_put_key(&w, "schedule"), json_put_string(&w, rate.at ? rate.at : "");
  json_put_key(&w, "loss_sums"), json_put_string(&w, sums.at ? sums.at : "");
  json_close(&w);
  hp_status st = rate.failed || sums.failed ? HP_ERR_OOM : str_status(out);
  str_free(&rate);
  str_free(&sums);
  return st;
}

/* --- saving ----------------------------------------------------------------------------------- */

static hp_status save_tensors(void *context, const char *dir) {
  trainer *t = context;
  trainer_tensors model, states;
  HP_TRY(trainer_tensors_model(t, &model));
  hp_status st = trainer_tensors_save(&model, dir);
  trainer_tensors_free(&model);
  if (st || t->c->save_only_model) return st;
  HP_TRY(trainer_tensors_states(t, &states));
  st = trainer_tensors_save(&states, dir);
  trainer_tensors_free(&states);
  return st;
}

/* A failure of one is a failure of all. */
static hp_status agree(void *context, hp_status mine) {
  int64_t failed;
  (void)context;
  if (hp_world_most(mine != HP_OK, &failed) || mine) return mine ? mine : HP_ERR_COMM;
  if (failed) HP_FAIL(HP_ERR_COMM, "another process could not write its part of the checkpoint");
  return HP_OK;
}

/* What cannot be deleted costs space, not the run. */
static void prune(trainer *t) {
  checkpoint_limit limit = {.line = &t->line,
                            .keep =
                                t->c->save_total_limit == TRAIN_NONE ? 0 : t->c->save_total_limit,
                            .saved = t->step,
                            .best = t->log.best_saved ? t->log.best_step : -1,
                            .memo = &t->memo};
  if (!checkpoint_prune(t->c->output_dir, &limit)) return;
  log_warn("%s; older checkpoints stay", err_message());
  err_clear();
}

static hp_status save(trainer *t, arena *mem, str *text) {
  const char *copy[MODEL_FILES_MAX];
  size_t n_copy;
  HP_TRY(print_config(t, &text[0]));
  run_log_saved(&t->log); /* once it is committed; before that nobody reads it */
  run_log_print_state(&t->log, &text[1]);
  char *picks;
  HP_TRY(hp_device_picks(t->d, &picks));
  hp_status st = print_state(t, picks, &text[2]);
  hp_free(picks);
  HP_TRY(st);
  HP_TRY(str_status(&text[1]));
  HP_TRY(model_files_list(t->c->model_name_or_path, mem, copy, &n_copy));
  checkpoint_text texts[2] = {{"config.json", text[0].at, text[0].len},
                              {"trainer_state.json", text[1].at, text[1].len}};
  checkpoint_content c = {.write = save_tensors,
                          .ctx = t,
                          .text = texts,
                          .n_text = 2,
                          .copy = copy,
                          .n_copy = n_copy,
                          .step = t->step,
                          .state = text[2].at,
                          .line = &t->line,
                          .agree = t->processes > 1 ? agree : NULL,
                          .follows = !t->writes,
                          .run = t->run};
  HP_TRY(checkpoint_save(t->c->output_dir, &c));
  t->last_saved = t->step;
  if (!t->writes) return HP_OK;
  checkpoint_memo_good(&t->memo, t->c->output_dir, t->step);
  prune(t);
  return HP_OK;
}

hp_status trainer_checkpoint(trainer *t) {
  arena mem = {0};
  str text[3] = {{0}};
  hp_status st = save(t, &mem, text);
  for (int i = 0; i < 3; i++) str_free(&text[i]);
  arena_free(&mem);
  if (!st) log_debug("checkpoint-%lld written", (long long)t->step);
  return st;
}

static hp_status export_config(const trainer *t) {
  str text = {0}, to = {0};
  hp_status st = print_config(t, &text);
  if (!st) st = path_join(&to, t->c->output_dir, "config.json");
  if (!st) st = file_write(to.at, text.at, text.len);
  str_free(&text);
  str_free(&to);
  return st;
}

hp_status trainer_export(trainer *t) {
  trainer_tensors model;
  HP_TRY(trainer_tensors_model(t, &model));
  hp_status st = trainer_tensors_export(&model, t->c->output_dir);
  trainer_tensors_free(&model);
  if (!t->writes) return st;
  if (!st) st = model_files_copy(t->c->model_name_or_path, t->c->output_dir);
  return st ? st : export_config(t);
}

bool trainer_has_file(const char *dir, const char *name) {
  str path = {0};
  bool there = !path_join(&path, dir, name) && file_exists(path.at);
  str_free(&path);
  return there;
}

bool trainer_is_exported(const trainer *t) {
  arena mem = {0};
  weights *w;
  const char *copy[MODEL_FILES_MAX], *dir = t->c->output_dir;
  size_t n = 0;
  bool whole = trainer_has_file(dir, "config.json") &&
               !model_files_list(t->c->model_name_or_path, &mem, copy, &n);
  for (size_t i = 0; whole && i < n; i++) whole = trainer_has_file(dir, strrchr(copy[i], '/') + 1);
  if (whole && (whole = !weights_open(dir, &w))) weights_free(w);
  err_clear();
  arena_free(&mem);
  return whole;
}
