#include "test.h"

#include "base/io.h"
#include "base/json.h"
#include "base/round.h"
#include "base/thread.h"
#include "base/yaml.h"
#include "report/progress.h"
#include "train/run_files.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

/* A run: its file, its arithmetic, its log. */
typedef struct {
  tree source;
  train_config config;
  sampler order;
  train_flow flow;
  run_log log;
} run;

/* `text`: keys besides the needed ones; output_dir: a folder of the test. */
static void begin(run *r, const char *text, int64_t samples) {
  str s = {0};
  str_printf(&s,
             "model_name_or_path: models/tiny\nstage: pt\nfinetuning_type: full\ndataset: corpus\n"
             "output_dir: %s/run\n%s",
             test_dir(), text);
  *r = (run){0};
  CHECK_OK(yaml_parse(s.at, s.len, "run.yaml", &r->source));
  CHECK_OK(train_config_parse(r->source.root, &r->config));
  const train_config *c = &r->config;
  sampler_spec spec = {samples,
                       samples,
                       c->per_device_train_batch_size,
                       c->gradient_accumulation_steps,
                       c->num_train_epochs,
                       c->max_steps,
                       42,
                       true};
  CHECK_OK(sampler_create(&spec, &r->order));
  r->flow = train_flow_create(c, r->order.steps);
  run_log_create(c, &r->flow, &r->order, &r->log);
  str_free(&s);
}

static void end(run *r) {
  run_log_free(&r->log);
  train_config_free(&r->config);
  tree_free(&r->source);
}

static char *slurp(const char *dir, const char *name) {
  static char *text;
  char path[1024];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  mem_free(text);
  size_t n;
  CHECK_OK(file_read(path, 0, &text, &n));
  return text;
}

static double nth(const run_log *r, size_t i, const char *key) {
  return run_entry_number(&r->entry.at[i], key);
}

/* --- the recorded run ------------------------------------------------------------------------- */

#define PT "golden/llamafactory/pt/"

/* Feeds the losses and norms of the recorded run and compares everything that follows from them. */
TEST(the_history_of_the_recorded_run_comes_out_to_the_last_digit) {
  run r;
  tree golden;
  CHECK_OK(json_load(test_data(PT "trainer_state.json"), 0, &golden));
  const tree_node *history = tree_get(golden.root, "log_history");
  begin(&r,
        "max_steps: 50\nper_device_train_batch_size: 4\nlogging_steps: 1\nlearning_rate: 1e-3\n"
        "lr_scheduler_type: cosine\nwarmup_ratio: 0.1\n",
        235);
  schedule s;
  CHECK_OK(schedule_create(r.config.is.schedule, r.config.learning_rate,
                           schedule_warmup_steps(r.config.is.warmup, 50), 50, NULL, 0, &s));
  for (int64_t i = 0; i < 50; i++) {
    double loss, norm;
    run_entry e;
    CHECK_OK(tree_need_double(history->child[i], "loss", &loss));
    CHECK_OK(tree_need_double(history->child[i], "grad_norm", &norm));
    sampler_step at = sampler_find(&r.order, i);
    run_log_step(&r.log, i + 1, at.epoch_after, (float)loss, 6.0 * 4 * 64 * 69360, 4 * 64);
    CHECK(train_flow_after(&r.flow, i + 1, &at, false).log);
    CHECK_OK(run_log_logged(&r.log, norm, schedule_lr(&s, i), &e));
    for (uint32_t k = 0; k < history->child[i]->len; k++) {
      double want, got;
      CHECK_OK(tree_as_double(history->child[i]->child[k], &want));
      got = run_entry_number(&e, history->child[i]->child[k]->key);
      if (got != want)
        test_fail(__FILE__, __LINE__, "step %lld: %s is %.17g, want %.17g", (long long)i + 1,
                  history->child[i]->child[k]->key, got, want);
    }
    CHECK_EQ(e.n, history->child[i]->len);
  }
  run_entry last;
  CHECK_OK(run_log_finished(&r.log, &last));
  double want;
  CHECK_OK(tree_need_double(history->child[50], "train_loss", &want));
  CHECK(run_entry_number(&last, "train_loss") == want);
  CHECK_OK(tree_need_double(history->child[50], "total_flos", &want));
  CHECK(run_entry_number(&last, "total_flos") == want);
  schedule_free(&s);
  tree_free(&golden);
  end(&r);
}

TEST(a_recorded_trainer_state_reads_and_prints_as_the_same_bytes) {
  static const struct {
    const char *name, *text;
    int64_t samples;
  } row[] = {{"pt", "max_steps: 50\nper_device_train_batch_size: 4\nlogging_steps: 1\n", 235},
             {"sft-llama3",
              "per_device_train_batch_size: 2\ngradient_accumulation_steps: 2\n"
              "num_train_epochs: 2\nlogging_steps: 1\n",
              90},
             {"sft-qwen-shuffled",
              "per_device_train_batch_size: 3\nnum_train_epochs: 2\n"
              "logging_steps: 1\neval_strategy: steps\neval_steps: 10\n"
              "eval_dataset: corpus\n",
              40}};
  for (int i = 0; i < 3; i++) {
    char path[256];
    run r;
    tree t;
    char *want;
    size_t n;
    str got = {0};
    snprintf(path, sizeof path, "golden/llamafactory/%s/trainer_state.json", row[i].name);
    begin(&r, row[i].text, row[i].samples);
    CHECK_OK(json_load(test_data(path), 0, &t));
    CHECK_OK(run_log_parse_state(&r.log, t.root));
    tree_free(&t);
    run_log_print_state(&r.log, &got);
    CHECK_OK(file_read(test_data(path), 0, &want, &n));
    CHECK_STR(got.at, want);
    mem_free(want);
    str_free(&got);
    end(&r);
  }
}

TEST(results_and_console_lines_are_those_of_the_recorded_run) {
  run r;
  tree t;
  char *want;
  size_t n;
  str s = {0};
  begin(&r, "max_steps: 50\nper_device_train_batch_size: 4\nlogging_steps: 1\n", 235);
  CHECK_OK(json_load(test_data(PT "trainer_state.json"), 0, &t));
  CHECK_OK(run_log_parse_state(&r.log, t.root));
  tree_free(&t);
  run_log_print_results(&r.log.entry.at[50], 1, NULL, &s);
  CHECK_OK(file_read(test_data(PT "all_results.json"), 0, &want, &n));
  CHECK_STR(s.at, want);
  mem_free(want);
  str_clear(&s);
  run_log_print_metrics(&r.log.entry.at[50], "train", &s);
  CHECK_OK(file_read(test_data(PT "console.txt"), 0, &want, &n));
  CHECK(strstr(want, s.at));
  /* the order on the console is that of the making, not of the file */
  run_entry e = {0};
  static const char *const key[] = {"loss", "grad_norm", "learning_rate", "epoch", "step"};
  for (size_t i = 0; i < 50; i++) {
    e.n = 0;
    for (int k = 0; k < 5; k++) run_entry_add(&e, key[k], nth(&r.log, i, key[k]));
    str_clear(&s);
    run_log_print_console(&e, &s);
    if (!strstr(want, s.at)) test_fail(__FILE__, __LINE__, "not on the recorded console: %s", s.at);
  }
  mem_free(want);
  str_free(&s);
  end(&r);
}

/* --- our own ---------------------------------------------------------------------------------- */

TEST(a_line_of_the_log_has_llamafactorys_keys_in_order) {
  run r;
  run_entry e;
  str s = {0};
  begin(&r, "max_steps: 200\nlogging_steps: 2\ninclude_num_input_tokens_seen: true\n", 100);
  run_log_step(&r.log, 1, 0.5, 4, 1e9, 1000);
  run_log_step(&r.log, 2, 1, 2, 1e9, 1000);
  CHECK_OK(run_log_logged(&r.log, 1.5, 1e-5, &e));
  run_log_print_line(&r.log, &e, r.log.start_s + 100000.001, &s);
  CHECK_STR(s.at, "{\"current_steps\": 2, \"total_steps\": 200, \"loss\": 3.0, \"lr\": 1e-05, "
                  "\"epoch\": 1.0, \"percentage\": 1.0, \"elapsed_time\": \"1 day, 3:46:40\", "
                  "\"remaining_time\": \"114 days, 14:00:00\", \"throughput\": 0.02, "
                  "\"total_tokens\": 2000}\n");
  str_clear(&s);
  CHECK(run_entry_get(&e, "num_input_tokens_seen") && run_entry_get(&e, "train_runtime"));
  run_log_step(&r.log, 3, 1.5, 5, 1e9, 0);
  run_log_step(&r.log, 4, 2, 5, 1e9, 0);
  CHECK_OK(run_log_logged(&r.log, NAN, 0, &e));
  run_log_print_console(&e, &s);
  CHECK(strstr(s.at, "{'loss': '5', 'learning_rate': '0', 'epoch': '2', 'num_input_tokens_seen': "
                     "2000, 'train_runtime': '") == s.at);
  str_free(&s);
  end(&r);
}

TEST(logged_losses_go_on_through_a_checkpoint_in_the_middle_of_an_interval) {
  run a, b;
  run_entry e, f;
  str state = {0}, sums = {0};
  tree t;
  const char *text = "max_steps: 6\nlogging_steps: 4\n";
  begin(&a, text, 100);
  for (int i = 1; i <= 3; i++) run_log_step(&a.log, i, i / 10.0, 0.1f * (float)i, 1, 7);
  run_log_print_state(&a.log, &state);
  run_log_print_sums(&a.log, &sums);
  begin(&b, text, 100);
  CHECK_OK(json_parse(state.at, state.len, "state", &t));
  CHECK_OK(run_log_parse_state(&b.log, t.root));
  CHECK_OK(run_log_parse_sums(&b.log, sums.at));
  tree_free(&t);
  for (int i = 4; i <= 6; i++) {
    run_log_step(&a.log, i, i / 10.0, 0.1f * (float)i, 1, 7);
    run_log_step(&b.log, i, i / 10.0, 0.1f * (float)i, 1, 7);
    if (i != 4) continue;
    CHECK_OK(run_log_logged(&a.log, 1, 1, &e));
    CHECK_OK(run_log_logged(&b.log, 1, 1, &f));
    CHECK(run_entry_number(&e, "loss") == run_entry_number(&f, "loss"));
    CHECK_NEAR(run_entry_number(&e, "loss"), 0.25, 1e-7);
  }
  CHECK_OK(run_log_finished(&a.log, &e));
  CHECK_OK(run_log_finished(&b.log, &f));
  CHECK(run_entry_number(&e, "train_loss") == run_entry_number(&f, "train_loss"));
  CHECK_NEAR(run_entry_number(&e, "train_loss"), 0.35, 1e-7);
  static const char *const bad[] = {"", "1 2 3", "1 2 3 4 5", "1 2 9 0", "1 2 -1 0", "x 2 3 4"};
  for (int i = 0; i < 6; i++) CHECK_FAILS(run_log_parse_sums(&b.log, bad[i]), "damaged");
  str_free(&state);
  str_free(&sums);
  end(&a);
  end(&b);
}

TEST(a_state_that_does_not_fit_the_run_is_refused) {
  static const struct {
    const char *text, *says;
  } row[] = {{"[]", "expected"},
             {"{\"epoch\": 1}", "global_step"},
             {"{\"global_step\": 51, \"epoch\": 1, \"log_history\": []}", "this run has 50 steps"},
             {"{\"global_step\": -1, \"epoch\": 1, \"log_history\": []}", "this run has 50 steps"},
             {"{\"global_step\": 1, \"epoch\": 1}", "log_history"},
             {"{\"global_step\": 1, \"epoch\": 1, \"log_history\": [{\"loss\": \"x\"}]}", "loss"},
             {"{\"global_step\": 1, \"epoch\": 1, \"log_history\": [{\"loss\": 1}]}",
              "without step"}};
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    run r;
    tree t;
    begin(&r, "max_steps: 50\n", 100);
    CHECK_OK(json_parse(row[i].text, strlen(row[i].text), "state.json", &t));
    CHECK_FAILS(run_log_parse_state(&r.log, t.root), row[i].says);
    tree_free(&t);
    end(&r);
  }
}

TEST(the_best_evaluation_is_remembered) {
  run r;
  run_entry e;
  bool best;
  str s = {0};
  begin(&r,
        "max_steps: 50\nval_size: 5\neval_strategy: steps\neval_steps: 1\n"
        "metric_for_best_model: loss\n",
        100);
  static const double loss[] = {3, 2, 2, 4};
  for (int i = 1; i <= 4; i++) {
    run_log_step(&r.log, i, i / 10.0, 1, 1, 1);
    CHECK_OK(run_log_evaluated(&r.log, "",
                               &(run_evaluation){.loss = loss[i - 1],
                                                 .seconds = 0.5,
                                                 .samples = 20,
                                                 .batches = 5},
                               &e, &best));
    CHECK_EQ(best, i <= 2);
    if (i == 2) run_log_saved(&r.log);
  }
  CHECK(run_entry_number(&e, "eval_samples_per_second") == 40);
  CHECK(run_entry_number(&e, "eval_steps_per_second") == 10);
  run_log_print_state(&r.log, &s);
  CHECK(
      strstr(s.at,
             "\"best_global_step\": 2,\n  \"best_metric\": 2.0,\n  \"best_model_checkpoint\": \""));
  CHECK(strstr(s.at, "/run/checkpoint-2\""));
  run_entry results[2];
  CHECK_OK(run_log_eval_results(&r.log, &e, &results[0]));
  CHECK_NEAR(run_entry_number(&results[0], "eval_perplexity"), exp(4), 1e-9);
  CHECK(!run_entry_get(&results[0], "step"));
  CHECK_OK(
      run_log_evaluated(&r.log, "wiki",
                        &(run_evaluation){.loss = 1, .seconds = 0.5, .samples = 20, .batches = 5},
                        &e, &best));
  CHECK(run_entry_number(&e, "eval_wiki_loss") == 1);
  CHECK_OK(run_log_eval_results(&r.log, &e, &results[1]));
  str_clear(&s);
  run_log_print_results(results, 2, NULL, &s);
  CHECK(strstr(s.at, "\"epoch\": 0.4,\n    \"eval_loss\": 4.0,\n    \"eval_perplexity\": 54.59"));
  CHECK(strstr(s.at, "\"eval_wiki_loss\": 1.0,\n    \"eval_wiki_perplexity\": 2.718281828459045,"));
  str_free(&s);
  end(&r);
}

TEST(steps_log_evaluate_and_save_when_transformers_does) {
  run r;
  begin(&r,
        "max_steps: 10\nlogging_steps: 4\nlogging_first_step: true\nsave_steps: 0.3\n"
        "val_size: 5\neval_strategy: steps\neval_steps: 4\neval_delay: 5\n",
        12);
  CHECK_EQ(r.flow.save_steps, 3);
  str s = {0};
  for (int64_t i = 1; i <= 10; i++) {
    sampler_step at = sampler_find(&r.order, i - 1);
    train_actions a = train_flow_after(&r.flow, i, &at, i % r.order.steps_per_epoch == 0);
    str_printf(&s, "%s%s%s%s ", a.log ? "l" : "", a.evaluate ? "e" : "", a.save ? "s" : "",
               a.stop ? "!" : ".");
  }
  CHECK_STR(s.at, "l. . s. l. . s. . le. s. es! ");
  end(&r);
  str_clear(&s);
  begin(&r,
        "num_train_epochs: 2\nlogging_strategy: epoch\nsave_strategy: epoch\nval_size: 5\n"
        "eval_strategy: epoch\nper_device_train_batch_size: 5\n",
        12);
  for (int64_t i = 1; i <= 6; i++) {
    sampler_step at = sampler_find(&r.order, i - 1);
    train_actions a = train_flow_after(&r.flow, i, &at, i % r.order.steps_per_epoch == 0);
    str_printf(&s, "%s%s%s%s ", a.log ? "l" : "", a.evaluate ? "e" : "", a.save ? "s" : "",
               a.stop ? "!" : ".");
  }
  CHECK_STR(s.at, ". . les. . . les! ");
  end(&r);
  str_free(&s);
}

TEST(an_evaluation_of_answers_has_their_similarity_and_no_loss) {
  run r;
  run_entry e;
  bool best = true;
  str s = {0};
  begin(&r, "max_steps: 4\nval_size: 5\neval_strategy: steps\neval_steps: 1\n", 100);
  const run_evaluation x = {.seconds = 0.5,
                            .samples = 20,
                            .batches = 5,
                            .answers = true,
                            .similarity = {1.5, 0, 1.25, 3.0625}};
  run_log_step(&r.log, 1, 0.5, 1, 1, 1);
  CHECK_OK(run_log_evaluated(&r.log, "", &x, &e, &best));
  CHECK(!best && !run_entry_get(&e, "eval_loss"));
  run_log_print_console(&e, &s);
  CHECK_STR(s.at, "{'eval_rouge-1': '1.5', 'eval_rouge-2': '0', 'eval_rouge-l': '1.25', "
                  "'eval_bleu-4': '3.062', 'eval_runtime': '0.5', 'eval_samples_per_second': '40', "
                  "'eval_steps_per_second': '10', 'epoch': '0.5'}");
  str_clear(&s);
  run_log_print_line(&r.log, &e, r.log.start_s, &s);
  CHECK(strstr(s.at, "\"eval_rouge-1\": 1.5, \"eval_rouge-2\": 0.0, \"eval_rouge-l\": 1.25, "
                     "\"eval_bleu-4\": 3.0625, \"epoch\": 0.5"));
  CHECK_OK(run_log_evaluated(&r.log, "wiki", &x, &e, &best));
  CHECK(run_entry_number(&e, "eval_wiki_bleu-4") == 3.0625);
  CHECK_EQ(r.log.entry.len, 2);
  CHECK_OK(run_log_predicted(&r.log, &x, &e));
  CHECK(run_entry_number(&e, "predict_rouge-l") == 1.25 && !run_entry_get(&e, "epoch"));
  CHECK_EQ(r.log.entry.len, 2);
  str_free(&s);
  end(&r);
}

TEST(the_folder_of_a_run_has_its_files_and_a_resumed_log_goes_on) {
  run r;
  run_files f;
  run_entry e;
  str shown = {0};
  bool best;
  begin(&r, "max_steps: 4\nlogging_steps: 1\nval_size: 5\neval_strategy: steps\neval_steps: 2\n",
        100);
  CHECK_OK(run_files_open(&r.log, &f));
  for (int i = 1; i <= 4; i++) {
    run_log_step(&r.log, i, i / 4.0, 5 - (float)i, 10, 3);
    CHECK_OK(run_log_logged(&r.log, 1, 1e-4, &e));
    CHECK_OK(run_files_log(&f, &e, &shown));
    if (i % 2) continue;
    CHECK_OK(run_log_evaluated(&r.log, "",
                               &(run_evaluation){.loss = 6 - i,
                                                 .seconds = 0.25,
                                                 .samples = 5,
                                                 .batches = 1},
                               &e, &best));
    CHECK_OK(run_files_log(&f, &e, &shown));
    CHECK_OK(run_files_all_results(&f, &e, 1));
    CHECK_OK(run_files_results(&f, &e, 1, "eval"));
  }
  CHECK_OK(run_log_finished(&r.log, &e));
  CHECK_OK(run_files_log(&f, &e, &shown));
  CHECK_OK(run_files_all_results(&f, &e, 1));
  CHECK_OK(run_files_results(&f, &e, 1, "train"));
  CHECK_OK(run_files_state(&r.log, f.dir));
  CHECK_OK(run_files_plots(&f, &shown));
  CHECK_OK(run_files_card(&f));
  CHECK(strstr(shown.at,
               "{'eval_loss': '2', 'eval_runtime': '0.25', 'eval_samples_per_second': '20', "));
  const char *all = slurp(f.dir, "all_results.json");
  CHECK(strstr(all, "\"eval_loss\": 2.0") && strstr(all, "\"train_loss\": 2.5"));
  CHECK(!strstr(slurp(f.dir, "train_results.json"), "eval_loss"));
  CHECK(!memcmp(slurp(f.dir, "training_loss.png"), "\x89PNG", 4));
  CHECK(strstr(slurp(f.dir, "training_eval_loss.svg"), "<svg"));
  const char *card = slurp(f.dir, "README.md");
  CHECK(strstr(card, "base_model: models/tiny\n"));
  CHECK(strstr(card, "fine-tuned version of [models/tiny](models/tiny) on the corpus dataset.\nIt "
                     "achieves the following results on the evaluation set:\n- Loss: 2.0\n"));
  CHECK(strstr(card, "| Training Loss | Epoch | Step | Validation Loss |\n"
                     "|:-------------:|:-----:|:----:|:---------------:|\n"
                     "| 3.0           | 0.5   | 2    | 4.0             |\n"
                     "| 1.0           | 1.0   | 4    | 2.0             |\n"));
  run_files_close(&f);

  /* killed while it wrote a line after step 2: the resume goes on from step 2 */
  char path[1024];
  snprintf(path, sizeof path, "%s", r.config.output_dir);
  FILE *log = fopen((strcat(path, "/trainer_log.jsonl"), path), "a");
  fputs("not json\n{\"current_steps\": 4, \"tot", log);
  fclose(log);
  r.log.step = 2;
  CHECK_OK(run_files_open(&r.log, &f));
  run_log_step(&r.log, 3, 0.75, 9, 10, 3);
  r.log.logged_step = 2;
  CHECK_OK(run_log_logged(&r.log, 1, 1e-4, &e));
  CHECK_OK(run_files_log(&f, &e, &shown));
  const char *lines = slurp(f.dir, "trainer_log.jsonl");
  int n = 0;
  for (const char *p = lines; (p = strchr(p, '\n')); p++) n++;
  CHECK_EQ(n, 4); /* 1, 2, the evaluation at 2, 3 */
  CHECK(strstr(lines, "\"loss\": 9.0") && !strstr(lines, "not json"));
  run_files_close(&f);
  r.log.step = 0; /* from the start: a new log */
  CHECK_OK(run_files_open(&r.log, &f));
  CHECK_STR(slurp(f.dir, "trainer_log.jsonl"), "");
  run_files_close(&f);
  str_free(&shown);
  end(&r);
}

TEST(an_output_folder_that_cannot_be_made_is_named) {
  run r;
  run_files f;
  begin(&r, "max_steps: 4\n", 100);
  CHECK_OK(file_write(r.config.output_dir, "in the way", 10));
  CHECK_FAILS(run_files_open(&r.log, &f), "/run");
  end(&r);
}

/* Expected bytes: made in Python from the format's description (length, masked CRC32C, Event). */
TEST(tensorboard_records_are_framed_and_checked) {
  tensorboard *t;
  char dir[600], name[1200] = "";
  snprintf(dir, sizeof dir, "%s/runs", test_dir());
  CHECK_OK(tensorboard_create(dir, &t));
  CHECK_EQ(tensorboard_crc32c(t, "123456789", 9), 0xe3069283u); /* the published check value */
  CHECK_OK(tensorboard_add(t, "train/loss", 2.5, 7, 1.5));
  tensorboard_free(t);
  DIR *d = opendir(dir);
  for (struct dirent *e; (e = readdir(d));)
    if (!strncmp(e->d_name, "events.out.tfevents.", 20))
      snprintf(name, sizeof name, "%s/%s", dir, e->d_name);
  closedir(d);
  char *bytes;
  size_t n;
  CHECK_OK(file_read(name, 0, &bytes, &n));
  static const unsigned char want[] = {0x20, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x29, 0xed,
                                       0xa9, 0x50, 0x09, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xf8,
                                       0x3f, 0x10, 0x07, 0x2a, 0x13, 0x0a, 0x11, 0x0a, 0x0a, 0x74,
                                       0x72, 0x61, 0x69, 0x6e, 0x2f, 0x6c, 0x6f, 0x73, 0x73, 0x15,
                                       0x00, 0x00, 0x20, 0x40, 0x25, 0x08, 0xfb, 0x34};
  CHECK(n > sizeof want);
  CHECK(!memcmp(bytes + n - sizeof want, want, sizeof want));
  CHECK(!memcmp(bytes + 12 + 9,
                "\x1a\x0d"
                "brain.Event:2",
                15));
  mem_free(bytes);
}

TEST(the_progress_bar_has_the_shape_of_tqdm) {
  progress p = progress_create(620, 0, 1e12, true);
  str s = {0};
  p.done = 10;
  p.step_s = 4.95;
  progress_print(&p, p.start_s + 52.5, 0.83, 60, &s);
  CHECK_STR(s.at, "  2%|▏         | 10/620 [00:52<50:19,  4.95s/it, loss=0.83]");
  str_clear(&s);
  p.step_s = 0.25;
  p.tokens_per_s = 12345;
  p.flops_per_s = 4.1e11;
  p.done = 310;
  progress_print(&p, p.start_s + 4000.5, 2, 90, &s);
  CHECK_STR(s.at,
            " 50%|███████▌       | 310/620 [1:06:40<01:17,  4.00it/s, loss=2, 12.3 k tok/s, MFU "
            "41.0%]");
  str_clear(&s);
  p.done = 620;
  progress_print(&p, p.start_s + 4000, NAN, 20, &s);
  CHECK(!strncmp(s.at, "100%|████| 620/620", 20));
  str_clear(&s);
  progress q = progress_create(5, 0, 0, true);
  progress_print(&q, q.start_s, NAN, 40, &s);
  CHECK(strstr(s.at, "0/5 [00:00<?, ?it/s]"));
  str_free(&s);
}

TEST(durations_and_roundings_are_pythons) {
  static const struct {
    double s;
    const char *want;
  } row[] = {{0, "0:00:00"},
             {59.9, "0:00:59"},
             {3661, "1:01:01"},
             {86400, "1 day, 0:00:00"},
             {200000, "2 days, 7:33:20"},
             {-5, "0:00:00"}};
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    str s = {0};
    run_print_duration(row[i].s, &s);
    CHECK_STR(s.at, row[i].want);
    str_free(&s);
  }
  CHECK(round_decimal(2.675, 2) == 2.67 && round_decimal(0.5, 0) == 0 &&
        round_decimal(1.5, 0) == 2);
  CHECK(round_decimal(35.714285714285715, 2) == 35.71 && round_decimal(1e300, 4) == 1e300);
}
