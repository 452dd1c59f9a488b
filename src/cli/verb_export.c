/* `hyper export`: a model with its adapters merged, as a Hugging Face folder. */
#include "base/dtype.h"
#include "base/io.h"
#include "base/log.h"
#include "ckpt/manifest.h"
#include "cli/cli.h"
#include "model/lm_adapter.h"
#include "model/lm_files.h"
#include "train/chat_files.h"
#include "train/train_tuning.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static bool same_folder(const char *a, const char *b) {
  struct stat x, y;
  return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* The folder is none of those that are read. */
static hp_status check_folder(const train_config *c) {
  const tree_node *at = train_config_at(c, KEY_export_dir);
  if (!c->export_dir) TREE_FAIL(c->root, "export_dir is missing; write the folder to be written");
  if (same_folder(c->export_dir, c->model_name_or_path))
    TREE_FAIL(at, "is the folder of model_name_or_path; write another one");
  for (size_t i = 0; i < c->is.adapters.n; i++)
    if (same_folder(c->export_dir, c->is.adapters.at[i]))
      TREE_FAIL(at, "is the folder of an adapter; write another one");
  return manifest_check_target(c->export_dir);
}

static hp_status check_keys(const train_config *c) {
  if (!c->model_name_or_path)
    TREE_FAIL(c->root,
              "model_name_or_path is missing; write the folder of a Hugging Face checkpoint");
  if (!path_exists(c->model_name_or_path))
    TREE_FAIL(c->at[KEY_model_name_or_path], "there is no folder \"%s\" here",
              c->model_name_or_path);
  HP_TRY(train_tuning_check(c));
  HP_TRY(check_folder(c));
  if (c->export_quantization_bit != TRAIN_NONE)
    TREE_FAIL(c->at[KEY_export_quantization_bit], "quantized exports are not built; leave it out");
  if (c->export_hub_model_id)
    TREE_FAIL(c->at[KEY_export_hub_model_id],
              "nothing is uploaded; leave it out, and upload export_dir yourself");
  if (c->export_legacy_format)
    log_info("export_legacy_format: without effect: weights are always safetensors");
  return HP_OK;
}

/* By infer_dtype; NULL: each tensor in the type of the files. */
static const hp_dtype *find_type(const train_config *c) {
  static const hp_dtype types[] = {HP_F32, HP_F16, HP_BF16, HP_F32};
  return c->infer_dtype ? &types[c->infer_dtype] : NULL;
}

static hp_status open_adapters(const train_config *c, lm *m) {
  hp_status st = HP_OK;
  str dir = {0};
  for (size_t i = 0; !st && i < c->is.adapters.n; i++) {
    st = train_tuning_folder(c, i, &dir);
    const char *at = dir.at;
    if (!st) st = lm_open_adapters(m, &at, 1, false);
  }
  str_free(&dir);
  return st;
}

/* The tokenizer's files, with the template of the configuration. */
static hp_status read_files(const train_config *c, model_files *out) {
  tokenizer *t;
  HP_TRY(model_files_read(c->model_name_or_path, out));
  if (!c->template) return HP_OK;
  HP_TRY(tokenizer_load(c->model_name_or_path, &t));
  hp_status st = chat_files_complete(c->template, t, out);
  tokenizer_free(t);
  return st;
}

static hp_status export_model(train_config *c) {
  static const double gigabyte = 1e9;
  lm_options o = {.compute = HP_F32, .weights = HP_F32};
  model_files files = {.n = 0};
  lm *m;
  HP_TRY(train_config_split(c, c->adapter_name_or_path, &c->is.adapters));
  HP_TRY(check_keys(c));
  HP_TRY(lm_create(c->model_name_or_path, NULL, &o, &m));
  hp_status st = open_adapters(c, m);
  if (!st) st = read_files(c, &files);
  if (!st) st = dir_create(c->export_dir);
  if (!st)
    st = lm_export(m, c->model_name_or_path, &files, c->export_dir, find_type(c),
                   (uint64_t)((double)c->export_size * gigabyte));
  model_files_free(&files);
  lm_free(m);
  return st;
}

int verb_export(int argc, char **argv) {
  static const cli_spec spec =
      {"hyper export CONFIG.yaml [key=value ...]",
       "Merges the adapters of adapter_name_or_path into the weights of model_name_or_path, and\n"
       "writes a Hugging Face folder: LlamaFactory's keys export_dir, export_size (GB of a file),\n"
       "infer_dtype (type of the weights; auto: as they are).",
       "hyper export merge.yaml export_dir=models/merged", NULL, 0};
  cli_config words;
  train_config c;
  int code = cli_parse_config(&spec, NULL, argc, argv, &words);
  if (code != CLI_GO_ON) return code;
  hp_status st = train_config_read(words.file, words.key, words.keys, &c);
  arena_free(&words.text);
  if (st) return cli_fail(st);
  st = export_model(&c);
  if (!st) printf("%s written\n", c.export_dir);
  train_config_free(&c);
  return st ? cli_fail(st) : 0;
}
