/* `hyper chat`: the options; the talk itself is in chat_talk.c. */
#include "base/io.h"
#include "base/thread.h"
#include "cli/chat_config.h"
#include "cli/chat_talk.h"
#include "cli/placement_options.h"
#include "comm/world.h"

/* Values of generation_config.json where neither the command line nor the file says anything. */
static hp_status read_generation(const chat_settings *s, const lm *m, generation *g) {
  HP_TRY(generation_defaults(m, g));
  if (s->temperature != CHAT_UNSAID_NUM) g->sampling.temperature = s->temperature;
  if (s->top_p != CHAT_UNSAID_NUM) g->sampling.top_p = s->top_p;
  if (s->repetition_penalty != CHAT_UNSAID_NUM)
    g->sampling.repetition_penalty = s->repetition_penalty;
  if (s->top_k != CHAT_UNSAID) g->sampling.top_k = s->top_k;
  if (s->max_new_tokens != CHAT_UNSAID) g->max_new_tokens = s->max_new_tokens;
  if (g->max_new_tokens < 1 || g->max_new_tokens > INT32_MAX / 4)
    HP_FAIL(HP_ERR_ARG, "max_new_tokens %lld: expected 1 or more", (long long)g->max_new_tokens);
  g->sampling.seed = (uint64_t)s->m.seed;
  g->stop = s->stop;
  g->cache = s->cache;
  g->sparse = s->sparse;
  HP_TRY(cli_kv_tier(&s->m, &g->offload));
  return sampling_check(&g->sampling);
}

static hp_status find_resident(const void *context, lm *m, uint64_t *bytes) {
  generation g;
  HP_TRY(read_generation(context, m, &g));
  return chat_session_plan(m, &g, bytes);
}

static hp_status check_settings(const chat_settings *s) {
  if (world_get()->size > 1)
    HP_FAIL(HP_ERR_UNSUPPORTED,
            "chat reads one standard input: run it as one process, with --devices or --strategy");
  if (!s->m.model) HP_FAIL(HP_ERR_ARG, "--model DIR is missing, or a CONFIG.yaml");
  if (!path_exists(s->m.model))
    HP_FAIL(HP_ERR_INPUT, "%s: there is no such folder; expected a Hugging Face checkpoint",
            s->m.model);
  int tier;
  HP_TRY(cli_kv_tier(&s->m, &tier));
  return placement_options_check_cache(&s->m, tier);
}

static int run_chat(const chat_settings *s) {
  hp_device *d = NULL;
  void *opened = NULL;
  tokenizer *t = NULL;
  conversation c = {0};
  int code = 0;
  const cli_work work = {find_resident, s};
  chat_session talk = {0};
  hp_status st = check_settings(s);
  if (!st) st = tokenizer_load(s->m.model, &t);
  if (!st) st = conversation_open(s->m.model, t, &s->talk, &c);
  double start = time_now_s();
  if (!st) st = cli_open_model(&s->m, false, &work, &d, &opened);
  talk.load_s = time_now_s() - start;
  if (!st) cli_tell_rows(&s->m, 1, 1);
  talk.m = opened;
  talk.t = t;
  if (!st) st = read_generation(s, opened, &talk.g);
  if (!st) st = chat_talk(&c, &talk, s->m.json, &code);
  chat_session_close(&talk);
  lm_free(opened);
  if (opened) hp_device_close(d);
  conversation_close(&c);
  tokenizer_free(t);
  return st ? cli_fail(st) : code;
}

static int run_file(const cli_config *words, arena *text, chat_settings *s) {
  train_config c;
  hp_status st = train_config_read(words->file, words->key, words->keys, &c);
  if (st) return cli_fail(st);
  st = chat_config_apply(&c, text, s);
  int code = st ? cli_fail(st) : run_chat(s);
  train_config_free(&c);
  return code;
}

int verb_chat(int argc, char **argv) {
  chat_settings s = {.max_new_tokens = CHAT_UNSAID,
                     .top_k = CHAT_UNSAID,
                     .temperature = CHAT_UNSAID_NUM,
                     .top_p = CHAT_UNSAID_NUM,
                     .repetition_penalty = CHAT_UNSAID_NUM};
  const char *thinking = NULL;
  const cli_option option[] =
      {MODEL_OPTIONS(s.m),
       {"--template", CLI_TEXT, &s.talk.template, "NAME",
        "LlamaFactory's template of that name (default: the model's own chat template)"},
       {"--system", CLI_TEXT, &s.talk.system, "TEXT", "the system message"},
       {"--tools", CLI_TEXT, &s.talk.tools, "FILE",
        "JSON list of tools that the model may call; calls are shown"},
       TALK_OPTIONS(s.talk.tool_format, thinking),
       {"--max-new-tokens", CLI_INT, &s.max_new_tokens, "N",
        "of an answer at most (default: generation_config.json, else 128)"},
       SAMPLING_OPTIONS(s),
       {"--stop", CLI_TEXT, &s.stop, "TEXT", "end an answer where this text appears"},
       {"--kv-cache", CLI_SIZE, &s.cache, "BYTES",
        "memory for keys and values, e.g. 2GiB (default: grows with the conversation)"},
       {"--kv-sparse", CLI_INT, &s.sparse, "N",
        "a new token attends to N blocks of 32 tokens, those that matter most (default: all)"}};
  const cli_spec spec =
      {"hyper chat --model DIR [--adapter DIR] [--template NAME] [--system TEXT]\n"
       "       hyper chat CONFIG.yaml [key=value ...]",
       "Talks to a model.  CONFIG.yaml is LlamaFactory's, with its keys and defaults.  Where "
       "standard\ninput is no terminal each line is a message, and the answers are written one "
       "after "
       "another.\n\n" CHAT_HELP "\nCtrl-C ends an answer.",
       "hyper chat --model models/qwen --adapter saves/adapter --template qwen", option,
       sizeof option / sizeof *option};
  cli_config words;
  int code = cli_parse_perhaps_config(&spec, argc, argv, &words);
  if (code != CLI_GO_ON) return code;
  if (!conversation_parse_thinks(thinking, &s.talk.thinks))
    code = cli_usage(argv[0], "--enable-thinking: expected true or false, found \"%s\"", thinking);
  else code = words.file ? run_file(&words, &words.text, &s) : run_chat(&s);
  arena_free(&words.text);
  return code;
}
