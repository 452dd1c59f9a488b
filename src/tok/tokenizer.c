#include "tok/tok_internal.h"
#include "tok/unicode.h"

#include <string.h>

void tokenizer_free(tokenizer *t) {
  if (!t) return;
  tok_model_free(&t->model);
  tok_added_free(&t->added);
  tok_normalizer_free(t->normalizer);
  tok_pretokenizer_free(t->pretokenizer);
  tok_decoder_free(t->decoder);
  tok_post_free(&t->post);
  mem_free(t->entry);
  vec_free(&t->extra);
  mem_free(t);
}

/* --- encoding --------------------------------------------------------------------------- */

typedef struct {
  tok_words words;
  tok_cuts cuts, inner;
  tok_model_work model;
  str text, normal;
} encode_work;

static void work_free(encode_work *w) {
  tok_words_free(&w->words);
  tok_cuts_free(&w->cuts);
  tok_cuts_free(&w->inner);
  tok_model_work_free(&w->model);
  str_free(&w->text);
  str_free(&w->normal);
}

/* A stretch of text without plain added tokens: normalized, and cut at normalized added tokens. */
static hp_status add_text(const tokenizer *t, encode_work *w, const char *text, size_t n,
                          bool first, bool plain) {
  if (t->normalizer) {
    str_clear(&w->normal);
    HP_TRY(tok_normalize(t->normalizer, &w->words.matcher, text, n, &w->normal));
    text = w->normal.at ? w->normal.at : "";
    n = w->normal.len;
  }
  HP_TRY(tok_added_cut(&t->added, true, plain, text, n, &w->inner));
  for (size_t i = 0; i < w->inner.cut.len; i++) {
    tok_cut c = w->inner.cut.at[i];
    if (c.id >= 0) HP_TRY(tok_words_add_token(&w->words, c.id));
    else HP_TRY(tok_words_add(&w->words, text + c.at, c.end - c.at, first && !c.at));
  }
  return HP_OK;
}

static hp_status encode_text(const tokenizer *t, encode_work *w, const char *text, size_t n,
                             bool plain, token_ids *out) {
  HP_TRY(tok_added_cut(&t->added, false, plain, text, n, &w->cuts));
  for (size_t i = 0; i < w->cuts.cut.len; i++) {
    tok_cut c = w->cuts.cut.at[i];
    if (c.id >= 0) HP_TRY(tok_words_add_token(&w->words, c.id));
    else HP_TRY(add_text(t, w, text + c.at, c.end - c.at, !c.at, plain));
  }
  w->words.limit = (w->words.text.len + TOK_GROWTH_MIN) * TOK_GROWTH_MAX;
  if (w->words.limit > UINT32_MAX / 2) w->words.limit = UINT32_MAX / 2;
  HP_TRY(tok_pretokenize(t->pretokenizer, &w->words));
  for (size_t i = 0; i < w->words.piece.len; i++) {
    tok_piece p = w->words.piece.at[i];
    if (p.id < 0)
      HP_TRY(tok_model_encode(&t->model, &w->model, w->words.text.at + p.at, p.len, out));
    else if (!vec_push(out, p.id)) return HP_ERR_OOM;
  }
  return HP_OK;
}

/* Adds the template's tokens before and after the ids of the text at out[at..]. */
static hp_status add_template_tokens(const tok_post *p, bool special, token_ids *out, size_t at) {
  token_ids text = {0};
  size_t n = out->len - at;
  if (!p->item.len) return HP_OK;
  if (!vec_reserve(&text, n)) return HP_ERR_OOM;
  if (n) memcpy(text.at, out->at + at, n * sizeof *text.at);
  out->len = at;
  bool ok = true;
  for (size_t i = 0; ok && i < p->item.len; i++) {
    if (p->item.at[i] != TOK_POST_TEXT) {
      ok = !special || vec_push(out, p->item.at[i]);
    } else if ((ok = vec_reserve(out, n)) && n) {
      memcpy(out->at + out->len, text.at, n * sizeof *text.at);
      out->len += n;
    }
  }
  vec_free(&text);
  return ok ? HP_OK : HP_ERR_OOM;
}

hp_status tokenizer_encode(const tokenizer *t, const char *text, size_t n, unsigned flags,
                           token_ids *out) {
  encode_work w = {0};
  hp_status st;
  size_t before = out->len;
  bool plain = (flags & TOKENIZE_PLAIN) || t->split_special;
  if (n > UINT32_MAX / 4)
    HP_FAIL(HP_ERR_ARG, "a text of %zu bytes to tokenize at once; expected less than 1 GiB, cut it",
            n);
  if (utf8_valid(text, n) < n) {
    if (t->takes_bytes) utf8_add_escaped(&w.text, text, n);
    else utf8_add_lossy(&w.text, text, n);
    HP_TRY_GOTO(str_status(&w.text), st);
    text = w.text.at;
    n = w.text.len;
  }
  HP_TRY_GOTO(encode_text(t, &w, text, n, plain, out), st);
  HP_TRY_GOTO(add_template_tokens(&t->post, flags & TOKENIZE_SPECIAL, out, before), st);
done:
  work_free(&w);
  if (st) out->len = before;
  return st;
}

/* --- decoding --------------------------------------------------------------------------- */

hp_status tokenizer_decode(const tokenizer *t, const int32_t *ids, size_t n, bool skip_special,
                           str *out) {
  tok_list list = {0};
  hp_status st = HP_OK;
  for (size_t i = 0; i < n; i++) {
    if (ids[i] < 0 || (size_t)ids[i] >= t->n) continue;
    const tok_entry *e = &t->entry[ids[i]];
    if (!e->text.at || (skip_special && e->special)) continue;
    HP_TRY_GOTO(tok_list_add(&list, e->text.at, e->text.len), st);
  }
  HP_TRY_GOTO(tok_decode(t->decoder, &list, out), st);
done:
  tok_list_free(&list);
  return st;
}

/* --- what it is ------------------------------------------------------------------------- */

int32_t tokenizer_find(const tokenizer *t, const char *token, size_t n) {
  int32_t id;
  const tok_added_token *a = tok_added_find(&t->added, token, n);
  if (a) return a->id;
  return tok_vocab_find(&t->model.vocab, token, n, &id) ? id : -1;
}

const char *tokenizer_token(const tokenizer *t, int32_t id, size_t *n) {
  if (id < 0 || (size_t)id >= t->n || !t->entry[id].name.at) return NULL;
  if (n) *n = t->entry[id].name.len;
  return t->entry[id].name.at;
}

size_t tokenizer_size(const tokenizer *t) { return t->n; }

int32_t tokenizer_find_difference(const tokenizer *a, const tokenizer *b) {
  size_t n = a->n < b->n ? a->n : b->n;
  for (int32_t id = 0; id < (int32_t)n; id++) {
    const char *x = tokenizer_token(a, id, NULL), *y = tokenizer_token(b, id, NULL);
    if (x && y && strcmp(x, y)) return id;
  }
  return -1;
}

const token_ids *tokenizer_extra_specials(const tokenizer *t) { return &t->extra; }

int32_t tokenizer_role(const tokenizer *t, token_role role) {
  return (unsigned)role < TOK_ROLES ? t->role[role] : -1;
}
