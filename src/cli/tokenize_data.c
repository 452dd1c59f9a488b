#include "cli/tokenize_data.h"

#include "base/json.h"
#include "base/thread.h"
#include "cli/cli.h"
#include "train/train_data.h"

#include <stdio.h>

typedef struct {
  const char *model, *dataset, *dataset_dir, *template;
} args;

static void put_ids(json_writer *w, const char *prefix, const char *name, const int32_t *ids,
                    int64_t n) {
  char key[64];
  snprintf(key, sizeof key, "%s%s", prefix, name);
  json_put_key(w, key);
  json_open_list(w);
  for (int64_t i = 0; i < n; i++) json_put_int(w, ids[i]);
  json_close(w);
}

static void put_row(json_writer *w, const sample_set *s, int64_t row, const char *prefix) {
  int64_t at = s->start[row], n = s->start[row + 1] - at;
  put_ids(w, prefix, "input_ids", s->ids + at, n);
  if (s->position) put_ids(w, prefix, "position_ids", s->position + at, n);
  if (s->labels) put_ids(w, prefix, "labels", s->labels + at, n);
}

static hp_status print_sample(const sample_set *s, int64_t i) {
  str out = {0};
  json_writer w = {.out = &out};
  json_open_map(&w);
  if (s->each < 2) {
    put_row(&w, s, i, "");
  } else {
    put_row(&w, s, 2 * i, s->good ? "" : "chosen_");
    put_row(&w, s, 2 * i + 1, s->good ? "kl_" : "rejected_");
  }
  if (s->good) json_key_bool(&w, "kto_tags", s->good[i]);
  json_close(&w);
  hp_status st = str_status(&out);
  if (!st) puts(out.at);
  str_free(&out);
  return st;
}

static hp_status print_samples(const train_config *c) {
  tokenizer *t = NULL;
  pool *threads = NULL;
  train_data d = {.vocab = 0};
  hp_status st = tokenizer_load(c->model_name_or_path, &t);
  if (!st) st = pool_create((int)c->threads, false, &threads);
  if (!st) st = train_data_open(c, t, c->model_name_or_path, threads, &d);
  for (int64_t i = 0; !st && i < d.train.samples; i++) st = print_sample(&d.train, i);
  train_data_free(&d);
  pool_free(threads);
  tokenizer_free(t);
  return st;
}

/* The options as keys, before those of the user. */
static hp_status load_keys(const args *a, const cli_config *words, train_config *out) {
  const char *all[CLI_WORDS + 5];
  arena mem = {0};
  int n = 0;
  all[n++] = "finetuning_type=full";
  all[n++] = arena_printf(&mem, "model_name_or_path=%s", a->model);
  all[n++] = arena_printf(&mem, "dataset=%s", a->dataset);
  if (a->dataset_dir) all[n++] = arena_printf(&mem, "dataset_dir=%s", a->dataset_dir);
  if (a->template) all[n++] = arena_printf(&mem, "template=%s", a->template);
  hp_status st = HP_OK;
  for (int i = 0; i < n; i++)
    if (!all[i]) st = HP_ERR_OOM;
  for (int i = 0; i < words->keys; i++) all[n++] = words->key[i];
  if (!st) st = train_config_load(NULL, all, n, true, out);
  arena_free(&mem);
  return st;
}

int tokenize_dataset(int argc, char **argv) {
  args a = {0};
  cli_config words;
  train_config c;
  const cli_option option[] = {{"--model", CLI_TEXT, &a.model, "DIR", "model folder"},
                               {"--dataset", CLI_TEXT, &a.dataset, "NAME",
                                "of dataset_info.json, or a file; several: a,b"},
                               {"--dataset-dir", CLI_TEXT, &a.dataset_dir, "DIR",
                                "folder of dataset_info.json (default: data)"},
                               {"--template", CLI_TEXT, &a.template, "T",
                                "chat template of conversations"}};
  const cli_spec spec =
      {"hyper tokenize --model DIR --dataset NAME [--dataset-dir DIR] [--template T] [key=value "
       "...]",
       "Samples as hyper train makes them, one JSON object each in the order of the dataset:\n"
       "input_ids and labels (-100: not learned); position_ids with packing; chosen_* and\n"
       "rejected_* in stages rm and dpo; kl_* and kto_tags in stage kto.  key=value: stage=pt,\n"
       "cutoff_len=512 and other keys of training files; the stage is sft by default.",
       "hyper tokenize --model models/tiny --template llama3 --dataset alpaca stage=sft", option,
       sizeof option / sizeof *option};
  int code = cli_parse_pairs(&spec, argc, argv, &words);
  if (code != CLI_GO_ON) return code;
  hp_status st = HP_OK;
  if (!a.model || !a.dataset) {
    arena_free(&words.text);
    return cli_usage(argv[0], a.model ? "--dataset NAME is missing" : "--model DIR is missing");
  }
  st = load_keys(&a, &words, &c);
  arena_free(&words.text);
  if (st) return cli_fail(st);
  st = print_samples(&c);
  train_config_free(&c);
  return st ? cli_fail(st) : 0;
}
