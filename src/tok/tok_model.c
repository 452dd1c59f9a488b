#include "tok/tok_model.h"

#include "tok/unicode.h"

#include <stdio.h>
#include <string.h>

/* --- reading ---------------------------------------------------------------------------- */

hp_status tok_model_parse_vocab(const tree_node *vocab, tok_model *m) {
  HP_TRY(tok_vocab_reserve(&m->vocab, vocab->len));
  for (size_t i = 0; i < vocab->len; i++) {
    const tree_node *t = vocab->child[i];
    int64_t id;
    HP_TRY(tree_as_int(t, &id));
    HP_TRY(tok_vocab_add(&m->vocab, t->key, t->key_len, id, t->source, t->line));
  }
  return HP_OK;
}

static hp_status parse_vocab(const tree_node *r, tok_model *m) {
  const tree_node *vocab;
  HP_TRY(tree_need_map(r, "vocab", &vocab));
  return tok_model_parse_vocab(vocab, m);
}

static hp_status parse_bpe(const tree_node *r, tok_model *m) {
  const tree_node *merges, *ranks = NULL, *dropout = tok_get(r, "dropout");
  tok_bpe_options o = {0};
  if (dropout && !(dropout->kind == TREE_INT && dropout->integer == 0) &&
      !(dropout->kind == TREE_FLOAT && dropout->number == 0))
    HP_FAIL(HP_ERR_UNSUPPORTED, "%s: makes ids random; write null in its place",
            tree_where(dropout).text);
  HP_TRY(parse_vocab(r, m));
  HP_TRY(tok_opt_text(r, "unk_token", &o.unk_token));
  HP_TRY(tok_opt_text(r, "continuing_subword_prefix", &o.prefix));
  HP_TRY(tok_opt_text(r, "end_of_word_suffix", &o.suffix));
  HP_TRY(tree_opt_bool(r, "fuse_unk", o.fuse_unk, &o.fuse_unk));
  HP_TRY(tree_opt_bool(r, "byte_fallback", o.byte_fallback, &o.byte_fallback));
  HP_TRY(tree_opt_bool(r, "ignore_merges", o.ignore_merges, &o.ignore_merges));
  HP_TRY(tree_need_list(r, "merges", &merges));
  HP_TRY(tok_bpe_create(&m->vocab, r->source, &o, &m->bpe));
  if (tok_get(r, "merge_ranks")) HP_TRY(tree_need_list(r, "merge_ranks", &ranks));
  return tok_bpe_parse_merges(m->bpe, merges, ranks);
}

static hp_status parse_unk(const tree_node *r, tok_model *m) {
  const tree_node *unk;
  HP_TRY(tok_need_text(r, "unk_token", &unk));
  m->unk = -1;
  (void)tok_vocab_find(&m->vocab, unk->string, unk->len, &m->unk);
  return HP_OK;
}

static hp_status parse_word_piece(const tree_node *r, tok_model *m) {
  const tree_node *prefix;
  HP_TRY(parse_vocab(r, m));
  HP_TRY(parse_unk(r, m));
  HP_TRY(tok_need_text(r, "continuing_subword_prefix", &prefix));
  HP_TRY(tok_need_count(r, "max_input_chars_per_word", &m->word_max));
  HP_TRY(tok_trie_add_vocab(&m->trie, &m->vocab, m->file));
  for (size_t i = 0; i < prefix->len && !m->no_inner; i++) {
    m->inner = tok_trie_child(&m->trie, m->inner, (unsigned char)prefix->string[i]);
    m->no_inner = !m->inner;
  }
  return HP_OK;
}

static hp_status parse_word_level(const tree_node *r, tok_model *m) {
  HP_TRY(parse_vocab(r, m));
  return parse_unk(r, m);
}

/* Old files have no "type": the members tell. */
static hp_status find_kind(const tree_node *r, tok_model_kind *out) {
  static const char *const name[] = {[TOK_BPE] = "BPE",
                                     [TOK_WORD_PIECE] = "WordPiece",
                                     [TOK_WORD_LEVEL] = "WordLevel",
                                     [TOK_UNIGRAM] = "Unigram"};
  const tree_node *type = tok_get(r, "type"), *vocab = tok_get(r, "vocab");
  if (!type) {
    *out = tok_get(r, "merges")                      ? TOK_BPE
           : vocab && vocab->kind == TREE_LIST       ? TOK_UNIGRAM
           : tok_get(r, "continuing_subword_prefix") ? TOK_WORD_PIECE
                                                     : TOK_WORD_LEVEL;
    return HP_OK;
  }
  HP_TRY(tok_need_text(r, "type", &type));
  for (int i = 0; i < 4; i++)
    if (tok_is(type, name[i])) {
      *out = (tok_model_kind)i;
      return HP_OK;
    }
  return tok_unknown(type, "model", "BPE, WordPiece, WordLevel or Unigram");
}

static hp_status parse_model(const tree_node *r, tok_model *m) {
  HP_TRY(find_kind(r, &m->kind));
  m->file = arena_strdup(&m->mem, r->source);
  HP_TRY_MEM(m->file);
  switch (m->kind) {
  case TOK_BPE: return parse_bpe(r, m);
  case TOK_WORD_PIECE: return parse_word_piece(r, m);
  case TOK_WORD_LEVEL: return parse_word_level(r, m);
  default: return tok_unigram_parse(r, m);
  }
}

hp_status tok_model_parse(const tree_node *node, tok_model *out) {
  hp_status st = parse_model(node, out);
  if (st) tok_model_free(out);
  return st;
}

void tok_model_free(tok_model *m) {
  tok_bpe_free(m->bpe);
  tok_trie_free(&m->trie);
  tok_vocab_free(&m->vocab);
  mem_free(m->score);
  arena_free(&m->mem);
  *m = (tok_model){0};
}

void tok_model_work_free(tok_model_work *w) {
  tok_bpe_work_free(&w->bpe);
  vec_free(&w->best);
}

bool tok_model_takes_bytes(const tok_model *m) {
  if (m->kind == TOK_BPE) return tok_bpe_takes_bytes(m->bpe);
  if (m->kind != TOK_UNIGRAM || !m->byte_fallback) return false;
  for (int i = 0; i < 256; i++)
    if (m->byte[i] < 0) return false;
  return true;
}

/* --- encoding --------------------------------------------------------------------------- */

static hp_status push_id(token_ids *out, int32_t id) {
  return vec_push(out, id) ? HP_OK : HP_ERR_OOM;
}

static hp_status push_unknown(const tok_model *m, token_ids *out) {
  if (m->unk < 0)
    HP_FAIL(
        HP_ERR_INPUT,
        "%s: the text has a word that is no token, and the \"unk_token\" is none either; add it to "
        "the vocabulary",
        m->file);
  return push_id(out, m->unk);
}

static size_t count_chars(const char *text, size_t n) {
  size_t chars = 0;
  for (size_t i = 0; i < n; i++) chars += ((unsigned char)text[i] & 0xC0) != 0x80;
  return chars;
}

/* Longest token first, from the left; a word that cannot be covered is unknown as a whole. */
static hp_status encode_word_piece(const tok_model *m, const char *word, size_t n, token_ids *out) {
  size_t before = out->len;
  if (count_chars(word, n) > m->word_max) return push_unknown(m, out);
  for (size_t at = 0; at < n;) {
    uint32_t node = at ? m->inner : 0, best = 0;
    size_t end = at, i = at;
    if (at && m->no_inner) node = UINT32_MAX;
    for (; node != UINT32_MAX && i < n; i++) {
      node = tok_trie_child(&m->trie, node, (unsigned char)word[i]);
      if (!node) break;
      if (m->trie.node.at[node].value) {
        best = m->trie.node.at[node].value;
        end = i + 1;
      }
    }
    if (!best) {
      out->len = before;
      return push_unknown(m, out);
    }
    HP_TRY(push_id(out, (int32_t)(best - 1)));
    at = end;
  }
  return HP_OK;
}

hp_status tok_model_encode(const tok_model *m, tok_model_work *w, const char *word, size_t n,
                           token_ids *out) {
  int32_t id;
  switch (m->kind) {
  case TOK_BPE: return tok_bpe_encode(m->bpe, &w->bpe, word, n, out);
  case TOK_WORD_PIECE: return encode_word_piece(m, word, n, out);
  case TOK_WORD_LEVEL:
    return tok_vocab_find(&m->vocab, word, n, &id) ? push_id(out, id) : push_unknown(m, out);
  default: return tok_unigram_encode(m, w, word, n, out);
  }
}
