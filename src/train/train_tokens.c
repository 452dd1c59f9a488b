/* Texts into samples of tokens, as LlamaFactory's pre-training processor makes them. */
#include "dataset/chat_template.h"
#include "train/losses.h"

#include "base/io.h"
#include "base/json.h"
#include "base/milestone.h"

#include <string.h>

/* --- end, begin and pad tokens ---------------------------------------------------------------- */

/* add_bos_token of tokenizer_config.json; where there is a tokenizer.json, Transformers 5 leaves it
 * to that file's post-processor, which stage pt does not use. */
static hp_status read_add_bos(const char *dir, bool *out) {
  str path = {0};
  tree file = {0};
  *out = false;
  hp_status st = path_join(&path, dir, "tokenizer.json");
  bool whole = !st && file_exists(path.at);
  if (!st) st = path_join(&path, dir, "tokenizer_config.json");
  if (!st && !whole && file_exists(path.at)) {
    st = json_load(path.at, 0, &file);
    if (!st) st = tree_opt_bool(file.root, "add_bos_token", false, out);
  }
  tree_free(&file);
  str_free(&path);
  return st;
}

/* The template's end token, or the tokenizer's; both must be tokens that the model has. */
static hp_status find_eos(const train_config *c, const tokenizer *t, const char *dir,
                          int32_t *out) {
  const char *eos = NULL;
  if (c->template) {
    chat_template of;
    HP_TRY(chat_template_find(c->template, &of));
    eos = of.replaces_eos ? of.stop[0] : NULL;
  }
  *out = tokenizer_role(t, TOKEN_EOS);
  if (!eos && *out < 0) eos = "<|endoftext|>"; /* what LlamaFactory gives a tokenizer without */
  if (eos) *out = tokenizer_find(t, eos, strlen(eos));
  if (*out >= 0) return HP_OK;
  if (c->template)
    TREE_FAIL(
        train_config_at(c, KEY_template),
        "template %s ends texts with %s, which is no token of %s; leave template out, or take "
        "the one that belongs to the model",
        c->template, eos, dir);
  HP_FAIL(HP_ERR_INPUT,
          "%s: the tokenizer has no end token; set \"eos_token\" in "
          "tokenizer_config.json to one of its tokens",
          dir);
}

hp_status token_rules_find(const train_config *c, const tokenizer *t, const char *dir,
                           token_rules *out) {
  token_rules r = {.tokenizer = t, .bos = -1};
  bool add_bos;
  HP_TRY(find_eos(c, t, dir, &r.eos));
  HP_TRY(read_add_bos(dir, &add_bos));
  r.pad = tokenizer_role(t, TOKEN_PAD);
  if (r.pad < 0) r.pad = r.eos;
  if (add_bos) r.bos = tokenizer_role(t, TOKEN_BOS);
  /* LlamaFactory ends texts for Llama 3 with its own text token, whatever the template replaced */
  bool llama3 = c->template && !strcmp(c->template, "llama3");
  r.end = llama3 ? "<|end_of_text|>" : tokenizer_token(t, r.eos, NULL);
  *out = r;
  return HP_OK;
}

/* --- tokenizing, in parallel ------------------------------------------------------------------ */

enum { TEXTS_A_PART = 32 };

typedef struct {
  const token_rules *rules;
  const char *begin; /* before every text, or NULL */
  const dataset_sample *sample;
  int64_t n;
  token_ids *ids;      /* one list a text */
  err_report *failure; /* one a part; code HP_OK: none */
} tokenizing;

static hp_status encode(const tokenizing *w, int64_t i, str *joined) {
  milestone_count_work();
  str_clear(joined);
  if (w->begin) str_add(joined, w->begin);
  str_add_n(joined, w->sample[i].text.at, w->sample[i].text.len);
  str_add(joined, w->rules->end);
  HP_TRY(str_status(joined));
  return tokenizer_encode(w->rules->tokenizer, joined->at, joined->len, 0, &w->ids[i]);
}

static void encode_part(void *ctx, int64_t part) {
  tokenizing *w = ctx;
  str joined = {0};
  hp_status st = HP_OK;
  int64_t first = part * TEXTS_A_PART, last = first + TEXTS_A_PART;
  for (int64_t i = first; i < last && i < w->n && !st; i++) st = encode(w, i, &joined);
  if (st) err_take(st, &w->failure[part]);
  str_free(&joined);
}

static hp_status encode_all(tokenizing *w, pool *p) {
  int64_t parts = (w->n + TEXTS_A_PART - 1) / TEXTS_A_PART;
  w->ids = mem_calloc((size_t)w->n, sizeof *w->ids);
  w->failure = mem_calloc((size_t)parts, sizeof *w->failure);
  if (!w->ids || !w->failure) return HP_ERR_OOM;
  pool_run(p, parts, encode_part, w);
  for (int64_t i = 0; i < parts; i++)
    if (w->failure[i].code) return err_give(&w->failure[i]);
  return HP_OK;
}

/* --- cutting ---------------------------------------------------------------------------------- */

static int64_t group_tokens(const tokenizing *w, const sample_group *g) {
  int64_t n = 0;
  milestone_count_work();
  for (int64_t i = g->first; i < g->last; i++) n += (int64_t)w->ids[i].len;
  return n;
}

/* Appends the whole blocks of a group to the samples. */
static void cut_group(const tokenizing *w, const sample_group *g, int64_t block, sample_set *out) {
  int64_t left = group_tokens(w, g) / block * block, at = out->start[out->samples];
  for (int64_t i = g->first; i < g->last && left > 0; i++) {
    int64_t n = (int64_t)w->ids[i].len < left ? (int64_t)w->ids[i].len : left;
    if (n) memcpy(out->ids + at, w->ids[i].at, (size_t)n * sizeof *out->ids);
    at += n;
    left -= n;
  }
  while (out->start[out->samples] + block <= at) {
    out->start[out->samples + 1] = out->start[out->samples] + block;
    if (w->rules->bos >= 0) out->ids[out->start[out->samples]] = w->rules->bos;
    out->samples++;
  }
}

static hp_status pack(const train_config *c, const char *shown, const tokenizing *w,
                      sample_set *out) {
  int64_t blocks = 0, tokens = 0;
  for (sample_group g = sample_group_first(c, w->n); sample_group_next(&g);) {
    int64_t n = group_tokens(w, &g);
    tokens += n;
    blocks += n / c->is.block;
  }
  if (!blocks)
    HP_FAIL(HP_ERR_INPUT,
            "%s: %lld texts make %lld tokens, too few for one block of %lld; lower "
            "cutoff_len, or give more data",
            shown, (long long)w->n, (long long)tokens, (long long)c->is.block);
  out->ids = mem_calloc((size_t)(blocks * c->is.block), sizeof *out->ids);
  out->start = mem_calloc((size_t)blocks + 1, sizeof *out->start);
  if (!out->ids || !out->start) return HP_ERR_OOM;
  for (sample_group g = sample_group_first(c, w->n); sample_group_next(&g);)
    cut_group(w, &g, c->is.block, out);
  out->longest = c->is.block;
  return HP_OK;
}

static hp_status truncate(const train_config *c, const char *shown, const tokenizing *w,
                          sample_set *out) {
  int64_t tokens = 0;
  out->start = mem_calloc((size_t)w->n + 1, sizeof *out->start);
  HP_TRY_MEM(out->start);
  for (int64_t i = 0; i < w->n; i++) {
    int64_t n = (int64_t)w->ids[i].len;
    if (n > c->is.block) n = c->is.block;
    if (!n)
      HP_FAIL(HP_ERR_INPUT, "%s: text %lld has no token at all; remove it", shown,
              (long long)i + 1);
    if (n > out->longest) out->longest = n;
    tokens += n;
    out->start[i + 1] = tokens;
  }
  out->ids = mem_calloc((size_t)tokens, sizeof *out->ids);
  HP_TRY_MEM(out->ids);
  for (int64_t i = 0; i < w->n; i++)
    memcpy(out->ids + out->start[i], w->ids[i].at,
           (size_t)(out->start[i + 1] - out->start[i]) * sizeof *out->ids);
  out->samples = w->n;
  return HP_OK;
}

hp_status text_samples(const train_config *c, const token_rules *r, const char *shown,
                       const dataset *d, pool *p, sample_set *out) {
  bool begin = r->bos >= 0 && !c->is.packed; /* a block gets its first token replaced instead */
  tokenizing w = {.rules = r,
                  .begin = begin ? tokenizer_token(r->tokenizer, r->bos, NULL) : NULL,
                  .sample = d->sample.at,
                  .n = (int64_t)d->sample.len};
  sample_set s = {.name = ""};
  hp_status st = encode_all(&w, p);
  if (!st) st = c->is.packed ? pack(c, shown, &w, &s) : truncate(c, shown, &w, &s);
  for (int64_t i = 0; w.ids && i < w.n; i++) vec_free(&w.ids[i]);
  mem_free(w.ids);
  mem_free(w.failure);
  if (st) sample_set_free(&s);
  else *out = s;
  return st;
}
