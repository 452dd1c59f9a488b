#include "test.h"

#include "base/io.h"
#include "base/json.h"
#include "base/yaml.h"
#include "train/run_work.h"

#include <stdlib.h>
#include <string.h>

#define GOLDEN "golden/llamafactory/"

typedef struct {
  train_config config;
  tree source;
  tokenizer *tokens;
  pool *threads;
  train_data data;
  train_batch batch;
} loaded;

static void put(const char *dir, const char *name, const str *text) {
  str path = {0};
  CHECK_OK(path_join(&path, dir, name));
  CHECK_OK(file_write(path.at, text->at, text->len));
  str_free(&path);
}

/* The golden tokenizer as vocab.json and merges.txt, with add_bos_token, in a folder of the test.
 */
static const char *split_tokenizer(void) {
  static char dir[600];
  tree t;
  str s = {0};
  json_writer w = {.out = &s};
  snprintf(dir, sizeof dir, "%s/model", test_dir());
  CHECK_OK(dir_create(dir));
  CHECK_OK(json_load(test_data(GOLDEN "model/tokenizer.json"), 0, &t));
  json_put_tree(&w, tree_get(tree_get(t.root, "model"), "vocab"));
  put(dir, "vocab.json", &s);
  const tree_node *merges = tree_get(tree_get(t.root, "model"), "merges");
  str_clear(&s);
  str_add(&s, "#version: 0.2\n");
  for (uint32_t i = 0; i < merges->len; i++) {
    const tree_node *m = merges->child[i];
    if (m->kind == TREE_LIST) str_printf(&s, "%s %s\n", m->child[0]->string, m->child[1]->string);
    else str_printf(&s, "%s\n", m->string);
  }
  put(dir, "merges.txt", &s);
  str_clear(&s);
  str_add(&s, "{\"tokenizer_class\": \"Qwen2Tokenizer\", \"add_bos_token\": true, \"bos_token\": "
              "\"<|begin_of_text|>\", \"eos_token\": \"<|end_of_text|>\", "
              "\"added_tokens_decoder\": {");
  const tree_node *added = tree_get(t.root, "added_tokens");
  for (uint32_t i = 0; i < added->len; i++) {
    str_printf(&s, "%s\"%lld\": ", i ? ", " : "",
               (long long)tree_get(added->child[i], "id")->integer);
    json_put_tree(&w, added->child[i]);
  }
  str_add(&s, "}}");
  put(dir, "tokenizer_config.json", &s);
  str_free(&s);
  tree_free(&t);
  return dir;
}

/* The data of the recorded pt run, with other keys in place of its own. */
static hp_status open_with(const char *model, const char *text, loaded *l) {
  char dir[2][1024];
  str s = {0};
  snprintf(dir[0], sizeof dir[0], "%s", model);
  snprintf(dir[1], sizeof dir[1], "%s", test_data(GOLDEN "data"));
  str_printf(&s, "model_name_or_path: %s\nstage: pt\nfinetuning_type: full\ndataset_dir: %s\n%s",
             dir[0], dir[1], text);
  *l = (loaded){0};
  CHECK_OK(yaml_parse(s.at, s.len, "run.yaml", &l->source));
  CHECK_OK(train_config_parse(l->source.root, &l->config));
  CHECK_OK(tokenizer_load(dir[0], &l->tokens));
  CHECK_OK(pool_create(2, false, &l->threads));
  str_free(&s);
  HP_TRY(train_data_open(&l->config, l->tokens, dir[0], l->threads, &l->data));
  l->batch.most = train_data_largest(&l->data);
  l->batch.ids = mem_calloc((size_t)l->batch.most + 64, sizeof(int32_t));
  l->batch.labels = mem_calloc((size_t)l->batch.most + 64, sizeof(int32_t));
  CHECK(l->batch.ids && l->batch.labels);
  return HP_OK;
}

static hp_status open_data(const char *text, loaded *l) {
  return open_with(test_data(GOLDEN "model"), text, l);
}

static void close_data(loaded *l) {
  mem_free(l->batch.ids);
  mem_free(l->batch.labels);
  train_data_free(&l->data);
  pool_free(l->threads);
  tokenizer_free(l->tokens);
  train_config_free(&l->config);
  tree_free(&l->source);
}

static uint64_t fnv(uint64_t h, int64_t x) {
  for (int i = 0; i < 8; i++) h = (h ^ (uint64_t)(x >> (8 * i) & 0xff)) * 1099511628211u;
  return h;
}

static uint64_t hash_batch(uint64_t h, const train_batch *b) {
  h = fnv(fnv(h, b->B), b->T);
  for (int64_t i = 0; i < b->B * b->T; i++) h = fnv(fnv(h, b->ids[i]), b->labels[i]);
  return h;
}

/* All micro-batches of the run in order; returns their number. */
static int64_t hash_run(loaded *l, uint64_t *hash) {
  int64_t n = 0;
  *hash = 14695981039346656037u;
  for (int64_t s = 0; s < l->data.order.steps; s++) {
    sampler_step at = sampler_find(&l->data.order, s);
    for (int64_t k = 0; k < at.micros; k++, n++) {
      train_data_batch(&l->data, at.epoch, at.micro + k, 0, &l->batch);
      *hash = hash_batch(*hash, &l->batch);
    }
  }
  return n;
}

static int64_t hash_eval(loaded *l, uint64_t *hash) {
  const sample_set *s = &l->data.eval[0];
  int64_t n = train_data_eval_batches(&l->data, s);
  *hash = 14695981039346656037u;
  for (int64_t i = 0; i < n; i++) {
    train_data_eval_batch(&l->data, s, i, 0, &l->batch);
    *hash = hash_batch(*hash, &l->batch);
  }
  return n;
}

/* Number and hash of the micro-batches that entered LlamaFactory 0.9.5 with these keys: recorded in
 * Trainer.training_step and prediction_step. */
static const struct {
  bool split; /* tokenizer: vocab.json and merges.txt, with add_bos_token */
  const char *keys;
  int64_t micros;
  uint64_t hash;
  int64_t evals; /* batches of one evaluation */
  uint64_t eval_hash;
} recorded[] = {
#include "train_data_cases.h"
};

TEST(micro_batches_are_those_that_entered_llamafactory) {
  for (size_t i = 0; i < sizeof recorded / sizeof *recorded; i++) {
    loaded l;
    uint64_t hash;
    CHECK_OK(recorded[i].split ? open_with(split_tokenizer(), recorded[i].keys, &l)
                               : open_data(recorded[i].keys, &l));
    int64_t n = hash_run(&l, &hash);
    if (n != recorded[i].micros || hash != recorded[i].hash)
      test_fail(__FILE__, __LINE__, "%s: %lld micro-batches with hash %llx, want %lld with %llx",
                recorded[i].keys, (long long)n, (unsigned long long)hash,
                (long long)recorded[i].micros, (unsigned long long)recorded[i].hash);
    if (recorded[i].evals) {
      CHECK_EQ(hash_eval(&l, &hash), recorded[i].evals);
      CHECK(hash == recorded[i].eval_hash);
    }
    close_data(&l);
  }
}

TEST(the_recorded_batches_of_the_pt_run_come_out) {
  loaded l;
  tree t;
  CHECK_OK(json_load(test_data(GOLDEN "pt/batches.json"), 0, &t));
  CHECK_OK(
      open_data("dataset: corpus\ncutoff_len: 64\nper_device_train_batch_size: 4\nmax_steps: 50\n"
                "disable_shuffling: true\n",
                &l));
  CHECK_EQ(l.data.train.samples, 235);
  CHECK(t.root->len >= 16);
  for (uint32_t i = 0; i < t.root->len; i++) {
    const tree_node *want[] = {tree_get(t.root->child[i], "input_ids"),
                               tree_get(t.root->child[i], "labels")};
    train_data_batch(&l.data, 0, i, 0, &l.batch);
    CHECK_EQ(l.batch.B, want[0]->len);
    CHECK_EQ(l.batch.T, 64);
    int64_t labelled = 0;
    for (int64_t k = 0; k < l.batch.B * 64; k++) {
      CHECK_EQ(l.batch.ids[k], want[0]->child[k / 64]->child[k % 64]->integer);
      CHECK_EQ(l.batch.labels[k], want[1]->child[k / 64]->child[k % 64]->integer);
      labelled += l.batch.labels[k] != LABEL_NONE;
    }
    CHECK_EQ(l.batch.labelled, labelled);
    CHECK_EQ(l.batch.tokens, 256);
  }
  tree_free(&t);
  close_data(&l);
}

TEST(the_template_dump_of_packed_text_comes_out) {
  loaded l;
  tree t;
  CHECK_OK(json_load(test_data(GOLDEN "templates/pt-packed64.json"), 0, &t));
  CHECK_OK(open_data("dataset: corpus\ncutoff_len: 64\nmax_samples: 4\n", &l));
  const tree_node *samples = tree_get(t.root, "samples");
  CHECK_EQ(l.data.train.samples, samples->len);
  for (uint32_t i = 0; i < samples->len; i++) {
    const tree_node *ids = tree_get(samples->child[i], "input_ids");
    for (uint32_t k = 0; k < ids->len; k++)
      CHECK_EQ(l.data.train.ids[l.data.train.start[i] + k], ids->child[k]->integer);
  }
  str s = {0};
  CHECK_OK(train_data_print_example(&l.data, l.tokens, &s));
  CHECK(strstr(s.at, "training example:\ninput_ids:\n[54, 68, 269, "));
  CHECK(strstr(s.at, "inputs:\nWe build custom software to unleash your business.\n"));
  str_free(&s);
  tree_free(&t);
  close_data(&l);
}

TEST(a_batch_can_be_asked_for_again_and_wider) {
  loaded l;
  CHECK_OK(
      open_data("dataset: corpus\npacking: false\ncutoff_len: 50\nper_device_train_batch_size: 3\n"
                "num_train_epochs: 3\n",
                &l));
  uint64_t a[4], b[4];
  for (int64_t i = 0; i < 4; i++) {
    train_data_batch(&l.data, i % 3, i, 0, &l.batch);
    a[i] = hash_batch(1, &l.batch);
  }
  for (int64_t i = 3; i >= 0; i--) { /* in another order, epochs mixed */
    train_data_batch(&l.data, i % 3, i, 0, &l.batch);
    b[i] = hash_batch(1, &l.batch);
    CHECK(a[i] == b[i]);
  }
  int64_t labelled = l.batch.labelled, tokens = l.batch.tokens, width = l.batch.T;
  l.batch.most += 64;
  train_data_batch(&l.data, 0, 0, width + 10, &l.batch);
  CHECK_EQ(l.batch.T, width + 10);
  CHECK_EQ(l.batch.labelled, labelled);
  CHECK_EQ(l.batch.tokens, tokens);
  for (int64_t r = 0; r < l.batch.B; r++)
    for (int64_t k = width; k < width + 10; k++) {
      CHECK_EQ(l.batch.ids[r * l.batch.T + k], l.data.pad);
      CHECK_EQ(l.batch.labels[r * l.batch.T + k], LABEL_NONE);
    }
  uint64_t before = mem_count();
  train_data_batch(&l.data, 2, 5, 0, &l.batch);
  CHECK_EQ(mem_count(), before); /* nothing is allocated in a step */
  close_data(&l);
}

static bool work_has(const run_work *w, int64_t B, int64_t T, int64_t micros) {
  for (size_t i = 0; i < w->programs.len; i++) {
    const planned_program *p = &w->programs.at[i];
    if (p->shape.B == B && p->shape.T == T && p->micros == micros) return true;
  }
  return false;
}

/* The last batches are shorter, as is the last step of an epoch. */
TEST(the_work_of_a_run_has_every_shape_of_its_batches_once) {
  loaded l;
  run_work w, steps, evaluations;
  CHECK_OK(
      open_data("dataset: corpus\npacking: false\ncutoff_len: 50\nper_device_train_batch_size: 3\n"
                "gradient_accumulation_steps: 2\nnum_train_epochs: 3\nval_size: 7\ndo_eval: true\n"
                "per_device_eval_batch_size: 2\n",
                &l));
  CHECK_OK(run_work_find(&l.data, true, true, &w));
  CHECK_OK(run_work_find(&l.data, true, false, &steps));
  CHECK_OK(run_work_find(&l.data, false, true, &evaluations));
  CHECK(steps.programs.len && evaluations.programs.len);
  CHECK_EQ(steps.programs.len + evaluations.programs.len, w.programs.len);
  for (size_t i = 0; i < evaluations.programs.len; i++)
    CHECK_EQ(evaluations.programs.at[i].micros, 0);
  CHECK_EQ(w.programs.at[0].shape.T, l.data.train.longest);
  CHECK_EQ(w.programs.at[0].micros, 2);
  const sampler *o = &l.data.order;
  for (int64_t s = 0; s < o->steps; s++) {
    sampler_step at = sampler_find(o, s);
    for (int64_t k = 0; k < at.micros; k++) {
      train_data_batch(&l.data, at.epoch, at.micro + k, 0, &l.batch);
      CHECK(work_has(&w, l.batch.B, l.batch.T, at.micros));
    }
  }
  for (int64_t i = 0; i < train_data_eval_batches(&l.data, &l.data.eval[0]); i++) {
    train_data_eval_batch(&l.data, &l.data.eval[0], i, 0, &l.batch);
    CHECK(work_has(&w, l.batch.B, l.batch.T, 0));
  }
  for (size_t i = 0; i < w.programs.len; i++)
    for (size_t k = 0; k < i; k++)
      CHECK(memcmp(&w.programs.at[i], &w.programs.at[k], sizeof w.programs.at[i]) != 0);
  run_work_free(&w);
  run_work_free(&steps);
  run_work_free(&evaluations);
  close_data(&l);
}

TEST(evaluation_sets_are_split_off_named_or_joined) {
  loaded l;
  CHECK_OK(open_data("dataset: corpus\nval_size: 8\ncutoff_len: 64\ndo_eval: true\n", &l));
  CHECK_EQ(l.data.evals, 1);
  CHECK_STR(l.data.eval[0].name, "");
  close_data(&l);
  CHECK_OK(
      open_data("dataset: corpus\neval_dataset: corpus,alpaca\nmax_samples: 5\ncutoff_len: 64\n"
                "do_eval: true\n",
                &l));
  CHECK_EQ(l.data.evals, 1);
  int64_t joined = l.data.eval[0].samples;
  close_data(&l);
  CHECK_OK(open_data("dataset: corpus\neval_dataset: corpus,alpaca\neval_on_each_dataset: true\n"
                     "max_samples: 5\ncutoff_len: 64\ndo_eval: true\n",
                     &l));
  CHECK_EQ(l.data.evals, 2);
  CHECK_STR(l.data.eval[1].name, "alpaca");
  CHECK(l.data.eval[0].samples + l.data.eval[1].samples <= joined);
  close_data(&l);
}

TEST(data_that_cannot_be_trained_on_is_refused) {
  static const struct {
    const char *keys, *says;
  } row[] = {{"dataset: corpus\nmax_samples: 1\ncutoff_len: 4000\n",
              "too few for one block of 4000"},
             {"dataset: corpus\ntemplate: hy3\n", "template hy3 ends texts with"},
             {"dataset: corpus\ntemplate: lama3\n", "did you mean"},
             {"dataset: corpsu\n", "did you mean \"corpus\""},
             {"dataset: dpo\n", "sharegpt"},
             {"dataset: corpus\nval_size: 48\ndo_eval: true\n", "leaves none to train on"}};
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    loaded l;
    CHECK_FAILS(open_data(row[i].keys, &l), row[i].says);
    close_data(&l);
  }
  loaded l;
  CHECK_OK(open_data("dataset: corpus\ncutoff_len: 64\n", &l));
  CHECK_OK(train_data_check_vocab(&l.data, 512));
  CHECK_FAILS(train_data_check_vocab(&l.data, 100), "the model's embedding has 100 rows");
  close_data(&l);
}
