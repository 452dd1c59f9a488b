/* Answers of `hyper chat`: from one session, and the calls of tools in them. */
#include "base/io.h"
#include "base/json.h"
#include "dataset/answer_calls.h"
#include "serve/chat_session.h"
#include "test.h"

enum { VOCAB = 32, LONG = 1500 };

static const char config[] = "{\"model_type\": \"llama\", \"hidden_size\": 16, "
                             "\"intermediate_size\": 16, \"num_attention_heads\": 2, "
                             "\"num_key_value_heads\": 2, \"num_hidden_layers\": 1, "
                             "\"vocab_size\": 32, \"max_position_embeddings\": 4096}";

typedef struct {
  hp_device *d;
  chat_session c;
  int32_t ids[LONG];
} fixture;

static void begin(fixture *f) {
  char path[512];
  *f = (fixture){.c.g = {.max_new_tokens = 1, .sampling = {.top_p = 1, .repetition_penalty = 1}}};
  for (int i = 0; i < LONG; i++) f->ids[i] = i * 7 % VOCAB;
  snprintf(path, sizeof path, "%s/config.json", test_dir());
  CHECK_OK(file_write(path, config, sizeof config - 1));
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 1, .interpret = true}, &f->d));
  CHECK_OK(lm_create(path, f->d, &(lm_options){.compute = HP_F32, .weights = HP_F32}, &f->c.m));
  CHECK_OK(lm_init(f->c.m, 5));
}

static void end(fixture *f) {
  chat_session_close(&f->c);
  lm_free(f->c.m);
  hp_device_close(f->d);
}

/* Tokens of a chunk of the last program. */
static int64_t chunk_of(const session *s) {
  const hp_program *p = session_program(s);
  for (int i = 0; i < hp_program_io_count(p); i++) {
    const char *name;
    hp_dtype t;
    hp_shape shape;
    bool is_output;
    CHECK_OK(hp_program_io_info(p, i, &name, &t, &shape, &is_output));
    if (!strcmp(name, "ids")) return shape.dim[1];
  }
  return 0;
}

/* The answer to the first n ids, whose last token is returned. */
static int32_t ask(fixture *f, int64_t n) {
  generation_result r = {0};
  const lm_tokens prompt = {f->ids, n};
  CHECK_OK(chat_session_answer(&f->c, &prompt, &r));
  CHECK_EQ(r.ids.len, f->c.g.max_new_tokens);
  int32_t last = r.ids.at[r.ids.len - 1];
  generation_result_free(&r);
  return last;
}

TEST(of_a_prompt_that_goes_on_only_what_is_new_is_read) {
  fixture f;
  begin(&f);
  ask(&f, 256);
  CHECK_EQ(chunk_of(f.c.s), 256);
  ask(&f, 270);
  CHECK_EQ(chunk_of(f.c.s), 16);
  f.ids[0]++;
  ask(&f, 270);
  CHECK_EQ(session_cache_get(f.c.s).free_blocks, session_cache_get(f.c.s).blocks);
  end(&f);
}

TEST(a_conversation_has_the_answers_of_prompts_by_themselves) {
  static const int64_t length[] = {40, 100, 1010, 1400};
  fixture f;
  begin(&f);
  f.c.g.max_new_tokens = 5;
  int32_t together[4];
  for (int i = 0; i < 4; i++) together[i] = ask(&f, length[i]);
  CHECK_EQ(f.c.room, 2048);
  for (int i = 0; i < 4; i++) {
    chat_session_close(&f.c);
    CHECK_EQ(ask(&f, length[i]), together[i]);
  }
  end(&f);
}

TEST(a_cache_of_given_bytes_ends_answers_and_refuses_what_does_not_fit) {
  fixture f;
  generation_result r = {0};
  begin(&f);
  f.c.g.cache = (uint64_t)1 << 12; /* of 64 tokens: 2 blocks of 2 KiB x 2 */
  f.c.g.max_new_tokens = 500;
  const lm_tokens fits = {f.ids, 20}, too_long = {f.ids, 1000};
  CHECK_OK(chat_session_answer(&f.c, &fits, &r));
  CHECK_EQ((int64_t)r.ids.len, f.c.room - 20);
  CHECK_FAILS(chat_session_answer(&f.c, &too_long, &r), "has 1000 tokens, and there is room for");
  generation_result_free(&r);
  end(&f);
}

static bool count_down(void *ctx) {
  int *left = ctx;
  return --*left > 0;
}

TEST(an_answer_ends_at_the_token_at_which_it_is_not_to_go_on) {
  fixture f;
  generation_result r = {0};
  int left = 3;
  begin(&f);
  f.c.g.max_new_tokens = 50;
  f.c.g.goes_on = count_down;
  f.c.g.ctx = &left;
  const lm_tokens prompt = {f.ids, 20};
  CHECK_OK(chat_session_answer(&f.c, &prompt, &r));
  CHECK_EQ(r.ids.len, 3);
  generation_result_free(&r);
  end(&f);
}

/* --- calls ------------------------------------------------------------------------------------ */

static void note(void *ctx, const char *name, size_t name_n, const char *arguments, size_t n) {
  str_printf(ctx, "%.*s(%.*s);", (int)name_n, name, (int)n, arguments);
}

TEST(calls_are_found_in_the_formats_of_models) {
  static const char tools[] = "[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}, "
                              "{\"name\": \"g\"}]";
  static const struct {
    const char *text, *calls;
  } cases[] = {
      {"", ""},
      {"f", ""},
      {"Hello {x} {\"name\": \"f\"} {\"arguments\": 1}", ""},
      {"{\"name\": 5, \"arguments\": {}}", ""},
      {"{{{{{{{{", ""},
      {"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1]}}\n</tool_call>\n<tool_call>"
       "{\"name\": \"g\", \"arguments\": {}}</tool_call>",
       "f({\"a\": [1]});g({});"},
      {"[{\"name\": \"f\", \"parameters\": {\"a\": \"\\u00e9\"}}]", "f({\"a\": \"\303\251\"});"},
      {"{\"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": \"x\"}}",
       "f(\"x\");"},
      {"{a {\"name\": \"f\", \"arguments\": {}}", "f({});"},
      {"Action: f\nAction Input: {\"a\": 1}\nAction: g\nAction Input: {}\n",
       "f({\"a\": 1});g({});"},
      {"Action: f", ""},
      {"<function=f>\n<parameter=a>\n1\n</parameter>\n</function>",
       "f(<parameter=a>\n1\n</parameter>);"},
      {"<function=f>\n<parameter=a>", ""},
      {"<invoke name=\"f\">\n<parameter name=\"a\">1</parameter>\n</invoke>",
       "f(<parameter name=\"a\">1</parameter>);"},
      {"\ng\n{\"a\": 1}", "g({\"a\": 1});"},
      {"h\n{\"a\": 1}", ""},
      {"g\nand so on", ""},
      {"call:f{a:<|\"|>x}<|\"|>,b:{c:1}}call:g{}", "f({a:<|\"|>x}<|\"|>,b:{c:1}});g({});"},
      {"call:h{a:1} f{a:1} call:f{a:", ""},
      {"[f(a=\"x)\\\"\", b='('), g()]", "f((a=\"x)\\\"\", b='('));g(());"},
      {"I could use f(1), f(2) or g.", ""},
      {"[h(1), off(2), f(3", ""},
      {"<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>",
       "f(<arg_key>a</arg_key>\n<arg_value>1</arg_value>);"},
      {"Well.\ng\n<arg_key>a</arg_key><arg_value>1</arg_value>",
       "g(<arg_key>a</arg_key><arg_value>1</arg_value>);"},
  };
  tree t;
  CHECK_OK(json_parse(tools, sizeof tools - 1, "tools", &t));
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    str got = {0};
    str_add(&got, "");
    CHECK_OK(answer_find_calls(cases[i].text, strlen(cases[i].text), t.root, note, &got));
    CHECK_STR(got.at, cases[i].calls);
    str_free(&got);
  }
  CHECK_STR(err_message(), "");
  tree_free(&t);
}
