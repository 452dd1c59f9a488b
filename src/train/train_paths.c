#include "train/train_paths.h"

#include "base/io.h"
#include "base/log.h"
#include "train/losses.h"

#include <stdio.h>
#include <sys/stat.h>

static bool same_file(const char *a, const char *b) {
  struct stat x, y;
  return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static hp_status check_model_folder(const train_config *c) {
  const char *path = c->model_name_or_path;
  if (!path || c->bad[KEY_model_name_or_path]) return HP_OK; /* told already */
  if (same_file(path, c->output_dir))
    TREE_FAIL(
        train_config_at(c, KEY_output_dir),
        "is the folder of model_name_or_path: the run would write over the checkpoint that it "
        "starts from; write another folder");
  if (path_exists(path)) return HP_OK;
  TREE_FAIL(train_config_at(c, KEY_model_name_or_path),
            "there is no folder \"%s\" here, and hub ids are not fetched; download the checkpoint "
            "(config.json, *.safetensors, tokenizer.json) and write its folder",
            path);
}

/* What went wrong, said of the key. */
static hp_status name_key(const train_config *c, int key, hp_status st) {
  char text[ERR_MESSAGE_MAX];
  if (st != HP_ERR_INPUT) return st;
  snprintf(text, sizeof text, "%s", err_message());
  err_clear();
  TREE_FAIL(train_config_at(c, key), "%s", text);
}

static hp_status check_data(train_config *c, int key, const train_names *names, bool reads_data) {
  dataset_spec spec = {.dir = c->dataset_dir,
                       .name = names->at,
                       .n = names->n,
                       .kind = losses[c->stage].data};
  if (c->bad[key] || c->bad[KEY_dataset_dir]) return HP_OK;
  for (size_t i = 0; i < names->n; i++) {
    hp_status st = name_key(c, key, dataset_check(&spec, i));
    if (st == HP_ERR_INPUT && !reads_data) {
      log_warn("%s (not needed here; train stops at it)", err_message());
      err_clear();
      st = HP_OK;
    }
    HP_TRY(train_config_keep(c, st));
  }
  return HP_OK;
}

static hp_status check_flash(const train_config *c) {
  const tier_options *o = &c->is.tiers;
  int key = c->at[KEY_flash] ? KEY_flash : KEY_PARALLEL_flash;
  if (!c->at[key]) key = KEY_deepspeed;
  for (size_t i = 0; i < o->flash.len; i++)
    if (!path_exists(o->flash.at[i]))
      TREE_FAIL(train_config_at(c, key), "flash: there is no folder \"%s\"; create it",
                o->flash.at[i]);
  return HP_OK;
}

/* Opening a device for plans alone reads it. */
static hp_status check_cluster(const train_config *c) {
  hp_device_options o = {.threads = 1, .plan_only = true, .cluster = c->parallel.cluster};
  hp_device *d = NULL;
  if (!o.cluster || c->bad[KEY_PARALLEL_cluster]) return HP_OK;
  hp_status st = name_key(c, KEY_PARALLEL_cluster, hp_device_open(&o, &d));
  hp_device_close(d);
  return st;
}

hp_status train_paths_check(train_config *c, bool reads_data) {
  HP_TRY(train_config_keep(c, check_model_folder(c)));
  HP_TRY(check_data(c, KEY_dataset, &c->is.dataset, reads_data));
  HP_TRY(check_data(c, KEY_eval_dataset, &c->is.eval_dataset, reads_data));
  HP_TRY(train_config_keep(c, check_flash(c)));
  return train_config_keep(c, check_cluster(c));
}
