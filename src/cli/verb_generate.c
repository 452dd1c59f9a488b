/* `hyper generate`. */
#include "base/thread.h"
#include "cli/cli.h"
#include "cli/generate_prompts.h"
#include "cli/placement_options.h"
#include "serve/session.h"

#include <stdio.h>
#include <string.h>

typedef struct {
  model_options m;
  const char *prompt, *prompts, *messages, *thinking, *tokens, *stop;
  conversation_options talk; /* of --messages */
  int64_t max_new_tokens, top_k, sparse;
  double temperature, top_p, repetition_penalty;
  uint64_t cache;
} args;

/* Marks of options that were not given. */
static const double not_given = -1e300;

/* Values of generation_config.json where the command line says nothing. */
static hp_status read_settings(const args *a, const lm *m, generation *g) {
  HP_TRY(generation_defaults(m, g));
  if (a->temperature != not_given) g->sampling.temperature = a->temperature;
  if (a->top_p != not_given) g->sampling.top_p = a->top_p;
  if (a->repetition_penalty != not_given) g->sampling.repetition_penalty = a->repetition_penalty;
  if (a->top_k != INT64_MIN) g->sampling.top_k = a->top_k;
  if (a->max_new_tokens != INT64_MIN) g->max_new_tokens = a->max_new_tokens;
  g->sampling.seed = (uint64_t)a->m.seed;
  g->stop = a->stop;
  g->cache = a->cache;
  g->sparse = a->sparse;
  HP_TRY(cli_kv_tier(&a->m, &g->offload));
  return sampling_check(&g->sampling);
}

/* The prompt stands in front of the first piece: a run that is refused shows none of it. */
static void show_prompt(const char **prompt) {
  if (*prompt) cli_put_text(*prompt, strlen(*prompt));
  *prompt = NULL;
}

/* Goes on as long as somebody reads. */
static bool show_piece(void *ctx, const char *text, size_t n) {
  show_prompt(ctx);
  cli_put_text(text, n);
  return fflush(stdout) == 0 || !cli_output_is_closed();
}

static hp_status print_json(const lm_tokens *prompt, const generation_result *r) {
  str line = {0};
  generation_print_json(prompt, r, &line);
  hp_status st = str_status(&line);
  if (!st) puts(line.at);
  str_free(&line);
  return st;
}

static hp_status read_prompt(const args *a, const tokenizer *t, lm_tokens *out) {
  token_ids ids = {0};
  if (a->tokens) return cli_parse_ids(a->tokens, &out->ids, &out->n);
  hp_status st = tokenizer_encode(t, a->prompt, strlen(a->prompt), TOKENIZE_SPECIAL, &ids);
  *out = (lm_tokens){ids.at, (int64_t)ids.len};
  return st;
}

/* --- one prompt ------------------------------------------------------------------------------- */

static hp_status run_generation(const args *a, lm *m, const tokenizer *t, double load_s) {
  generation g;
  generation_result r = {0};
  lm_tokens prompt = {0};
  HP_TRY(read_settings(a, m, &g));
  hp_status st = read_prompt(a, t, &prompt);
  const char *prompt_text = a->prompt;
  if (!a->m.json && t) {
    g.piece = show_piece;
    g.ctx = &prompt_text;
  }
  if (!st) st = generate_run(m, t, &prompt, &g, &r);
  r.load_s = load_s;
  if (!st && a->m.json) {
    st = print_json(&prompt, &r);
  } else if (!st && !t) {
    for (size_t i = 0; i < r.ids.len; i++) printf(i ? " %d" : "%d", r.ids.at[i]);
    putchar('\n');
  } else if (!st) {
    show_prompt(&prompt_text);
    putchar('\n');
  }
  generation_result_free(&r);
  mem_free(prompt.ids);
  return st;
}

/* --- several prompts -------------------------------------------------------------------------- */

static hp_status read_prompts(const args *a, const tokenizer *t, prompts *out) {
  return a->messages ? prompts_read_messages(a->messages, a->m.model, t, &a->talk, out)
                     : prompts_read_texts(a->prompts, t, out);
}

static hp_status run_prompts(const args *a, lm *m, const tokenizer *t, double load_s) {
  generation g;
  prompts p = {0};
  HP_TRY(read_settings(a, m, &g));
  hp_status st = read_prompts(a, t, &p);
  if (p.n_eos) memcpy(g.eos, p.eos, sizeof g.eos);
  if (p.n_eos) g.n_eos = p.n_eos;
  if (!st) st = generate_many(m, t, p.prompt.at, (int64_t)p.prompt.len, &g, p.r);
  for (size_t i = 0; !st && i < p.prompt.len; i++) {
    p.r[i].load_s = load_s;
    if (a->m.json) {
      st = print_json(&p.prompt.at[i], &p.r[i]);
      continue;
    }
    cli_put_text(p.line.at[i], strlen(p.line.at[i]));
    cli_put_text(p.r[i].text.at, p.r[i].text.len);
    putchar('\n');
  }
  prompts_free(&p);
  return st;
}

/* --- memory without a limit ------------------------------------------------------------------- */

typedef struct {
  const args *a;
  tokenizer *const *t;
} planned;

static hp_status find_longest(const planned *p, int64_t *longest, int64_t *n) {
  prompts all = {0};
  lm_tokens one = {0};
  bool many = p->a->prompts || p->a->messages;
  hp_status st = many ? read_prompts(p->a, *p->t, &all) : read_prompt(p->a, *p->t, &one);
  *n = many ? (int64_t)all.prompt.len : 1;
  *longest = one.n;
  for (size_t i = 0; i < all.prompt.len; i++)
    if (all.prompt.at[i].n > *longest) *longest = all.prompt.at[i].n;
  mem_free(one.ids);
  prompts_free(&all);
  return st;
}

static hp_status find_resident(const void *context, lm *m, uint64_t *bytes) {
  const planned *p = context;
  generation g;
  hp_memory memory;
  int64_t longest, n;
  HP_TRY(read_settings(p->a, m, &g));
  HP_TRY(find_longest(p, &longest, &n));
  const session_options o = {.sequences = n,
                             .tokens = longest + g.max_new_tokens,
                             .bytes = g.cache,
                             .sparse = g.sparse};
  HP_TRY(session_plan(m, &o, longest, &memory));
  *bytes = memory.planned_bytes;
  return HP_OK;
}

/* What is said of conversations goes with a file of them. */
static int check_talk(args *a, const char *verb) {
  const char *given = a->talk.template      ? "--template"
                      : a->talk.tool_format ? "--tool-format"
                      : a->thinking         ? "--enable-thinking"
                                            : NULL;
  if (given && !a->messages)
    return cli_usage(verb, "%s is for conversations: give a file of --messages", given);
  if (!conversation_parse_thinks(a->thinking, &a->talk.thinks))
    return cli_usage(verb, "--enable-thinking: expected true or false, found \"%s\"", a->thinking);
  return CLI_GO_ON;
}

int verb_generate(int argc, char **argv) {
  args a = {.temperature = not_given,
            .top_p = not_given,
            .repetition_penalty = not_given,
            .top_k = INT64_MIN,
            .max_new_tokens = INT64_MIN};
  const char *rest[256];
  int n_rest;
  const cli_option option[] =
      {MODEL_OPTIONS(a.m),
       {"--prompt", CLI_TEXT, &a.prompt, "TEXT", "text to go on from"},
       {"--tokens", CLI_TEXT, &a.tokens, "1,2,3", "token ids in place of --prompt"},
       {"--prompts", CLI_TEXT, &a.prompts, "FILE",
        "prompts, one a line, that are continued side by side; --json: an object each"},
       {"--messages", CLI_TEXT, &a.messages, "FILE",
        "conversations, one a line as JSON, that the model answers"},
       {"--template", CLI_TEXT, &a.talk.template, "NAME",
        "of --messages: LlamaFactory's template of that name (default: the model's own chat "
        "template)"},
       TALK_OPTIONS(a.talk.tool_format, a.thinking),
       {"--max-new-tokens", CLI_INT, &a.max_new_tokens, "N",
        "at most so many (default: generation_config.json, else 128)"},
       SAMPLING_OPTIONS(a),
       {"--stop", CLI_TEXT, &a.stop, "TEXT", "end where this text appears"},
       {"--kv-cache", CLI_SIZE, &a.cache, "BYTES",
        "memory for keys and values, e.g. 2GiB (default: what prompt and limit need)"},
       {"--kv-sparse", CLI_INT, &a.sparse, "N",
        "a new token attends to N blocks of 32 tokens, those that matter most (default: all)"}};
  const cli_spec spec =
      {"hyper generate --model DIR --prompt TEXT [--max-new-tokens N] [--temperature T] [--seed S]",
       "Writes text that continues the prompt.  Defaults come from generation_config.json.  The "
       "keys "
       "and values of a long text may be in host memory or on flash: --offload kv=host.",
       "hyper generate --model build/demo/run --prompt \"ROMEO:\" --max-new-tokens 100 "
       "--temperature 0.8",
       option, sizeof option / sizeof *option};
  if (argc > 256) return cli_usage(argv[0], "too many arguments");
  int code = cli_parse_keys(&spec, argc, argv, rest, &n_rest);
  if (code != CLI_GO_ON) return code;
  if (n_rest) return cli_usage(argv[0], "\"%s\" is not expected", rest[0]);
  if (!!a.prompt + !!a.prompts + !!a.messages + !!a.tokens != 1)
    return cli_usage(argv[0], "give --prompt or --tokens, or a file of --prompts or --messages");
  code = check_talk(&a, argv[0]);
  if (code != CLI_GO_ON) return code;
  hp_device *d = NULL;
  void *opened = NULL;
  tokenizer *t = NULL;
  const planned p = {&a, &t};
  const cli_work work = {find_resident, &p};
  hp_status st =
      a.m.model ? HP_OK : err_set(HP_ERR_ARG, __FILE__, __LINE__, "--model DIR is missing");
  int tier;
  if (!st) st = cli_kv_tier(&a.m, &tier);
  if (!st) st = placement_options_check_cache(&a.m, tier);
  /* ids in, ids out needs no tokenizer; one that is there must be whole */
  if (!st && (!a.tokens || tokenizer_is_in(a.m.model))) st = tokenizer_load(a.m.model, &t);
  double start = time_now_s();
  if (!st) st = cli_open_model(&a.m, false, &work, &d, &opened);
  if (!st) cli_tell_rows(&a.m, 1, 1);
  double load_s = time_now_s() - start;
  if (!st)
    st = a.prompts || a.messages ? run_prompts(&a, opened, t, load_s)
                                 : run_generation(&a, opened, t, load_s);
  lm_free(opened);
  if (opened) hp_device_close(d);
  tokenizer_free(t);
  return st ? cli_fail(st) : 0;
}
