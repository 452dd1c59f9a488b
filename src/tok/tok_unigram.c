/* Unigram: the split of a word with the largest sum of token scores (Viterbi over the bytes). */
#include "tok/tok_model.h"
#include "tok/unicode.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double unknown_penalty = 10.0;

static hp_status parse_entry(const tree_node *e, size_t id, tok_model *m) {
  const tree_node *score = e->kind == TREE_LIST && e->len == 2 ? e->child[1] : NULL;
  if (!score || e->child[0]->kind != TREE_STRING)
    TREE_FAIL(e, "expected [token, score], found %s", tree_what(e).text);
  HP_TRY(tree_as_double(score, &m->score[id]));
  if (!isfinite(m->score[id])) TREE_FAIL(score, "the score of a token must be finite");
  const tree_node *t = e->child[0];
  return tok_vocab_add(&m->vocab, t->string, t->len, (int64_t)id, t->source, t->line);
}

hp_status tok_unigram_parse(const tree_node *r, tok_model *m) {
  const tree_node *vocab;
  size_t unk = SIZE_MAX;
  HP_TRY(tree_need_list(r, "vocab", &vocab));
  size_t n = vocab->len;
  HP_TRY(tree_opt_bool(r, "byte_fallback", m->byte_fallback, &m->byte_fallback));
  HP_TRY(tok_opt_count(r, "unk_id", &unk));
  if (unk != SIZE_MAX && unk >= n)
    TREE_FAIL(tree_get(r, "unk_id"), "is %zu, but the vocabulary has %zu tokens", unk, n);
  m->unk = unk == SIZE_MAX ? -1 : (int32_t)unk;
  HP_TRY(tok_vocab_reserve(&m->vocab, n));
  m->score = mem_calloc(n, sizeof *m->score);
  HP_TRY_MEM(m->score);
  double least = INFINITY;
  for (size_t i = 0; i < n; i++) {
    HP_TRY(parse_entry(vocab->child[i], i, m));
    if (m->score[i] < least) least = m->score[i];
  }
  m->unk_score = least - unknown_penalty;
  for (int i = 0; i < 256; i++) {
    char text[8];
    snprintf(text, sizeof text, "<0x%02X>", (unsigned)i);
    if (!tok_vocab_find(&m->vocab, text, 6, &m->byte[i])) m->byte[i] = -1;
  }
  return tok_trie_add_vocab(&m->trie, &m->vocab, m->file);
}

static void offer_path(tok_best *to, double score, size_t from, int32_t id) {
  if (to->from != UINT32_MAX && !(score > to->score)) return;
  *to = (tok_best){score, (uint32_t)from, id};
}

static hp_status fail_missing_unk(const tok_model *m) {
  HP_FAIL(HP_ERR_INPUT,
          "%s: the text has a character that is no token, and the model has no \"unk_id\"",
          m->file);
}

/* Best way to reach every byte.  A character that is no token by itself may be unknown. */
static hp_status find_best_path(const tok_model *m, tok_model_work *w, const char *word, size_t n) {
  w->best.len = 0;
  if (!vec_reserve(&w->best, n + 1)) return HP_ERR_OOM;
  tok_best *best = w->best.at;
  for (size_t i = 0; i <= n; i++) best[i] = (tok_best){0, UINT32_MAX, -1};
  for (size_t at = 0, k; at < n; at += k) {
    double here = best[at].score;
    bool alone = false;
    uint32_t node = 0;
    k = utf8_len(word + at);
    for (size_t i = at; i < n; i++) {
      node = tok_trie_child(&m->trie, node, (unsigned char)word[i]);
      if (!node) break;
      uint32_t value = m->trie.node.at[node].value;
      if (!value) continue;
      int32_t id = (int32_t)(value - 1);
      offer_path(&best[i + 1], here + m->score[id], at, id);
      alone = alone || i + 1 - at == k;
    }
    if (alone) continue;
    if (m->unk < 0) return fail_missing_unk(m);
    offer_path(&best[at + k], here + m->unk_score, at, m->unk);
  }
  return HP_OK;
}

/* A run of unknown characters: one token if its text is one, else its bytes, else unk. */
static hp_status push_unknown(const tok_model *m, const char *at, size_t n, token_ids *out) {
  int32_t id;
  if (tok_vocab_find(&m->vocab, at, n, &id)) return vec_push(out, id) ? HP_OK : HP_ERR_OOM;
  size_t before = out->len;
  for (size_t i = 0; m->byte_fallback && i < n; i++) {
    size_t k;
    unsigned char b = (unsigned char)at[i];
    uint32_t cp = (b & 0xC0) == 0x80 ? 0 : utf8_get(at + i, &k);
    if (unicode_is_escape(cp)) {
      b = (unsigned char)(cp - UNICODE_ESCAPE);
      i += 2;
    }
    if (m->byte[b] < 0) {
      out->len = before;
      return vec_push(out, m->unk) ? HP_OK : HP_ERR_OOM;
    }
    if (!vec_push(out, m->byte[b])) return HP_ERR_OOM;
  }
  return m->byte_fallback || vec_push(out, m->unk) ? HP_OK : HP_ERR_OOM;
}

hp_status tok_unigram_encode(const tok_model *m, tok_model_work *w, const char *word, size_t n,
                             token_ids *out) {
  HP_TRY(find_best_path(m, w, word, n));
  tok_best *best = w->best.at;
  /* turn the links round, so that the path can be followed from the left */
  uint32_t next = (uint32_t)n;
  for (uint32_t at = (uint32_t)n; at;) {
    uint32_t from = best[at].from;
    best[at].from = next;
    next = at;
    at = from;
  }
  for (uint32_t at = 0, end = next; at < n;) {
    int32_t id = best[end].id;
    uint32_t start = at;
    at = end;
    end = best[at].from;
    if (id != m->unk) {
      if (!vec_push(out, id)) return HP_ERR_OOM;
      continue;
    }
    while (at < n && best[end].id == m->unk) {
      at = end;
      end = best[at].from;
    }
    HP_TRY(push_unknown(m, word + start, at - start, out));
  }
  return HP_OK;
}
