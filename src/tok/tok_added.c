#include "tok/tok_added.h"

#include "tok/unicode.h"

#include <string.h>

const tok_added_token *tok_added_find(const tok_added *a, const char *content, size_t n) {
  uint32_t i;
  return map_get(&a->by_content, content, n, &i) ? &a->token.at[i] : NULL;
}

static hp_status find_id(const tok_added *a, const tok_added_token *t, const tok_vocab *vocab,
                         int32_t *id) {
  const tok_added_token *old = tok_added_find(a, t->content.at, t->content.len);
  if (old) {
    *id = old->id;
    return HP_OK;
  }
  if (tok_vocab_find(vocab, t->content.at, t->content.len, id)) return HP_OK;
  size_t next = vocab->count;
  if (a->token.len && (size_t)a->largest >= next) next = (size_t)a->largest + 1;
  if (next > TOK_ID_MAX) HP_FAIL(HP_ERR_INPUT, "more than %d tokens", TOK_ID_MAX);
  *id = (int32_t)next;
  return HP_OK;
}

static hp_status check_id(const tok_added_token *t, int32_t id, int64_t want,
                          const tok_vocab *vocab, const char *file, unsigned line) {
  int shown = t->content.len > 80 ? 80 : (int)t->content.len;
  if (want >= 0 && want != id)
    HP_FAIL(HP_ERR_INPUT,
            "%s:%u: added token \"%.*s\" has id %lld, but its place is %d (ids go on from the "
            "vocabulary "
            "in the order of the list); correct the id or the list",
            file, line, shown, t->content.at, (long long)want, id);
  tok_text other = tok_vocab_get(vocab, id);
  if (other.at && (other.len != t->content.len || memcmp(other.at, t->content.at, other.len)))
    HP_FAIL(HP_ERR_INPUT,
            "%s:%u: added token \"%.*s\" would get id %d, which is that of \"%.*s\": the "
            "vocabulary's ids "
            "have gaps",
            file, line, shown, t->content.at, id, other.len > 80 ? 80 : (int)other.len, other.at);
  return HP_OK;
}

static hp_status find_pattern(tok_added *a, tok_added_token *t, const tok_normalizer *n) {
  t->pattern = t->content;
  if (!t->normalized || !n) return HP_OK;
  str s = {0};
  tok_matcher m = {0};
  hp_status st = tok_normalize(n, &m, t->content.at, t->content.len, &s);
  if (!st && (s.len != t->content.len || memcmp(s.at, t->content.at, s.len))) {
    t->pattern.at = arena_strndup(&a->mem, s.at ? s.at : "", s.len);
    t->pattern.len = (uint32_t)s.len;
    if (!t->pattern.at) st = HP_ERR_OOM;
  }
  tok_matcher_free(&m);
  str_free(&s);
  return st;
}

hp_status tok_added_parse(const tree_node *node, tok_added_token *out) {
  const tree_node *content;
  HP_TRY(tree_expect(node, TREE_MAP));
  HP_TRY(tok_need_text(node, "content", &content));
  *out = (tok_added_token){.content = {content->string, content->len}};
  HP_TRY(tree_opt_bool(node, "single_word", false, &out->single_word));
  HP_TRY(tree_opt_bool(node, "lstrip", false, &out->lstrip));
  HP_TRY(tree_opt_bool(node, "rstrip", false, &out->rstrip));
  HP_TRY(tree_opt_bool(node, "special", false, &out->special));
  return tree_opt_bool(node, "normalized", !out->special, &out->normalized);
}

hp_status tok_added_add(tok_added *a, const tok_added_token *t, int64_t want,
                        const tok_vocab *vocab, const tok_normalizer *n, const char *file,
                        unsigned line) {
  tok_added_token x = *t;
  if (!x.content.len) return HP_OK; /* ignored by the reference, too */
  HP_TRY(find_id(a, &x, vocab, &x.id));
  HP_TRY(check_id(&x, x.id, want, vocab, file, line));
  const char *copy = arena_strndup(&a->mem, x.content.at, x.content.len);
  HP_TRY_MEM(copy);
  x.content.at = copy;
  HP_TRY(find_pattern(a, &x, n));
  uint32_t i;
  if (map_get(&a->by_content, copy, x.content.len, &i)) {
    x.special = x.special || a->token.at[i].special;
    a->token.at[i] = x;
    return HP_OK;
  }
  HP_TRY(map_set(&a->by_content, copy, x.content.len, (uint32_t)a->token.len));
  if (!a->token.len || x.id > a->largest) a->largest = x.id;
  return vec_push(&a->token, x) ? HP_OK : HP_ERR_OOM;
}

hp_status tok_added_link(tok_added *a) {
  str reversed = {0};
  hp_status st = HP_OK;
  tok_trie_free(&a->plain);
  tok_trie_free(&a->normalized);
  for (size_t i = 0; i < a->token.len; i++) {
    const tok_added_token *t = &a->token.at[i];
    if (!t->pattern.len) continue;
    str_clear(&reversed);
    for (size_t k = t->pattern.len; k-- > 0;) str_add_char(&reversed, t->pattern.at[k]);
    HP_TRY_GOTO(str_status(&reversed), st);
    HP_TRY_GOTO(tok_trie_add(t->normalized ? &a->normalized : &a->plain, reversed.at, reversed.len,
                             (uint32_t)i),
                st);
  }
  HP_TRY_GOTO(tok_trie_link(&a->plain), st);
  HP_TRY_GOTO(tok_trie_link(&a->normalized), st);
done:
  str_free(&reversed);
  return st;
}

void tok_added_free(tok_added *a) {
  vec_free(&a->token);
  map_free(&a->by_content);
  tok_trie_free(&a->plain);
  tok_trie_free(&a->normalized);
  arena_free(&a->mem);
  *a = (tok_added){0};
}

void tok_cuts_free(tok_cuts *c) {
  vec_free(&c->hit);
  vec_free(&c->cut);
}

/* Positions where a pattern begins, last first, with the trie's node of the longest. */
static hp_status find_hits(const tok_trie *t, const char *text, size_t n, tok_cuts *out) {
  uint32_t node = 0;
  out->hit.len = 0;
  for (size_t i = n; i-- > 0;) {
    unsigned char b = (unsigned char)text[i];
    uint32_t next = tok_trie_child(t, node, b);
    while (!next && node) {
      node = t->node.at[node].fail;
      next = tok_trie_child(t, node, b);
    }
    node = next;
    uint32_t match = node ? t->node.at[node].match : 0;
    if (match && !vec_push(&out->hit, ((tok_hit){(uint32_t)i, match}))) return HP_ERR_OOM;
  }
  return HP_OK;
}

static bool is_single_word(const char *text, size_t n, size_t at, size_t end) {
  size_t k;
  if (at && unicode_is_word(utf8_get(text + utf8_back(text, at), &k))) return false;
  return end == n || !unicode_is_word(utf8_get(text + end, &k));
}

static size_t count_spaces_before(const char *text, size_t at, size_t least) {
  while (at > least) {
    size_t k, back = utf8_back(text, at);
    if (!unicode_is_space(utf8_get(text + back, &k))) break;
    at = back;
  }
  return at;
}

static size_t count_spaces_after(const char *text, size_t n, size_t at) {
  for (size_t k; at < n && unicode_is_space(utf8_get(text + at, &k));) at += k;
  return at;
}

static hp_status push_cut(tok_cuts *out, size_t at, size_t end, int32_t id) {
  tok_cut c = {(uint32_t)at, (uint32_t)end, id};
  return vec_push(&out->cut, c) ? HP_OK : HP_ERR_OOM;
}

/* Leftmost, then longest.  A token that takes the spaces after it does not stop others from being
 * found in them; text between goes on from the end of the last token, as in the reference. */
hp_status tok_added_cut(const tok_added *a, bool normalized, bool skip_special, const char *text,
                        size_t n, tok_cuts *out) {
  const tok_trie *t = normalized ? &a->normalized : &a->plain;
  size_t from = 0, done = 0;            /* next place to match at; end of what is cut */
  size_t blank_from = 1, blank_end = 0; /* the last run of spaces looked through */
  out->cut.len = 0;
  if (!t->node.len) return n ? push_cut(out, 0, n, -1) : HP_OK;
  HP_TRY(find_hits(t, text, n, out));
  for (size_t i = out->hit.len; i-- > 0;) {
    size_t at = out->hit.at[i].at;
    if (at < from) continue;
    const tok_node *node = &t->node.at[out->hit.at[i].node];
    const tok_added_token *x = &a->token.at[node->value - 1];
    size_t end = at + node->depth;
    from = end;
    if (skip_special && x->special) continue;
    if (x->single_word && !is_single_word(text, n, at, end)) continue;
    if (x->lstrip) at = at > done ? count_spaces_before(text, at, done) : done;
    if (x->rstrip) {
      if (end < blank_from || end >= blank_end) {
        blank_from = end;
        blank_end = count_spaces_after(text, n, end);
      }
      if (blank_end > end) end = blank_end;
    }
    if (done < at) HP_TRY(push_cut(out, done, at, -1));
    HP_TRY(push_cut(out, at, end, x->id));
    done = end;
  }
  return done < n ? push_cut(out, done, n, -1) : HP_OK;
}
