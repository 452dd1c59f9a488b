#include "serve/generate.h"

#include "base/io.h"
#include "base/json.h"
#include "base/thread.h"
#include "serve/session.h"

#include <stdio.h>
#include <string.h>

enum { DEFAULT_NEW_TOKENS = 128 };

static hp_status read_eos(const tree_node *n, generation *g) {
  if (!n || n->kind == TREE_NULL) return HP_OK;
  bool list = n->kind == TREE_LIST;
  g->n_eos = 0;
  for (uint32_t i = 0; i < (list ? n->len : 1); i++) {
    int64_t id;
    if (g->n_eos == 8) TREE_FAIL(n, "more than 8 end tokens");
    HP_TRY(config_read_id(list ? n->child[i] : n, &id));
    g->eos[g->n_eos++] = (int32_t)id;
  }
  return HP_OK;
}

/* Sampling is used only with do_sample; its values default as in Transformers. */
static hp_status read_config(const tree_node *root, generation *g) {
  bool sample;
  HP_TRY(tree_expect(root, TREE_MAP));
  HP_TRY(tree_opt_bool(root, "do_sample", false, &sample));
  HP_TRY(tree_opt_int(root, "max_new_tokens", DEFAULT_NEW_TOKENS, &g->max_new_tokens));
  HP_TRY(tree_opt_double(root, "repetition_penalty", 1, &g->sampling.repetition_penalty));
  if (sample) {
    HP_TRY(tree_opt_double(root, "temperature", 1, &g->sampling.temperature));
    HP_TRY(tree_opt_double(root, "top_p", 1, &g->sampling.top_p));
    HP_TRY(tree_opt_int(root, "top_k", 50, &g->sampling.top_k));
  }
  return read_eos(tree_get(root, "eos_token_id"), g);
}

/* Values out of range, with the file that holds them. */
static hp_status check_file(const char *path, const generation *g) {
  hp_status st = sampling_check(&g->sampling);
  if (!st) return HP_OK;
  char why[256];
  snprintf(why, sizeof why, "%s", err_message());
  err_clear();
  HP_FAIL(HP_ERR_INPUT, "%s: %s", path, why);
}

hp_status generation_defaults(const lm *m, generation *g) {
  *g = (generation){.max_new_tokens = DEFAULT_NEW_TOKENS,
                    .sampling = {.top_p = 1, .repetition_penalty = 1}};
  for (int i = 0; i < m->c.n_eos; i++) g->eos[g->n_eos++] = (int32_t)m->c.eos[i];
  str path = {0};
  tree t;
  hp_status st = path_join(&path, m->path, "generation_config.json");
  if (!st && path_exists(path.at)) {
    st = json_load(path.at, 1 << 20, &t);
    if (!st) {
      st = read_config(t.root, g);
      if (!st) st = check_file(path.at, g);
      tree_free(&t);
    }
  }
  str_free(&path);
  return st;
}

/* The text as it grows: shown up to where a stop text might still begin. */
typedef struct {
  const generation *g;
  tokenizer_stream stream;
  str *text;
  size_t shown;
  bool stopped;
} writer;

/* Bytes at the end of text that might be the start of `stop`. */
static size_t held_back(const str *text, const char *stop) {
  size_t most = strlen(stop) - 1;
  if (most > text->len) most = text->len;
  for (size_t n = most; n > 0; n--)
    if (!memcmp(text->at + text->len - n, stop, n)) return n;
  return 0;
}

static void show(writer *w, bool all) {
  const char *stop = w->g->stop;
  if (stop && *stop && w->text->len) {
    const char *hit = strstr(w->text->at, stop);
    if (hit) {
      w->text->len = (size_t)(hit - w->text->at);
      w->text->at[w->text->len] = 0;
      w->stopped = true;
    }
  }
  size_t to = w->text->len;
  if (!all && !w->stopped && stop && *stop) to -= held_back(w->text, stop);
  if (w->g->piece && to > w->shown &&
      !w->g->piece(w->g->ctx, w->text->at + w->shown, to - w->shown))
    w->stopped = true;
  if (to > w->shown) w->shown = to;
}

static bool is_end(const generation *g, int32_t id) {
  for (int i = 0; i < g->n_eos; i++)
    if (g->eos[i] == id) return true;
  return false;
}

/* The text goes on from the prompt's: in some tokenizers what comes first loses its space. */
static hp_status read_prompt(writer *w, const lm_tokens *prompt) {
  str passed = {0};
  hp_status st = HP_OK;
  for (int64_t i = 0; !st && w->stream.t && i < prompt->n; i++) {
    str_clear(&passed);
    st = tokenizer_stream_push(&w->stream, prompt->ids[i], &passed);
  }
  str_free(&passed);
  return st;
}

static hp_status feed(session *s, const int32_t *ids, int64_t n, float *logits) {
  return session_feed(s, &(session_tokens){0, ids, n}, 1, logits);
}

/* One token after another; `all` holds the prompt and what was drawn. */
static hp_status decode(session *s, const lm *m, const generation *g, token_ids *all,
                        int64_t prompt, float *logits, writer *w, generation_result *out) {
  double start = time_now_s();
  HP_TRY(feed(s, all->at, prompt, logits));
  for (int64_t i = 0; i < g->max_new_tokens && !w->stopped; i++) {
    int32_t id;
    HP_TRY(sampling_next(&g->sampling, logits, m->c.vocab, all->at, (int64_t)all->len, &id));
    if (!vec_push(all, id) || !vec_push(&out->ids, id)) return HP_ERR_OOM;
    if (i == 0) out->first_token_s = time_now_s() - start;
    if (is_end(g, id)) break;
    if (w->stream.t) HP_TRY(tokenizer_stream_push(&w->stream, id, w->text));
    show(w, false);
    if (i + 1 < g->max_new_tokens && !w->stopped) HP_TRY(feed(s, &id, 1, logits));
  }
  if (w->stream.t && !w->stopped) HP_TRY(tokenizer_stream_flush(&w->stream, w->text));
  show(w, true);
  return HP_OK;
}

hp_status generate_run(lm *m, const tokenizer *t, const lm_tokens *prompt, const generation *g,
                       generation_result *out) {
  generation_result r = {0};
  token_ids all = {0};
  session *s = NULL;
  writer w = {.g = g, .text = &r.text};
  HP_TRY(lm_check_tokens(m, prompt));
  if (g->max_new_tokens < 1 || g->max_new_tokens > INT32_MAX / 4)
    HP_FAIL(HP_ERR_ARG, "max_new_tokens %lld: expected 1 or more", (long long)g->max_new_tokens);
  if (t) w.stream = tokenizer_stream_create(t, true);
  float *logits = mem_calloc((size_t)m->c.vocab, sizeof *logits);
  hp_status st = logits ? HP_OK : HP_ERR_OOM;
  for (int64_t i = 0; !st && i < prompt->n; i++)
    if (!vec_push(&all, prompt->ids[i])) st = HP_ERR_OOM;
  str_add(&r.text, "");
  if (!st) st = read_prompt(&w, prompt);
  session_options o = {.sequences = 1, .tokens = prompt->n + g->max_new_tokens, .bytes = g->cache};
  int64_t sequence;
  if (!st) st = session_create(m, &o, &s);
  if (!st) st = session_add(s, &sequence); /* number 0 */
  double start = time_now_s();
  if (!st) st = decode(s, m, g, &all, prompt->n, logits, &w, &r);
  r.seconds = time_now_s() - start;
  session_free(s);
  if (t) tokenizer_stream_free(&w.stream);
  vec_free(&all);
  mem_free(logits);
  if (st) generation_result_free(&r);
  else *out = r;
  return st;
}

void generation_result_free(generation_result *r) {
  vec_free(&r->ids);
  str_free(&r->text);
}

static void put_ids(json_writer *w, const char *key, const int32_t *ids, size_t n) {
  json_put_key(w, key);
  json_open_list(w);
  for (size_t i = 0; i < n; i++) json_put_int(w, ids[i]);
  json_close(w);
}

void generation_print_json(const lm_tokens *prompt, const generation_result *r, str *out) {
  json_writer w = {.out = out};
  json_open_map(&w);
  put_ids(&w, "prompt_tokens", prompt->ids, (size_t)prompt->n);
  put_ids(&w, "tokens", r->ids.at, r->ids.len);
  json_put_key(&w, "text");
  json_put_string_n(&w, r->text.at, r->text.len);
  json_put_key(&w, "tokens_per_s");
  json_put_double(&w, r->seconds > 0 ? (double)r->ids.len / r->seconds : 0);
  json_put_key(&w, "first_token_s");
  json_put_double(&w, r->first_token_s);
  json_put_key(&w, "load_s");
  json_put_double(&w, r->load_s);
  json_close(&w);
}
