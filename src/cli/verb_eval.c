/* `hyper eval`: mean negative log likelihood and perplexity of a text. */
#include "base/io.h"
#include "base/json.h"
#include "base/log.h"
#include "base/thread.h"
#include "cli/cli.h"
#include "tok/tokenizer.h"
#include "model/lm_eval.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { IGNORE = -100, BATCH_TOKENS = 2048 };

typedef struct {
  model_options m;
  const char *data, *tokens;
  int64_t seq, batch;
} args;

typedef struct {
  double nll; /* sum */
  int64_t predictions;
} score;

/* Ids of a file, byte for byte, with the special tokens that the tokenizer adds. */
static hp_status encode_file(const args *a, token_ids *out) {
  tokenizer *t;
  char *text = NULL;
  size_t n;
  HP_TRY(tokenizer_load(a->m.model, &t));
  hp_status st = file_read(a->data, 0, &text, &n);
  if (!st) st = tokenizer_encode(t, text, n, TOKENIZE_SPECIAL, out);
  mem_free(text);
  tokenizer_free(t);
  return st;
}

static hp_status read_ids(const args *a, token_ids *out) {
  if (!a->tokens) return encode_file(a, out);
  int32_t *ids;
  int64_t n;
  HP_TRY(cli_parse_ids(a->tokens, &ids, &n));
  *out = (token_ids){.at = ids, .len = (size_t)n, .cap = (size_t)n};
  return HP_OK;
}

/* Windows from `at` on, `rows` of them of `width` tokens, in one run; each predicts all but its
 * first token. */
static hp_status score_windows(lm_scorer *s, const int32_t *at, int64_t rows, int64_t width,
                               int32_t *labels, float *losses, score *sum) {
  for (int64_t r = 0; r < rows; r++)
    for (int64_t t = 0; t < width; t++)
      labels[r * width + t] = t + 1 < width ? at[r * width + t + 1] : IGNORE;
  HP_TRY(lm_scorer_run(s, &(lm_batch){.ids = at, .labels = labels}, losses));
  for (int64_t i = 0; i < rows * width; i++)
    if (labels[i] != IGNORE) {
      sum->nll += (double)losses[i];
      sum->predictions++;
    }
  return HP_OK;
}

/* A program for `rows` windows of `width`, used from *at on as long as enough tokens are left. */
static hp_status score_group(lm *m, const token_ids *ids, int64_t *at, int64_t rows, int64_t width,
                             score *sum) {
  int64_t n = (int64_t)ids->len, block = rows * width;
  if (width < 2 || n - *at < block) return HP_OK;
  lm_scorer *s;
  int32_t *labels = mem_calloc((size_t)block, sizeof *labels);
  float *losses = mem_calloc((size_t)block, sizeof *losses);
  hp_status st = labels && losses
                     ? lm_scorer_create(m, rows, width, lm_token_losses, rows * width, 0, &s)
                     : HP_ERR_OOM;
  if (!st) {
    for (; !st && n - *at >= block; *at += block) {
      char line[80];
      snprintf(line, sizeof line, "%lld of %lld tokens", (long long)*at, (long long)n);
      log_progress(line);
      st = score_windows(s, ids->at + *at, rows, width, labels, losses, sum);
    }
    lm_scorer_free(s);
  }
  log_progress("");
  mem_free(labels);
  mem_free(losses);
  return st;
}

/* Tokens of a window, and windows at once. */
static void find_windows(const args *a, const lm *m, int64_t n, int64_t *width, int64_t *rows) {
  *width = a->seq ? a->seq : m->c.max_length;
  if (!a->seq && *width > n && n > 1) *width = n;
  *rows = a->batch ? a->batch : *width > 0 && *width < BATCH_TOKENS ? BATCH_TOKENS / *width : 1;
}

typedef struct {
  const args *a;
  const token_ids *ids;
} planned;

/* Of the largest program. */
static hp_status find_resident(const void *context, lm *m, uint64_t *bytes) {
  const planned *p = context;
  int64_t width, rows, n = (int64_t)p->ids->len;
  hp_program_stats s;
  find_windows(p->a, m, n, &width, &rows);
  if (n < width * rows) rows = 1;
  if (n < width) width = n;
  if (width < 2) HP_FAIL(HP_ERR_INPUT, "too short (tokens: %lld)", (long long)n);
  HP_TRY(lm_scorer_plan(m, rows, width, lm_token_losses, &s));
  *bytes = s.memory.planned_bytes;
  return HP_OK;
}

static hp_status run_eval(const args *a, lm *m, const token_ids *ids, score *sum) {
  lm_tokens all = {ids->at, (int64_t)ids->len};
  int64_t width, rows, at = 0;
  find_windows(a, m, all.n, &width, &rows);
  if (width < 2) HP_FAIL(HP_ERR_ARG, "--seq %lld: expected 2 or more", (long long)width);
  for (int64_t i = 0; i < all.n; i++)
    if (all.ids[i] < 0 || all.ids[i] >= m->c.vocab)
      HP_FAIL(HP_ERR_INPUT, "token id %d is not in 0..%lld, the vocabulary of %s", all.ids[i],
              (long long)m->c.vocab - 1, m->path);
  if (width > m->c.max_length) {
    if (!m->c.rope.theta)
      HP_FAIL(HP_ERR_ARG, "--seq %lld is beyond the model's %lld learned positions",
              (long long)width, (long long)m->c.max_length);
    log_warn("--seq %lld is beyond the model's max_position_embeddings %lld", (long long)width,
             (long long)m->c.max_length);
  }
  cli_tell_rows(&a->m, rows, 0);
  HP_TRY(score_group(m, ids, &at, rows, width, sum));
  HP_TRY(score_group(m, ids, &at, 1, width, sum));
  HP_TRY(score_group(m, ids, &at, 1, all.n - at, sum));
  if (!sum->predictions)
    HP_FAIL(HP_ERR_INPUT, "%s: too short (tokens: %lld), at least two are needed to predict one",
            a->data ? a->data : "--tokens", (long long)all.n);
  return HP_OK;
}

static hp_status print_score(const args *a, const score *s) {
  double nll = s->nll / (double)s->predictions;
  if (!isfinite(nll))
    HP_FAIL(HP_ERR_NUMERIC, "%s: the loss is not finite (%g); are its weights damaged?", a->m.model,
            nll);
  str out = {0};
  if (a->m.json) {
    json_writer w = {.out = &out};
    json_open_map(&w);
    json_put_key(&w, "tokens"), json_put_int(&w, s->predictions);
    json_put_key(&w, "nll"), json_put_double(&w, nll);
    json_put_key(&w, "ppl"), json_put_double(&w, exp(nll));
    json_close(&w);
  } else {
    str_printf(&out, "%lld predictions, mean NLL %.6f, perplexity %.4f", (long long)s->predictions,
               nll, exp(nll));
  }
  hp_status st = str_status(&out);
  if (!st) puts(out.at);
  str_free(&out);
  return st;
}

int verb_eval(int argc, char **argv) {
  args a = {0};
  const char *rest[256];
  int n;
  const cli_option option[] =
      {MODEL_OPTIONS(a.m),
       {"--data", CLI_TEXT, &a.data, "FILE", "text to score"},
       {"--tokens", CLI_TEXT, &a.tokens, "1,2,3", "token ids in place of --data"},
       {"--seq", CLI_INT, &a.seq, "N", "tokens of a window (default: max_position_embeddings)"},
       {"--batch", CLI_INT, &a.batch, "N", "windows at once (default: about 2048 tokens)"}};
  const cli_spec spec =
      {"hyper eval --model DIR --data FILE [--seq N] [--json]",
       "Mean negative log likelihood and perplexity over consecutive windows, each of which\n"
       "predicts all but its first token.",
       "hyper eval --model models/tiny --data book.txt --seq 512 --json", option,
       sizeof option / sizeof *option};
  if (argc > 256) return cli_usage(argv[0], "too many arguments");
  int code = cli_parse_keys(&spec, argc, argv, rest, &n);
  if (code != CLI_GO_ON) return code;
  if (n) return cli_usage(argv[0], "\"%s\" is not expected", rest[0]);
  if (!a.data == !a.tokens) return cli_usage(argv[0], "give --data or --tokens");
  if (a.seq < 0 || a.seq > INT32_MAX || a.batch < 0 || a.batch > 65536)
    return cli_usage(argv[0], "--seq or --batch is out of range");
  hp_device *d = NULL;
  void *opened = NULL;
  token_ids ids = {0};
  score sum = {0};
  const planned p = {&a, &ids};
  const cli_work work = {find_resident, &p};
  hp_status st = a.m.model ? read_ids(&a, &ids)
                           : err_set(HP_ERR_ARG, __FILE__, __LINE__, "--model DIR is missing");
  if (!st) st = cli_open_model(&a.m, false, &work, &d, &opened);
  if (!st) st = run_eval(&a, opened, &ids, &sum);
  if (!st) st = print_score(&a, &sum);
  lm_free(opened);
  if (opened) hp_device_close(d);
  vec_free(&ids);
  return st ? cli_fail(st) : 0;
}
