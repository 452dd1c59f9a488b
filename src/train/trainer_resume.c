/* A run goes on from a checkpoint. */
#include "base/io.h"
#include "base/json.h"
#include "base/log.h"
#include "train/trainer_tensors.h"

#include <string.h>

/* A manifest from before settings were noted has these numbers. */
static hp_status must_equal(const tree_node *state, const char *key, int64_t now) {
  int64_t then;
  HP_TRY(tree_need_int(state, key, &then));
  if (then != now)
    TREE_FAIL(
        tree_get(state, key),
        "the checkpoint was made with %lld, this run has %lld, so the order of the data would "
        "change; restore the old value, or begin anew with overwrite_output_dir: true",
        (long long)then, (long long)now);
  return HP_OK;
}

static hp_status match_old(const train_config *c, const sampler_spec *s, const tree_node *state) {
  if (settings_has_override(c, "data")) return HP_OK;
  HP_TRY(must_equal(state, "samples", s->samples));
  return s->shuffle ? must_equal(state, "data_seed", (int64_t)s->seed) : HP_OK;
}

/* Is this the run that the checkpoint is of?  config.json of a checkpoint is that of its model. */
static hp_status match_settings(trainer *t, const checkpoint *c, const tree_node *state) {
  str path = {0};
  tree model = {0};
  if (!tree_get(state, "settings")) HP_TRY(match_old(&t->config, &t->data.sets.order.spec, state));
  hp_status st = path_join(&path, c->path, "config.json");
  bool there = false;
  if (!st) st = path_look(path.at, &there);
  if (!st && there) st = json_load(path.at, 0, &model);
  if (!st)
    st = settings_match(&t->settings, &t->config, state, there ? model.root : NULL,
                        t->model.m->c.source.root, c->step);
  if (there && model.root) tree_free(&model);
  str_free(&path);
  return st;
}

/* A run goes on with the engines it began with: others round in their own way. */
static hp_status keep_engine(hp_device *d, const tree_node *state) {
  const char *engine, *tuning, *now = hp_device_engine(d);
  bool all;
  HP_TRY(tree_opt_string(state, "engine", now, &engine));
  HP_TRY(tree_opt_string(state, "engine_picks", "", &tuning));
  hp_status st = hp_device_set_engine(d, engine, tuning);
  HP_TRY(hp_world_agree(st == HP_OK, &all));
  if (!all)
    log_warn("the checkpoint was made with the engine %s: %s; going on with %s, whose bits differ",
             engine, st ? err_message() : "another process cannot use it", now);
  else if (strcmp(engine, now))
    log_info("going on with the engine of the checkpoint, %s, in place of %s", engine, now);
  err_clear();
  return all ? HP_OK : hp_device_set_engine(d, now, NULL);
}

static hp_status read_state(trainer *t, const checkpoint *c) {
  const tree_node *state;
  const char *rate, *by, *sums;
  bool saved;
  HP_TRY(tree_need_map(c->manifest.root, "state", &state));
  HP_TRY(match_settings(t, c, state));
  HP_TRY(tree_need_string(state, "optimizer", &by));
  if (strcmp(by, optimizers[t->model.options.optimizer.kind].name))
    TREE_FAIL(tree_get(state, "optimizer"),
              "the checkpoint is of %s, this run uses another optim, whose state is not in it; "
              "restore optim, or begin anew with overwrite_output_dir: true",
              by);
  HP_TRY(tree_need_bool(state, "optimizer_saved", &saved));
  if (!saved)
    TREE_FAIL(tree_get(state, "optimizer_saved"),
              "it was saved with save_only_model: true and cannot be continued; use it as "
              "model_name_or_path, or begin anew with overwrite_output_dir: true");
  HP_TRY(keep_engine(t->model.d, state));
  HP_TRY(tree_need_string(state, "schedule", &rate));
  bool other = settings_changed(&t->settings, c->step, "lr_scheduler_type") ||
               settings_changed(&t->settings, c->step, "learning_rate");
  if (!other) HP_TRY(schedule_parse_state(&t->model.rate, rate)); /* else it begins anew */
  HP_TRY(tree_need_string(state, "loss_sums", &sums));
  return run_log_parse_sums(&t->log, sums);
}

/* The best checkpoint so far may lie in the folder that the run came from, or be deleted: then no
 * path of this one is named for it. */
static hp_status check_best(const char *dir, run_log *log) {
  str path = {0};
  bool there = true;
  if (!log->best_saved) return HP_OK;
  hp_status st = checkpoint_path(dir, log->best_step, &path);
  if (!st) st = path_look(path.at, &there);
  if (!there) {
    log_info("the best checkpoint so far is of step %lld, and %s is not there: "
             "best_model_checkpoint names none until a better one is saved",
             (long long)log->best_step, path.at);
    log->best_saved = false;
  }
  str_free(&path);
  return st;
}

static hp_status read_history(trainer *t, const char *dir) {
  tree state;
  str path = {0};
  hp_status st = path_join(&path, dir, "trainer_state.json");
  if (!st) st = json_load(path.at, 0, &state);
  if (!st) {
    st = run_log_parse_state(&t->log, state.root);
    tree_free(&state);
  }
  str_free(&path);
  return st || !t->job.writes ? st : check_best(t->config.output_dir, &t->log);
}

static hp_status resume_from(trainer *t, const checkpoint *c) {
  trainer_tensors model = {0}, states = {0};
  hp_status st = read_history(t, c->path);
  if (!st) st = read_state(t, c);
  if (!st) st = trainer_tensors_model(&t->config, &t->job, &t->model, TENSORS_ALL, &model);
  if (!st) st = trainer_tensors_states(&t->config, &t->job, &t->model, &states);
  if (!st) st = trainer_tensors_load(&model, c->path);
  if (!st && states.n) st = trainer_tensors_load(&states, c->path);
  trainer_tensors_free(&model);
  trainer_tensors_free(&states);
  if (st) return st;
  t->at.step = c->step;
  t->saves.last = t->origin.here ? c->step : -1;
  t->at.resumed = true;
  log_info("continuing from %s (step %lld of %lld)", c->path, (long long)c->step,
           (long long)t->at.steps);
  return HP_OK;
}

hp_status trainer_resume(trainer *t, bool *finished) {
  if (t->origin.found) HP_TRY(checkpoint_unread(resume_from(t, &t->origin.from)));
  bool ended = t->origin.found && t->origin.here && t->at.step >= t->at.steps;
  if (ended) ended = trainer_has_file(t->config.output_dir, "train_results.json");
  HP_TRY(hp_world_broadcast(&ended, sizeof ended));
  *finished = ended;
  return HP_OK;
}
