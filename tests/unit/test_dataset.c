#include "test.h"

#include "base/io.h"
#include "base/str.h"
#include "dataset/chat_template.h"
#include "dataset/dataset.h"
#include "unit/template_cases.h"

static char where[512];

static const char *put(const char *name, const char *bytes, size_t n) {
  static char path[1024];
  snprintf(path, sizeof path, "%s/%s", where, name);
  CHECK_OK(file_write(path, bytes, n));
  return path;
}
static const char *put_text(const char *name, const char *text) {
  return put(name, text, strlen(text));
}

/* The files that the expected samples below were made from, by LlamaFactory 0.9.5. */
static void write_data(void) {
  str s = {0};
  snprintf(where, sizeof where, "%s", test_dir());
  for (int i = 0; i < 7; i++) str_printf(&s, "{\"text\": \"a%d\", \"n\": %d}\n", i, i);
  put_text("a.jsonl", s.at);
  str_clear(&s);
  for (int i = 0; i < 5; i++) {
    char query[4] = "";
    if (i % 2 == 0) snprintf(query, sizeof query, "q%d", i);
    str_printf(&s,
               "%c{\"instruction\": \"i%d\", \"input\": \"%s\", \"output\": [1, {\"x\": null}]}",
               i ? ',' : '[', i, query);
  }
  str_add(&s, "]");
  put_text("b.json", s.at);
  str_free(&s);
  put_text("c.txt", "c0\n\nc2\r\nc3");
  put_text(
      "dataset_info.json",
      "{\"a\": {\"file_name\": \"a.jsonl\", \"columns\": {\"prompt\": \"text\"}},"
      "\"b\": {\"file_name\": \"b.json\", \"columns\": {\"prompt\": \"instruction\", \"query\": "
      "\"input\"}},"
      "\"c\": {\"file_name\": \"c.txt\", \"columns\": {\"prompt\": \"text\"}},"
      "\"a3\": {\"file_name\": \"a.jsonl\", \"columns\": {\"prompt\": \"text\"}, \"num_samples\": "
      "3},"
      "\"a12\": {\"file_name\": \"a.jsonl\", \"columns\": {\"prompt\": \"text\"}, \"num_samples\": "
      "12},"
      "\"hub\": {\"hf_hub_url\": \"x/y\"}, \"chat\": {\"file_name\": \"a.jsonl\", "
      "\"formatting\": \"sharegpt\"},"
      "\"rank\": {\"file_name\": \"a.jsonl\", \"ranking\": true},"
      "\"odd\": {\"file_name\": \"a.jsonl\", \"colums\": {}},"
      "\"none\": {\"file_name\": \"a.jsonl\", \"num_samples\": 0},"
      "\"bare\": {\"columns\": {\"prompt\": \"text\"}},"
      "\"gone\": {\"file_name\": \"gone.jsonl\"},"
      "\"noprompt\": {\"file_name\": \"a.jsonl\", \"columns\": {\"query\": \"text\"}}}");
}

/* "a0|a1|..." with \n as it is */
static void check_texts(const dataset *d, const char *want) {
  str s = {0};
  for (size_t i = 0; i < d->sample.len; i++) {
    if (i) str_add_char(&s, '|');
    str_add_n(&s, d->sample.at[i].text.at, d->sample.at[i].text.len);
  }
  CHECK_STR(s.at ? s.at : "", want);
  str_free(&s);
}

static hp_status load(dataset_spec spec, const char *const *name, uint32_t seed, dataset *d) {
  mt19937 m;
  mt19937_seed(&m, seed);
  spec.dir = where;
  spec.name = name;
  for (spec.n = 0; name[spec.n]; spec.n++) {}
  if (!spec.max_samples) spec.max_samples = -1;
  return dataset_load(&spec, &m, d);
}

TEST(samples_and_their_order_are_those_of_llamafactory) {
  static const char *const abc[] = {"a", "b", "c", NULL}, *const ab[] = {"a", "b", NULL};
  static const char *const a12[] = {"a12", NULL};
  write_data();
  const struct {
    dataset_spec spec;
    const char *const *name;
    uint32_t seed;
    const char *want;
  } row[] = {
      {{0}, abc, 42, "a0|a1|a2|a3|a4|a5|a6|i0\nq0|i1|i2\nq2|i3|i4\nq4|c0||c2|c3"},
      {{.max_samples = 2}, ab, 42, "a0|a1|i0\nq0|i1"},
      {{.max_samples = 9}, a12, 7, "a2|a5|a0|a6|a3|a1|a4|a6|a0"},
      {{.mix = DATASET_UNDER}, abc, 42, "a0|i0\nq0|c0|a1|i1||a2|i2\nq2|c2|a3|i3|c3"},
      {{.mix = DATASET_OVER},
       abc,
       42,
       "a0|i0\nq0|c0|a1|i1||a2|i2\nq2|c2|a3|i3|c3|a4|i4\nq4|c0|a5|i0\nq0||a6|i1|c2"},
      {{.mix = DATASET_UNDER, .probs = (const double[]){0.5, 0.3, 0.2}, .seed = 42},
       abc,
       42,
       "i0\nq0|a0|c0|i1|a1||i2\nq2|i3|a2|a3|a4|c2|i4\nq4"},
      {{.mix = DATASET_OVER, .probs = (const double[]){0.2, 0.3, 0.5}, .seed = 5},
       abc,
       5,
       "c0||c2|i0\nq0|a0|i1|i2\nq2|a1|a2|c3|c0|i3|i4\nq4||c2|c3|i0\nq0|i1|c0|a3||i2\nq2|c2|a4|c3|"
       "c0|"
       "i3||c2|a5|c3|a6"},
  };
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    dataset d;
    CHECK_OK(load(row[i].spec, row[i].name, row[i].seed, &d));
    check_texts(&d, row[i].want);
    dataset_free(&d);
  }
}

TEST(num_samples_draws_on_from_one_data_set_to_the_next) {
  static const char *const names[] = {"a3", "a12", "a3"};
  static const char *const want[] = {"a0|a1|a5|a5|a0|a3|a2|a1|a6|a4|a2|a4|a3|a2|a5", "a0|a2|a6"};
  write_data();
  mt19937 m;
  mt19937_seed(&m, 42);
  for (int i = 0; i < 2; i++) {
    dataset_spec spec = {.dir = where, .name = names + 2 * i, .n = i ? 1 : 2, .max_samples = -1};
    dataset d;
    CHECK_OK(dataset_load(&spec, &m, &d));
    check_texts(&d, want[i]);
    dataset_free(&d);
  }
}

TEST(the_split_is_that_of_datasets_train_test_split) {
  static const char *const abc[] = {"a", "b", "c", NULL};
  write_data();
  const struct {
    int64_t count;
    double share;
    uint64_t seed;
    const char *rest, *taken;
  } row[] = {{0, 0.2, 42, "i2\nq2|a3|a0|i0\nq0|c0|a5|a2|a4|c2|a1||i1", "a6|c3|i4\nq4|i3"},
             {5, 0, 3, "a2|c2|i3|a0|a4|i0\nq0|a6||a5|a3|i1", "i4\nq4|c3|i2\nq2|a1|c0"}};
  for (size_t i = 0; i < 2; i++) {
    dataset d, taken = {0};
    CHECK_OK(load((dataset_spec){0}, abc, 42, &d));
    CHECK_OK(dataset_split(&d, row[i].count, row[i].share, row[i].seed, &taken));
    check_texts(&d, row[i].rest);
    check_texts(&taken, row[i].taken);
    dataset_free(&taken);
    CHECK_FAILS(dataset_split(&d, 12, 0, 1, &taken), "leaves none to train on");
    dataset_free(&d);
  }
}

/* Expected: numpy 2.4, default_rng(seed): random_raw(), random(), permutation(13), random(). */
TEST(pcg64_is_numpys_default_generator) {
  static const struct {
    uint64_t seed, raw;
    double first, last;
    int64_t order[13];
  } row[] = {{0,
              11749869230777074271u,
              0.2697867137638703,
              0.033585575305464355,
              {2, 11, 3, 10, 0, 4, 7, 5, 1, 12, 6, 9, 8}},
             {42,
              14276969152011380360u,
              0.4388784397520523,
              0.82276161327083,
              {12, 8, 11, 6, 10, 9, 7, 3, 0, 1, 5, 2, 4}},
             {4294967295u,
              4647538520743280031u,
              0.21906579628685663,
              0.7196577118069766,
              {4, 1, 6, 11, 7, 0, 8, 9, 10, 2, 3, 12, 5}}};
  for (int i = 0; i < 3; i++) {
    pcg64 p;
    int64_t order[13];
    pcg64_seed(&p, row[i].seed);
    CHECK(pcg64_u64(&p) == row[i].raw);
    CHECK(pcg64_double(&p) == row[i].first);
    pcg64_permutation(&p, 13, order);
    for (int k = 0; k < 13; k++) CHECK_EQ(order[k], row[i].order[k]);
    CHECK(pcg64_double(&p) == row[i].last);
  }
}

TEST(paths_and_folders_stand_in_for_names) {
  write_data();
  dataset d;
  char file[600], folder[600];
  snprintf(file, sizeof file, "%s/b.json", where);
  snprintf(folder, sizeof folder, "%s/parts", where);
  CHECK_OK(dir_create(folder));
  put_text("parts/2.txt", "three\n");
  put_text("parts/1.txt", "one\rtwo\r\n");
  put_text("parts/.hidden", "x");
  CHECK_OK(load((dataset_spec){0}, (const char *const[]){"c.txt", folder, file, NULL}, 1, &d));
  check_texts(&d, "c0||c2|c3|one|two|three|i0\nq0|i1|i2\nq2|i3|i4\nq4");
  dataset_free(&d);
  CHECK_OK(load((dataset_spec){.max_samples = 2}, (const char *const[]){"parts", NULL}, 1, &d));
  check_texts(&d, "one|two");
  dataset_free(&d);
  put_text("parts/3.json", "[]");
  CHECK_OK(dir_create((snprintf(folder, sizeof folder, "%s/empty", where), folder)));
  CHECK_FAILS(load((dataset_spec){0}, (const char *const[]){"empty", NULL}, 1, &d), "is empty");
}

static hp_status read_as(const char *name, const char *text, size_t n, dataset *d) {
  dataset_columns guess = {.guess = true};
  *d = (dataset){0};
  hp_status st = dataset_read_file(put(name, text, n), &guess, -1, d);
  if (st) dataset_free(d);
  return st;
}

TEST(each_kind_of_file_gives_its_texts) {
  static const struct {
    const char *name, *text, *want;
  } row[] = {
      {"x.txt", "", ""},
      {"x.txt", "\n", ""},
      {"x.txt", "a\n\n", "a|"},
      {"x.txt",
       "\xef\xbb\xbf"
       "a",
       "\xef\xbb\xbf"
       "a"},
      {"x.jsonl", "{\"text\":\"a\\u0041\\n\"}\n\n  {\"k\":[{\"text\":\"no\"}],\"text\":\"b\"}",
       "aA\n|b"},
      {"x.json", "{\"text\":\"lines in .json\"}\n{\"text\":\"two\"}", "lines in .json|two"},
      {"x.json", " [ ] ", ""},
      {"x.jsonl", "[{\"text\":\"list in .jsonl\"}]", "list in .jsonl"},
      {"x.jsonl", "{\"text\":\"a\"}\n{\"other\":1}\n{\"text\":null}\n{}", "a|||"},
      {"x.jsonl", "{\"instruction\":\"\",\"input\":\"q\"}", "q"},
      {"x.jsonl", "{\"instruction\":\"i\",\"text\":\"t\"}", "t"},
      {"x.csv", "text\r\na\r\n\"b,\"\"c\"\"\nd\"\r\n", "a|b,\"c\"\nd"},
      {"x.csv", "n,instruction,input\n1,i,q\n2,i2,\n", "i\nq|i2"},
  };
  snprintf(where, sizeof where, "%s", test_dir());
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    dataset d;
    CHECK_OK(read_as(row[i].name, row[i].text, strlen(row[i].text), &d));
    check_texts(&d, row[i].want);
    dataset_free(&d);
  }
  dataset d;
  CHECK_OK(read_as("nul.jsonl", "{\"text\":\"a\\u0000b\"}", 19, &d));
  CHECK_EQ(d.sample.at[0].text.len, 3);
  dataset_free(&d);
}

TEST(history_gives_its_first_turn_as_llamafactory_does) {
  static const char text[] = "[{\"i\":\"now\",\"h\":[[\"first\",\"r\"],[\"second\",\"s\"]]},"
                             "{\"i\":\"now\",\"h\":[]},{\"i\":\"now\",\"h\":null},{\"i\":\"now\"}]";
  snprintf(where, sizeof where, "%s", test_dir());
  dataset d = {0};
  dataset_columns c = {.prompt = "i", .history = "h"};
  CHECK_OK(dataset_read_file(put_text("h.json", text), &c, -1, &d));
  check_texts(&d, "first|now|now|now");
  dataset_free(&d);
  static const char *const bad[] = {"[{\"i\":\"x\",\"h\":3}]",     "[{\"i\":\"x\",\"h\":[3]}]",
                                    "[{\"i\":\"x\",\"h\":[[3]]}]", "[{\"i\":\"x\",\"h\":[[\"a\"]",
                                    "[{\"i\":\"x\",\"h\":]}]",     "[{\"i\":\"x\",\"h\":}]"};
  for (int i = 0; i < 6; i++) {
    d = (dataset){0};
    CHECK_FAILS(dataset_read_file(put_text("h.json", bad[i]), &c, -1, &d), "h.json");
    dataset_free(&d);
  }
}

TEST(unused_values_may_be_any_json_and_a_key_is_compared_whole) {
  static const char text[] = "{\"m\":[[],{},[{\"a\":{}}],null,true,-1.5e3,\"x\"],\"text\":\"a\"}\n"
                             "{\"text\\u0000s\":\"no\",\"text\":\"b\"}\n"
                             "{\"text\":\"c\",\"text\\u0000s\":\"no\"}";
  dataset d;
  snprintf(where, sizeof where, "%s", test_dir());
  CHECK_OK(read_as("x.jsonl", text, strlen(text), &d));
  check_texts(&d, "a|b|c");
  dataset_free(&d);
  CHECK_FAILS(read_as("x.csv", "text\0s\na\n", 9, &d), "neither \"text\"");
  str deep = {0};
  str_add(&deep, "{\"m\":");
  for (int i = 0; i < 100000; i++) str_add(&deep, "[");
  for (int i = 0; i < 100000; i++) str_add(&deep, "]");
  str_add(&deep, ",\"text\":\"a\"}");
  CHECK_OK(read_as("deep.jsonl", deep.at, deep.len, &d));
  check_texts(&d, "a");
  dataset_free(&d);
  str_free(&deep);
}

/* What reading says on stderr. */
static const char *said_of(const char *name, const char *text, const dataset_columns *c) {
  static char said[2048];
  char path[600];
  dataset d = {0};
  snprintf(path, sizeof path, "%s/said", where);
  CHECK(freopen(path, "w+", stderr) != NULL);
  CHECK_OK(dataset_read_file(put_text(name, text), c, -1, &d));
  dataset_free(&d);
  fflush(stderr);
  rewind(stderr);
  said[fread(said, 1, sizeof said - 1, stderr)] = 0;
  return said;
}

TEST(responses_that_are_left_out_are_counted_and_told) {
  static const char alpaca[] = "[{\"instruction\":\"i\",\"input\":\"\",\"output\":\"r\"},"
                               "{\"instruction\":\"i\",\"output\":\"\"},"
                               "{\"instruction\":\"i\",\"output\":\"s\"},{\"instruction\":\"i\"},"
                               "{\"instruction\":\"i\",\"output\":null}]";
  const dataset_columns guess = {.guess = true};
  const dataset_columns named = {.prompt = "q", .response = "a"}, alone = {.prompt = "q"};
  snprintf(where, sizeof where, "%s", test_dir());
  const char *said = said_of("a.json", alpaca, &guess);
  CHECK(strstr(said, "a.json: 2 of 5 samples have a response (column \"output\")"));
  CHECK(strstr(said, "trains on the text of \"instruction\" and \"input\" alone"));
  CHECK(strstr(said, "write stage: sft"));
  said = said_of("b.jsonl", "{\"q\":\"x\",\"a\":[\"y\",\"z\"]}", &named);
  CHECK(strstr(said, "1 of 1 samples have a response (column \"a\")"));
  CHECK(strstr(said, "trains on the text of \"q\" alone"));
  said = said_of("c.csv", "text,response\na,b\nc,\n", &guess);
  CHECK(strstr(said, "c.csv: 1 of 2 samples have a response (column \"response\")"));
  CHECK_STR(said_of("d.jsonl", "{\"q\":\"x\",\"a\":\"y\"}", &alone), "");
  CHECK_STR(said_of("e.jsonl", "{\"text\":\"x\",\"output\":\"\"}", &guess), "");
}

TEST(files_that_are_not_what_they_should_be_are_refused_with_their_place) {
  static const struct {
    const char *name, *text, *says;
  } row[] = {
      {"x.jsonl", "{\"text\":\"a\"}\n{\"text\":7}", "x.jsonl:2:9: record 2: \"text\" is a number"},
      {"x.jsonl", "{\"text\":[\"a\"]}", "record 1: \"text\" is a list, expected text"},
      {"x.jsonl", "{\"text\":\"a\"", "x.jsonl:1:"},
      {"x.jsonl", "{\"text\" \"a\"}", "\":\" after the key"},
      /* values that nothing reads */
      {"x.jsonl", "{\"text\":\"..\",\"meta\":[}}", "x.jsonl:1:22: expected a value, found '}'"},
      {"x.jsonl", "{\"meta\":[1 2],\"text\":\"\"}", "x.jsonl:1:12: expected ',' or ']'"},
      {"x.jsonl", "{\"meta\":[1,],\"text\":\"\"}", "x.jsonl:1:12: expected a value"},
      {"x.jsonl", "{\"meta\":{\"a\"},\"text\":\"\"}", "x.jsonl:1:13: expected ':' after the key"},
      {"x.jsonl", "{\"meta\":{\"a\":},\"text\":\"\"}", "x.jsonl:1:14: expected a value"},
      {"x.jsonl", "{\"meta\":{\"a\":1,},\"text\":\"\"}", "expected a key in double quotes"},
      {"x.jsonl", "{\"meta\":{\"a\":1],\"text\":\"\"}", "x.jsonl:1:15: expected ',' or '}'"},
      {"x.jsonl", "{\"meta\":{1:2},\"text\":\"\"}", "x.jsonl:1:10: expected a key"},
      {"x.jsonl", "{\"meta\":,\"text\":\"\"}", "x.jsonl:1:9: expected a value"},
      {"x.jsonl", "{\"text\":\"\",\"meta\":[[[[", "expected a value, found the end"},
      {"x.jsonl", "{\"text\":\"\",\"output\":[}}", "expected a value"},
      {"x.jsonl", "{\"text\\u0000s\":\"a\"}", "neither \"text\""},
      {"x.jsonl", "{text:1}", "x.jsonl:1:2"},
      {"x.jsonl", "\"a\"", "a record"},
      {"x.jsonl", "7", "a record"},
      {"x.jsonl", "{\"texts\":\"a\"}",
       "record 1 has neither \"text\" nor \"instruction\"; it has \"texts\""},
      {"x.jsonl", "{\"text\":\"\xff\"}", "x.jsonl:1:"},
      {"x.json", "[{\"text\":\"a\"},]", "a record"},
      {"x.json", "[{\"text\":\"a\"}] x", "x.json:1:"},
      {"x.json", "[{\"text\":\"a\"} {\"text\":\"a\"}]", "\",\" or \"]\""},
      {"x.json", "[{\"text\":\"a\",}]", "a key"},
      {"x.json", "[", "x.json:1:"},
      {"x.txt", "ok\nb\xc3(", "x.txt:2: byte 2 of the line (0xc3) is not UTF-8"},
      {"x.csv", "", "expected a heading"},
      {"x.csv", "word\na", "neither \"text\""},
      {"x.csv", "text,n\na\n", "record 1 has 1 fields, the heading has 2"},
      {"x.csv", "text\n\"a", "opening quote"},
      {"x.csv", "text\na\xff", "not UTF-8"},
      {"x.parquet", "PAR1", "convert it: python3"},
      {"x.bin", "a", "ends in .txt, .json, .jsonl or .csv"},
  };
  snprintf(where, sizeof where, "%s", test_dir());
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    dataset d;
    hp_status st = read_as(row[i].name, row[i].text, strlen(row[i].text), &d);
    if (!st || !strstr(err_message(), row[i].says))
      test_fail(__FILE__, __LINE__, "%s gives \"%s\", want \"%s\" in it", row[i].text,
                st ? err_message() : "no failure", row[i].says);
    err_clear();
  }
  dataset d = {0};
  dataset_columns c = {.prompt = "body"};
  CHECK_FAILS(dataset_read_file(put_text("x.jsonl", "{\"text\":\"a\"}"), &c, -1, &d),
              "no record has \"body\"");
  dataset_free(&d);
  CHECK_FAILS(dataset_read_file(put_text("x.csv", "bodi\na"), &c, -1, &d),
              "the nearest is \"bodi\"");
  dataset_free(&d);
}

TEST(entries_of_dataset_info_that_cannot_be_used_are_refused) {
  static const struct {
    const char *name, *says;
  } row[] = {{"hub", "hub.hf_hub_url"},      {"chat", "sharegpt is for conversations"},
             {"rank", "preference data"},    {"odd", "did you mean \"columns\""},
             {"none", "expected 1 or more"}, {"bare", "file_name"},
             {"gone", "gone.jsonl"},         {"noprompt", "stage pt needs \"prompt\""},
             {"a33", "did you mean \"a3\""}, {"elsewhere", "there is no such file"}};
  write_data();
  dataset d;
  for (size_t i = 0; i < sizeof row / sizeof *row; i++)
    CHECK_FAILS(load((dataset_spec){0}, (const char *const[]){row[i].name, NULL}, 1, &d),
                row[i].says);
  put_text("empty.jsonl", "\n");
  CHECK_FAILS(load((dataset_spec){0}, (const char *const[]){"empty.jsonl", NULL}, 1, &d),
              "there is no sample in it");
  CHECK_FAILS(load((dataset_spec){.mix = DATASET_OVER, .probs = (const double[]){1, 0}},
                   (const char *const[]){"a", "b", NULL}, 1, &d),
              "never be used up");
  put_text("dataset_info.json", "[]");
  CHECK_FAILS(load((dataset_spec){0}, (const char *const[]){"a", NULL}, 1, &d),
              "dataset_info.json");
}

TEST(templates_are_known_by_name) {
  chat_template t;
  CHECK_OK(chat_template_find("qwen", &t));
  CHECK_STR(t.stop[0], "<|im_end|>");
  CHECK(t.replaces_eos);
  CHECK_OK(chat_template_find("llama2", &t));
  CHECK(!t.replaces_eos);
  CHECK_EQ(t.kind, CHAT_SYSTEM_IN_USER);
  CHECK_STR(t.observation, t.user);
  CHECK_OK(chat_template_find("empty", &t));
  CHECK_STR(t.user, SLOT_CONTENT);
  CHECK_STR(t.prefix, "");
  CHECK_STR(t.thought[1], "\n</think>\n\n");
  CHECK_FAILS(chat_template_find("lama3", &t), "did you mean \"llama");
}

TEST(templates_end_answers_as_those_of_llamafactory) {
  for (size_t i = 0; i < sizeof template_cases / sizeof *template_cases; i++) {
    chat_template t;
    CHECK_OK(chat_template_find(template_cases[i].name, &t));
    for (int k = 0; k < 4; k++) {
      const char *want = template_cases[i].stop[k];
      CHECK_STR(t.stop[k] ? t.stop[k] : "none", want ? want : "none");
    }
    CHECK_EQ(t.ends_turns, template_cases[i].ends_turns);
    CHECK_EQ(t.replaces_eos, template_cases[i].replaces_eos);
    CHECK_EQ(t.replaces_jinja, template_cases[i].replaces_jinja);
  }
}

TEST(running_out_of_memory_while_loading_is_a_failure_and_leaks_nothing) {
  static const char *const abc[] = {"a3", "b", "c", NULL};
  write_data();
  for (uint64_t n = 1;; n++) {
    dataset d, taken;
    dataset_spec spec = {.mix = DATASET_OVER, .probs = (const double[]){0.2, 0.3, 0.5}};
    mem_fail_at(n);
    hp_status st = load(spec, abc, 1, &d);
    if (!st) {
      st = dataset_split(&d, 2, 0, 1, &taken);
      if (!st) dataset_free(&taken);
      dataset_free(&d);
    }
    mem_fail_at(0);
    err_clear();
    if (!st) {
      CHECK(n > 20);
      break;
    }
    CHECK_EQ(st, HP_ERR_OOM);
  }
}
