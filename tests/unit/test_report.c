#include "test.h"

#include "base/io.h"
#include "base/json.h"
#include "base/yaml.h"
#include "train/report_settings.h"

#include <math.h>
#include <stdlib.h>

enum { STEPS = 400, PLACES = 500 };

typedef struct {
  report r;
  run_entry entry[STEPS + 20];
  double step[STEPS], step_s[STEPS], tokens_per_s[STEPS], bytes[4][PLACES];
  report_layer layer[4];
  tree source;
  train_config config;
  arena names; /* of the settings' texts */
} sample;

static const report_fact head[] = {{"model", "models/tiny-shakespeare",
                                    "llama, 15.2 M parameters, 6 layers"},
                                   {"data", "tinyshakespeare: 2,183 blocks of 256 tokens", NULL},
                                   {"machine", "AMD EPYC 9654, 16 cores, AVX-512",
                                    "f32, 16 threads"}};
static const report_fact card[] = {{"MFU", "61 %", "of 600 GFLOP/s"},
                                   {"peak memory", "611 MiB", "planned 611 MiB"}};
static const hp_op_time op[] =
    {{"einsum dW", "768x2048x1024 f32", "model.layers.*.mlp", "", "flops", false, 24, 0.402, 0.302,
      0.1, 0.4, 1.8e11, 2.4e9},
     {"attention", "B4 T256", "model.layers.*.self_attn", "", "flops", false, 12, 0.084, 0.042,
      0.042, 0.08, 1e10, 8e8},
     {"between instructions", "", "", "", "wait", false, 1, 0.01, 0, 0.01, 0, 0, 0},
     {"all_reduce dp", "", "model", "", "link", true, 9, 0.3, 0.1, 0, 0.1, 0, 1e8},
     {"loop adamw", "", "model", "<jit>", "bytes", false, 56, 0.016, 0.017, 0, 0.02, 4e8, 3e9}};
static const report_tier tier[] = {{"host", 640679936, 640679936, 1073741824}};
static const report_file file[] = {{"checkpoint-200", 200, 182000000, NULL},
                                   {"checkpoint-400", 400, 182000000, "best"},
                                   {"trainer_log.jsonl", -1, 81234, NULL},
                                   {"training_loss.png", -1, 40123, NULL}};

static void add_steps(sample *s) {
  for (int i = 0; i < STEPS; i++) {
    run_entry e = {0};
    double x = i + 1, lr = 1e-3 * (i < 40 ? i / 40.0 : 0.5 * (1 + cos(M_PI * (i - 40) / 360.0)));
    run_entry_add(&e, "loss", 1.6 + 2.7 * exp(-x / 70) + 0.05 * sin(x * 1.3) + 0.04 * cos(x * 7.7));
    run_entry_add(&e, "grad_norm", 0.6 + 2 * exp(-x / 30) + 0.2 * fabs(sin(x * 2.1)));
    run_entry_add(&e, "learning_rate", lr);
    run_entry_add(&e, "epoch", x / 137);
    run_entry_add_int(&e, "step", i + 1);
    s->entry[s->r.entries++] = e;
    s->step[i] = x;
    s->step_s[i] = 0.33 + 0.01 * sin(x * 3) + (i == 0) * 0.4;
    s->tokens_per_s[i] = 4096 / s->step_s[i];
    if ((i + 1) % 50) continue;
    e = (run_entry){0};
    run_entry_add(&e, "eval_loss", 1.75 + 2.5 * exp(-x / 75));
    run_entry_add(&e, "epoch", x / 137);
    run_entry_add_int(&e, "step", i + 1);
    s->entry[s->r.entries++] = e;
  }
}

static void add_memory(sample *s) {
  static const char *const name[] = {"parameters", "optimizer", "gradients", "activations"};
  for (int i = 0; i < PLACES; i++) {
    double x = i / (double)PLACES, up = x < 0.4 ? x / 0.4 : x < 0.9 ? (0.9 - x) / 0.5 : 0;
    s->bytes[0][i] = 60.8e6;
    s->bytes[1][i] = 121.6e6;
    s->bytes[2][i] = x < 0.4 ? 0 : 60.8e6 * (x < 0.9 ? (x - 0.4) / 0.5 : 1);
    s->bytes[3][i] = 360e6 * up + 20e6 * (i % 25 < 4);
  }
  for (int k = 0; k < 4; k++) s->layer[k] = (report_layer){name[k], s->bytes[k]};
}

static sample *make(void) {
  static const char text[] = "model_name_or_path: models/tiny-shakespeare\nstage: pt\n"
                             "finetuning_type: full\ndataset: tinyshakespeare\ncutoff_len: 256\n"
                             "learning_rate: 1e-3\nlr_scheduler_type: cosine\nwarmup_ratio: 0.1\n"
                             "run_name: \"<b>&\"\n";
  sample *s = mem_calloc(1, sizeof *s);
  CHECK(s);
  CHECK_OK(yaml_parse(text, sizeof text - 1, "run.yaml", &s->source));
  CHECK_OK(train_config_parse(s->source.root, &s->config));
  s->r = (report){.title = "saves/tiny & <co>",
                  .status = "finished",
                  .finished = true,
                  .head = head,
                  .heads = 3,
                  .card = card,
                  .cards = 2,
                  .entry = s->entry,
                  .step = s->step,
                  .step_s = s->step_s,
                  .tokens_per_s = s->tokens_per_s,
                  .steps = STEPS,
                  .op = op,
                  .ops = 5,
                  .tier = tier,
                  .tiers = 1,
                  .layer = s->layer,
                  .layers = 4,
                  .places = PLACES,
                  .memory_limit = 1073741824.0,
                  .memory_planned = 640679936.0,
                  .memory_note = "whole model: <4 devices",
                  .timeline = "<svg class=\"hx\"></svg>",
                  .mesh = "",
                  .file = file,
                  .files = 4};
  CHECK_OK(report_settings_list(&s->config, &s->names, &s->r.setting, &s->r.settings));
  add_steps(s);
  add_memory(s);
  return s;
}

static void end(sample *s) {
  train_config_free(&s->config);
  arena_free(&s->names);
  tree_free(&s->source);
  mem_free(s);
}

static int count(const char *s, const char *part) {
  int n = 0;
  for (; (s = strstr(s, part)); s++) n++;
  return n;
}

TEST(a_report_is_one_page_with_nothing_outside_it) {
  sample *s = make();
  str page = {0};
  report_print(&s->r, &page);
  CHECK_OK(str_status(&page));
  const char *dump = getenv("REPORT_OUT"); /* to look at it */
  if (dump) CHECK_OK(file_write(dump, page.at, page.len));
  CHECK(!strstr(page.at, "http://") ||
        count(page.at, "http://") == count(page.at, "http://www.w3.org/2000/svg"));
  CHECK(!strstr(page.at, "https://") && !strstr(page.at, "<link") && !strstr(page.at, "<img"));
  CHECK(strstr(page.at, "saves/tiny &amp; &lt;co&gt;") && !strstr(page.at, "<co>"));
  CHECK(strstr(page.at, "&lt;b&gt;&amp;"));
  CHECK_EQ(count(page.at, "data-frame="), 5);
  CHECK(strstr(page.at, "prefers-color-scheme:dark"));
  CHECK(strstr(page.at,
               "takes 512.0 ms; at the limits of the machine it would take 361.0 ms (71 %)"));
  CHECK(strstr(page.at, "<td class=\"own\">einsum dW <small>768x2048x1024 f32</small></td>"
                        "<td>100.0 ms</td><td>402.0 ms</td><td>78.5 %</td><td>75 % of flops</td>"));
  CHECK(strstr(page.at, "<i style=\"width:75.12%\"></i><i class=\"gap\" style=\"width:24.88%\">"));
  CHECK(strstr(page.at, "<td>300.0 ms</td><td>overlapped</td>") && strstr(page.at, "&lt;jit&gt;"));
  CHECK(strstr(page.at, "<td class=\"text where\">model.<wbr>layers.<wbr>*.<wbr>mlp</td>"));
  CHECK(strstr(page.at, "td.where{min-width:"));
  CHECK(strstr(page.at, " of 611 MiB planned:</p>") && strstr(page.at, "whole model: &lt;4"));
  CHECK(strstr(page.at, "<h2>Communication and computation</h2>"));
  CHECK(!strstr(page.at, "<h2>Devices</h2>")); /* no picture of one device */
  CHECK(strstr(page.at, ">planned</text>"));
  CHECK(strstr(page.at, "tokens per second</span><b>12.4 k</b>"));
  CHECK(strstr(page.at, "checkpoint-400") && strstr(page.at, ">best<"));
  CHECK(!strstr(page.at, "nan") && !strstr(page.at, "inf\""));
  CHECK_EQ(count(page.at, "<svg"), count(page.at, "</svg>"));
  CHECK_EQ(count(page.at, "<div"), count(page.at, "</div>"));
  CHECK_EQ(count(page.at, "<table"), count(page.at, "</table>"));
  CHECK(page.len < 400000);
  str_free(&page);
  end(s);
}

/* Copies of one direction and tier are one line; the picture takes the place of the chart. */
TEST(copies_between_tiers_are_told_beside_the_limit_of_their_link) {
  static hp_op_time copies[] = {{.kind = "fetch from host", .limit = "link", .overlapped = true},
                                {.kind = "einsum dW", .limit = "flops"},
                                {.kind = "fetch from host", .limit = "link", .overlapped = true}};
  for (int i = 0; i < 3; i += 2) {
    copies[i].count = 4;
    copies[i].bytes = 2e9;
    copies[i].seconds = 0.5;
    copies[i].limit_s = 0.4;
  }
  report r = {.title = "copies", .status = "finished", .op = copies, .ops = 3};
  r.memory_picture = "<svg class=\"hx\"></svg>";
  str page = {0};
  report_print(&r, &page);
  CHECK_OK(str_status(&page));
  CHECK_EQ(count(page.at, "<tr><td>fetch from host</td>"), 1);
  CHECK(strstr(page.at, "<td>fetch from host</td><td>8</td><td>3.73 GiB</td><td>1.000 s</td>"
                        "<td>4.0 GB/s</td><td>5.0 GB/s</td><td>80 %</td>"));
  CHECK(strstr(page.at, "<svg class=\"hx\"></svg>"));
  str_free(&page);
}

TEST(the_numbers_of_the_cursor_are_json_and_as_many_as_the_logs) {
  sample *s = make();
  str page = {0};
  tree t;
  report_print(&s->r, &page);
  const char *from = strstr(page.at, "id=\"data\">") + 10, *to = strstr(from, "</script>");
  CHECK_OK(json_parse(from, (size_t)(to - from), "data", &t));
  for (uint32_t i = 0; i < t.root->len; i++) CHECK_EQ(t.root->child[i]->len, STEPS);
  CHECK_EQ(t.root->len, 6);
  CHECK_EQ(tree_get(t.root, "step")->child[STEPS - 1]->integer, STEPS);
  CHECK(fabs(tree_get(t.root, "loss")->child[0]->number - run_entry_number(&s->entry[0], "loss")) <
        1e-6);
  tree_free(&t);
  str_free(&page);
  end(s);
}

TEST(a_report_of_nothing_is_still_a_page) {
  report r = {.title = "empty", .status = "stopped at step 0"};
  str page = {0};
  report_print(&r, &page);
  CHECK_OK(str_status(&page));
  CHECK(strstr(page.at, "chip stopped") && !strstr(page.at, "<h2>Memory"));
  str_free(&page);
  run_entry e = {0};
  run_entry_add(&e, "loss", NAN);
  run_entry_add_int(&e, "step", 1);
  r.entry = &e;
  r.entries = 1;
  char path[600];
  snprintf(path, sizeof path, "%s/report.html", test_dir());
  CHECK_OK(report_write(&r, path));
  CHECK(file_exists(path));
}

TEST(a_report_that_runs_out_of_memory_says_so) {
  sample *s = make();
  for (uint64_t n = 1; n < 40; n++) {
    str page = {0};
    mem_fail_at(n);
    report_print(&s->r, &page);
    mem_fail_at(0);
    if (str_status(&page) != HP_ERR_OOM) test_fail(__FILE__, __LINE__, "allocation %d", (int)n);
    err_clear();
    str_free(&page);
  }
  end(s);
}
