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
    if (g->n_eos == GENERATION_ENDS_MAX)
      TREE_FAIL(n, "more than %d end tokens", GENERATION_ENDS_MAX);
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

/* A text at work: its tokens, the prompt's first, and its place in the session. */
typedef struct {
  const lm_tokens *prompt;
  writer w;
  token_ids all;
  int64_t sequence; /* -1: it waits for room in the cache, or has ended */
  bool ended;
  double start_s;
  generation_result r;
} text;

/* The text goes on from the prompt's: in some tokenizers what comes first loses its space. */
static hp_status read_prompt(text *x, const tokenizer *t) {
  str passed = {0};
  hp_status st = HP_OK;
  if (t) x->w.stream = tokenizer_stream_create(t, true);
  for (int64_t i = 0; !st && i < x->prompt->n; i++) {
    if (!vec_push(&x->all, x->prompt->ids[i])) st = HP_ERR_OOM;
    str_clear(&passed);
    if (!st && t) st = tokenizer_stream_push(&x->w.stream, x->prompt->ids[i], &passed);
  }
  str_free(&passed);
  str_add(&x->r.text, "");
  return st;
}

static hp_status end_text(text *x, session *s) {
  writer *w = &x->w;
  if (w->stream.t && !w->stopped) HP_TRY(tokenizer_stream_flush(&w->stream, w->text));
  show(w, true);
  session_end(s, x->sequence);
  x->sequence = -1;
  x->ended = true;
  x->r.seconds = time_now_s() - x->start_s;
  return HP_OK;
}

/* Draws the next token from logits. */
static hp_status add_token(text *x, session *s, const lm *m, const generation *g, float *logits) {
  int32_t id;
  writer *w = &x->w;
  HP_TRY(sampling_next(&g->sampling, logits, m->c.vocab, x->all.at, (int64_t)x->all.len, &id));
  if (!vec_push(&x->all, id) || !vec_push(&x->r.ids, id)) return HP_ERR_OOM;
  if (x->r.ids.len == 1) x->r.first_token_s = time_now_s() - x->start_s;
  if (is_end(g, id)) return end_text(x, s);
  if (w->stream.t) HP_TRY(tokenizer_stream_push(&w->stream, id, w->text));
  show(w, false);
  if (g->goes_on && !g->goes_on(g->ctx)) return end_text(x, s);
  return (int64_t)x->r.ids.len == g->max_new_tokens || w->stopped ? end_text(x, s) : HP_OK;
}

/* --- texts side by side ----------------------------------------------------------------------- */

typedef struct {
  lm *m;
  session *s;
  const generation *g;
  text *text;
  int64_t n;
  session_tokens *feed; /* [n] */
  text **of;            /* [n] whose feed it is */
  float *logits;        /* [n,V] */
} texts;

static int64_t blocks_of(int64_t tokens) { return (tokens + CACHE_BLOCK - 1) / CACHE_BLOCK; }

/* Blocks that the texts at work may still take. */
static int64_t count_promised(const texts *x) {
  int64_t n = 0;
  for (int64_t i = 0; i < x->n; i++) {
    const text *t = &x->text[i];
    if (t->sequence < 0) continue;
    n += blocks_of(t->prompt->n + x->g->max_new_tokens) -
         blocks_of(session_length(x->s, t->sequence));
  }
  return n;
}

/* What is fed next: the last token of the texts at work, and the prompts of those that wait, in
 * their order, as far as the cache has room for all that they may become. */
static hp_status choose_feed(texts *x, int64_t *n) {
  int64_t room = session_cache_get(x->s).free_blocks - count_promised(x);
  *n = 0;
  for (int64_t i = 0; i < x->n; i++) {
    text *t = &x->text[i];
    session_tokens f = {t->sequence, &t->all.at[t->all.len - 1], 1};
    if (t->ended) continue;
    if (t->sequence < 0) {
      room -= blocks_of(t->prompt->n + x->g->max_new_tokens);
      if (room < 0 && *n) break;
      HP_TRY(session_add(x->s, &t->sequence));
      f = (session_tokens){t->sequence, t->all.at, t->prompt->n};
      t->start_s = time_now_s();
    }
    x->of[*n] = t;
    x->feed[(*n)++] = f;
  }
  return HP_OK;
}

static hp_status decode(texts *x) {
  for (int64_t n;;) {
    HP_TRY(choose_feed(x, &n));
    if (!n) return HP_OK;
    HP_TRY(session_feed(x->s, x->feed, n, x->logits));
    for (int64_t i = 0; i < n; i++)
      HP_TRY(add_token(x->of[i], x->s, x->m, x->g, x->logits + (size_t)(i * x->m->c.vocab)));
  }
}

static hp_status run_texts(texts *x, const tokenizer *t, const lm_tokens *prompt) {
  int64_t longest = 0;
  for (int64_t i = 0; i < x->n; i++) {
    text *a = &x->text[i];
    *a = (text){.prompt = &prompt[i], .sequence = -1};
    a->w = (writer){.g = x->g, .text = &a->r.text};
    HP_TRY(read_prompt(a, t));
    if (prompt[i].n > longest) longest = prompt[i].n;
  }
  session_options o = {.sequences = x->n,
                       .tokens = longest + x->g->max_new_tokens,
                       .bytes = x->g->cache,
                       .offload = x->g->offload,
                       .sparse = x->g->sparse};
  x->s = x->g->session;
  if (!x->s) HP_TRY(session_create(x->m, &o, &x->s));
  return decode(x);
}

hp_status generate_many(lm *m, const tokenizer *t, const lm_tokens *prompt, int64_t n,
                        const generation *g, generation_result *out) {
  for (int64_t i = 0; i < n; i++) HP_TRY(lm_check_tokens(m, &prompt[i]));
  if (g->max_new_tokens < 1 || g->max_new_tokens > INT32_MAX / 4)
    HP_FAIL(HP_ERR_ARG, "max_new_tokens %lld: expected 1 or more", (long long)g->max_new_tokens);
  texts x = {.m = m, .g = g, .n = n};
  x.text = mem_calloc((size_t)n, sizeof *x.text);
  x.feed = mem_calloc((size_t)n, sizeof *x.feed);
  x.of = mem_calloc((size_t)n, sizeof *x.of);
  x.logits = mem_calloc((size_t)(n * m->c.vocab), sizeof *x.logits);
  hp_status st = x.text && x.feed && x.of && x.logits ? HP_OK : HP_ERR_OOM;
  if (!st) st = run_texts(&x, t, prompt);
  for (int64_t i = 0; x.text && i < n; i++) {
    if (x.text[i].w.stream.t) tokenizer_stream_free(&x.text[i].w.stream);
    vec_free(&x.text[i].all);
    if (st && g->session && x.s) session_end(x.s, x.text[i].sequence);
    if (st) generation_result_free(&x.text[i].r);
    else out[i] = x.text[i].r;
  }
  if (!g->session) session_free(x.s);
  mem_free(x.text);
  mem_free(x.feed);
  mem_free(x.of);
  mem_free(x.logits);
  return st;
}

hp_status generate_run(lm *m, const tokenizer *t, const lm_tokens *prompt, const generation *g,
                       generation_result *out) {
  return generate_many(m, t, prompt, 1, g, out);
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
