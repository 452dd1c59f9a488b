#include "tok/tok_bpe.h"

#include "base/hash.h"
#include "tok/unicode.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum {
  DIRECT = 0x400, /* characters looked up by table: ASCII, Latin and the byte-level alphabet */
  SCAN_MAX = 32   /* symbols up to which merging by scanning beats the heap */
};
enum { UNKNOWN, WHOLE, NOT_WHOLE };
enum { JOIN_WORDS = 1024 }; /* of 64 bits each */
enum { NONE = -1, MISSING = -2 };

struct tok_merge {
  uint64_t pair; /* (left id << 32 | right id) + 1; 0 = free */
  uint32_t rank;
  int32_t id;
};

struct tok_bpe {
  const tok_vocab *vocab;
  const char *file;
  struct tok_merge *merge; /* open addressing */
  size_t cap, used;
  uint32_t merges;
  int32_t direct[DIRECT];       /* id of a character, -1 = none */
  int32_t byte[256];            /* id of <0xXX>, -1 = none */
  int32_t unk;                  /* NONE, or MISSING: named but not in the vocabulary */
  uint32_t unk_first, unk_last; /* its first and last character */
  bool fuse_unk, byte_fallback, ignore_merges, plain; /* plain: no prefix, no suffix */
  /* Which characters may meet inside a merge: a hashed set of (last of the left part, first of the
   * right part).  Where a word's neighbours are not in it no merge can ever reach across, so the
   * word is cut there: a Llama text is one word of megabytes, but its merges stop at spaces. */
  uint64_t joins[JOIN_WORDS];
  tok_text prefix, suffix;
  /* By id: whether its text as a word encodes to that id alone.  Found out when first asked; every
   * thread finds the same, so relaxed atomics do. */
  _Atomic unsigned char *whole;
  arena mem;
};

static size_t find_home(const tok_bpe *b, uint64_t pair) {
  return (size_t)((pair * 0x9E3779B97F4A7C15u) >> 24) & (b->cap - 1);
}

static struct tok_merge *find_slot(const tok_bpe *b, uint64_t pair) {
  size_t i = find_home(b, pair);
  while (b->merge[i].pair && b->merge[i].pair != pair) i = (i + 1) & (b->cap - 1);
  return &b->merge[i];
}

/* The merge of two ids, or NULL. */
static const struct tok_merge *find_merge(const tok_bpe *b, int32_t left, int32_t right) {
  const struct tok_merge *m = find_slot(b, ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) + 1);
  return m->pair ? m : NULL;
}

static uint32_t join_bit(uint32_t last, uint32_t first) {
  return (last * 0x9E3779B1u + first * 0x85EBCA77u) >> 16; /* below 64 * JOIN_WORDS */
}

static bool may_join(const tok_bpe *b, uint32_t last, uint32_t first) {
  uint32_t bit = join_bit(last, first);
  return b->joins[bit / 64] >> bit % 64 & 1;
}

static void find_first_last(const char *text, size_t n, uint32_t *first, uint32_t *last) {
  size_t k;
  *first = utf8_get(text, &k);
  *last = k == n ? *first : utf8_get(text + utf8_back(text, n), &k);
}

static hp_status reserve_merges(tok_bpe *b, size_t n) {
  size_t cap = b->cap ? b->cap : 64;
  while (cap < n * 2) cap *= 2;
  if (cap == b->cap) return HP_OK;
  tok_bpe bigger = {.cap = cap, .merge = mem_calloc(cap, sizeof *b->merge)};
  HP_TRY_MEM(bigger.merge);
  for (size_t i = 0; i < b->cap; i++)
    if (b->merge[i].pair) *find_slot(&bigger, b->merge[i].pair) = b->merge[i];
  mem_free(b->merge);
  b->merge = bigger.merge;
  b->cap = cap;
  return HP_OK;
}

static hp_status keep_text(tok_bpe *b, const tree_node *node, tok_text *out) {
  if (!node || !node->len) return HP_OK;
  out->len = node->len;
  out->at = arena_strndup(&b->mem, node->string, node->len);
  return out->at ? HP_OK : HP_ERR_OOM;
}

static void fill_tables(tok_bpe *b) {
  for (uint32_t cp = 0; cp < DIRECT; cp++) {
    char text[2] = {(char)cp, 0};
    size_t n = 1;
    if (cp >= 0x80) {
      text[0] = (char)(0xC0 | cp >> 6);
      text[1] = (char)(0x80 | (cp & 0x3F));
      n = 2;
    }
    if (!tok_vocab_find(b->vocab, text, n, &b->direct[cp])) b->direct[cp] = -1;
  }
  for (int i = 0; i < 256; i++) {
    char text[8];
    snprintf(text, sizeof text, "<0x%02X>", (unsigned)i);
    if (!tok_vocab_find(b->vocab, text, 6, &b->byte[i])) b->byte[i] = -1;
  }
}

static hp_status fill_model(tok_bpe *b, const tok_bpe_options *o) {
  HP_TRY(keep_text(b, o->prefix, &b->prefix));
  HP_TRY(keep_text(b, o->suffix, &b->suffix));
  b->plain = !b->prefix.at && !b->suffix.at;
  b->fuse_unk = o->fuse_unk;
  b->byte_fallback = o->byte_fallback;
  b->ignore_merges = o->ignore_merges;
  b->unk = NONE;
  const tree_node *unk = o->unk_token;
  if (unk && !tok_vocab_find(b->vocab, unk->string, unk->len, &b->unk)) b->unk = MISSING;
  if (b->unk >= 0 && unk->len) find_first_last(unk->string, unk->len, &b->unk_first, &b->unk_last);
  fill_tables(b);
  b->whole = mem_calloc(b->vocab->n, 1);
  HP_TRY_MEM((void *)b->whole);
  return reserve_merges(b, 1);
}

hp_status tok_bpe_create(const tok_vocab *vocab, const char *file, const tok_bpe_options *o,
                         tok_bpe **out) {
  tok_bpe *b = mem_calloc(1, sizeof *b);
  HP_TRY_MEM(b);
  b->vocab = vocab;
  hp_status st = (b->file = arena_strdup(&b->mem, file)) ? fill_model(b, o) : HP_ERR_OOM;
  if (st) tok_bpe_free(b);
  else *out = b;
  return st;
}

void tok_bpe_free(tok_bpe *b) {
  if (!b) return;
  mem_free(b->merge);
  mem_free((void *)b->whole);
  arena_free(&b->mem);
  mem_free(b);
}

static hp_status find_part(const tok_bpe *b, const char *what, const char *at, size_t n,
                           unsigned line, int32_t *id) {
  if (tok_vocab_find(b->vocab, at, n, id)) return HP_OK;
  HP_FAIL(HP_ERR_INPUT, "%s:%u: %s of merge %u, \"%.*s\", is not in the vocabulary", b->file, line,
          what, b->merges, n > 80 ? 80 : (int)n, at);
}

/* Notes which characters the merge lets meet; an empty part may hide any, so all may. */
static void note_join(tok_bpe *b, const char *left, size_t left_len, const char *right,
                      size_t right_len) {
  uint32_t last, first, other;
  if (!left_len || right_len <= b->prefix.len) {
    memset(b->joins, 0xFF, sizeof b->joins);
    return;
  }
  find_first_last(left, left_len, &other, &last);
  find_first_last(right, right_len, &first, &other);
  uint32_t bit = join_bit(last, first);
  b->joins[bit / 64] |= (uint64_t)1 << bit % 64;
}

hp_status tok_bpe_add_merge(tok_bpe *b, const char *left, size_t left_len, const char *right,
                            size_t right_len, int64_t rank, unsigned line) {
  int32_t l, r, id;
  HP_TRY(find_part(b, "the left part", left, left_len, line, &l));
  HP_TRY(find_part(b, "the right part", right, right_len, line, &r));
  if (right_len < b->prefix.len)
    HP_FAIL(HP_ERR_INPUT, "%s:%u: the right part of merge %u does not begin with the prefix \"%s\"",
            b->file, line, b->merges, b->prefix.at);
  char small[256];
  size_t tail = right_len - b->prefix.len, n = left_len + tail;
  char *whole = n <= sizeof small ? small : mem_calloc(n, 1);
  HP_TRY_MEM(whole);
  memcpy(whole, left, left_len);
  memcpy(whole + left_len, right + b->prefix.len, tail);
  hp_status st = find_part(b, "the result", whole, n, line, &id);
  if (whole != small) mem_free(whole);
  HP_TRY(st);
  note_join(b, left, left_len, right, right_len);
  HP_TRY(reserve_merges(b, b->used + 1));
  struct tok_merge *m = find_slot(b, ((uint64_t)(uint32_t)l << 32 | (uint32_t)r) + 1);
  if (!m->pair) b->used++;
  uint32_t place = rank == TOK_RANK_NEXT ? b->merges : (uint32_t)rank;
  *m = (struct tok_merge){((uint64_t)(uint32_t)l << 32 | (uint32_t)r) + 1, place, id};
  b->merges++;
  return HP_OK;
}

static hp_status parse_merge(tok_bpe *b, const tree_node *m, int64_t rank) {
  if (m->kind == TREE_LIST && m->len == 2 && m->child[0]->kind == TREE_STRING &&
      m->child[1]->kind == TREE_STRING) {
    const tree_node *l = m->child[0], *r = m->child[1];
    return tok_bpe_add_merge(b, l->string, l->len, r->string, r->len, rank, m->line);
  }
  if (m->kind == TREE_STRING) {
    const char *at = m->string, *end = at + m->len;
    const char *space = memchr(at, ' ', m->len);
    if (space && !memchr(space + 1, ' ', (size_t)(end - space - 1)))
      return tok_bpe_add_merge(b, at, (size_t)(space - at), space + 1, (size_t)(end - space - 1),
                               rank, m->line);
  }
  TREE_FAIL(m, "expected a merge, \"left right\" or [\"left\", \"right\"], found %s",
            tree_what(m).text);
}

hp_status tok_bpe_parse_merges(tok_bpe *b, const tree_node *merges, const tree_node *ranks) {
  if (ranks && ranks->len != merges->len)
    TREE_FAIL(ranks, "%u ranks for %u merges; expected one for each", ranks->len, merges->len);
  HP_TRY(reserve_merges(b, merges->len));
  for (size_t i = 0; i < merges->len; i++) {
    const tree_node *m = merges->child[i];
    if (m->kind == TREE_STRING && m->len >= 8 && !memcmp(m->string, "#version", 8)) continue;
    const tree_node *rank = ranks ? ranks->child[i] : NULL;
    if (rank && (rank->kind != TREE_INT || rank->integer < 0 || rank->integer > INT32_MAX))
      TREE_FAIL(rank, "expected a whole number from 0 to %d, found %s", INT32_MAX,
                tree_what(rank).text);
    HP_TRY(parse_merge(b, m, rank ? rank->integer : TOK_RANK_NEXT));
  }
  return HP_OK;
}

bool tok_bpe_takes_bytes(const tok_bpe *b) {
  if (!b->byte_fallback) return false;
  for (int i = 0; i < 256; i++)
    if (b->byte[i] < 0) return false;
  return true;
}

void tok_bpe_work_free(tok_bpe_work *w) {
  vec_free(&w->symbol);
  vec_free(&w->heap);
  str_free(&w->text);
}

/* --- merging ---------------------------------------------------------------------------- */

/* Few symbols: look for the best pair again and again.  Ranks of pairs are kept next to them. */
static size_t merge_by_scan(const tok_bpe *b, int32_t *id, size_t n) {
  uint32_t rank[SCAN_MAX];
  int32_t into[SCAN_MAX];
  for (size_t i = 0; i + 1 < n; i++) {
    const struct tok_merge *m = find_merge(b, id[i], id[i + 1]);
    rank[i] = m ? m->rank : UINT32_MAX;
    into[i] = m ? m->id : -1;
  }
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; i++)
      if (rank[i] < rank[best]) best = i;
    if (rank[best] == UINT32_MAX) break;
    id[best] = into[best];
    n--;
    for (size_t i = best + 1; i < n; i++) {
      id[i] = id[i + 1];
      rank[i - 1] = rank[i];
      into[i - 1] = into[i];
    }
    for (size_t i = best ? best - 1 : 0; i <= best && i + 1 < n; i++) {
      const struct tok_merge *m = find_merge(b, id[i], id[i + 1]);
      rank[i] = m ? m->rank : UINT32_MAX;
      into[i] = m ? m->id : -1;
    }
  }
  return n;
}

static void sift_up(uint64_t *heap, size_t i) {
  uint64_t x = heap[i];
  for (; i && heap[(i - 1) / 2] > x; i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
  heap[i] = x;
}

static void sift_down(uint64_t *heap, size_t n, size_t i) {
  uint64_t x = heap[i];
  for (size_t child; (child = 2 * i + 1) < n; i = child) {
    if (child + 1 < n && heap[child + 1] < heap[child]) child++;
    if (heap[child] >= x) break;
    heap[i] = heap[child];
  }
  heap[i] = x;
}

static hp_status push_merge(const tok_bpe *b, tok_bpe_work *w, uint32_t left) {
  uint32_t right = w->symbol.at[left].next;
  const struct tok_merge *m = find_merge(b, w->symbol.at[left].id, w->symbol.at[right].id);
  if (!m) return HP_OK;
  if (!vec_push(&w->heap, (uint64_t)m->rank << 32 | left)) return HP_ERR_OOM;
  sift_up(w->heap.at, w->heap.len - 1);
  return HP_OK;
}

/* Many symbols: a heap of candidate pairs over a linked list, O(n log n).  A candidate whose pair
 * has changed since is dropped when it comes up. */
static hp_status merge_by_heap(const tok_bpe *b, tok_bpe_work *w) {
  tok_symbol *s = w->symbol.at;
  w->heap.len = 0;
  for (size_t i = 0; i + 1 < w->symbol.len; i++) {
    const struct tok_merge *m = find_merge(b, s[i].id, s[i + 1].id);
    if (m && !vec_push(&w->heap, (uint64_t)m->rank << 32 | i)) return HP_ERR_OOM;
  }
  for (size_t i = w->heap.len / 2; i-- > 0;) sift_down(w->heap.at, w->heap.len, i);
  while (w->heap.len) {
    uint64_t top = w->heap.at[0];
    w->heap.at[0] = w->heap.at[--w->heap.len];
    if (w->heap.len) sift_down(w->heap.at, w->heap.len, 0);
    uint32_t left = (uint32_t)top, right = s[left].next;
    if (s[left].id < 0 || right == UINT32_MAX) continue;
    const struct tok_merge *m = find_merge(b, s[left].id, s[right].id);
    if (!m || m->rank != top >> 32) continue;
    s[left].id = m->id;
    s[left].next = s[right].next;
    s[right].id = -1;
    if (s[right].next != UINT32_MAX) s[s[right].next].prev = left;
    if (s[left].prev != UINT32_MAX) HP_TRY(push_merge(b, w, s[left].prev));
    if (s[left].next != UINT32_MAX) HP_TRY(push_merge(b, w, left));
  }
  return HP_OK;
}

/* Merges the run of symbols and appends its ids; the run is empty then. */
static hp_status merge_symbols(const tok_bpe *b, tok_bpe_work *w, token_ids *out) {
  size_t n = w->symbol.len;
  if (!n) return HP_OK;
  if (!vec_reserve(out, n)) return HP_ERR_OOM;
  if (n <= SCAN_MAX) {
    int32_t *id = out->at + out->len;
    for (size_t i = 0; i < n; i++) id[i] = w->symbol.at[i].id;
    out->len += merge_by_scan(b, id, n);
    w->symbol.len = 0;
    return HP_OK;
  }
  w->symbol.at[n - 1].next = UINT32_MAX;
  HP_TRY(merge_by_heap(b, w));
  for (uint32_t i = 0; i != UINT32_MAX; i = w->symbol.at[i].next)
    out->at[out->len++] = w->symbol.at[i].id;
  w->symbol.len = 0;
  return HP_OK;
}

/* --- a word into symbols ---------------------------------------------------------------- */

typedef struct {
  const tok_bpe *b;
  tok_bpe_work *w;
  token_ids *out;
  uint32_t last; /* character of the symbol pushed last */
} symbols;

/* Adds a symbol to the run; a run that it cannot join is merged and put down first. */
static hp_status push_symbol(symbols *s, int32_t id, uint32_t first, uint32_t last) {
  size_t n = s->w->symbol.len;
  if (n && !may_join(s->b, s->last, first)) {
    HP_TRY(merge_symbols(s->b, s->w, s->out));
    n = 0;
  }
  if (n >= UINT32_MAX - 1) HP_FAIL(HP_ERR_ARG, "a word of more than 2^32 characters; cut the text");
  s->last = last;
  tok_symbol x = {id, n ? (uint32_t)(n - 1) : UINT32_MAX, (uint32_t)(n + 1)};
  return vec_push(&s->w->symbol, x) ? HP_OK : HP_ERR_OOM;
}

/* The bytes of a character as <0xXX> tokens; false when one is missing. */
static bool has_bytes(const tok_bpe *b, const char *at, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (b->byte[(unsigned char)at[i]] < 0) return false;
  return true;
}

/* The character at..at+n, with the prefix or suffix that its place asks for, as text. */
static hp_status add_affixes(const tok_bpe *b, tok_bpe_work *w, bool first, bool last,
                             const char **at, size_t *n) {
  bool prefix = !first && b->prefix.at, suffix = last && b->suffix.at;
  if (!prefix && !suffix) return HP_OK;
  str_clear(&w->text);
  if (prefix) str_add_n(&w->text, b->prefix.at, b->prefix.len);
  str_add_n(&w->text, *at, *n);
  if (suffix) str_add_n(&w->text, b->suffix.at, b->suffix.len);
  HP_TRY(str_status(&w->text));
  *at = w->text.at;
  *n = w->text.len;
  return HP_OK;
}

static hp_status push_bytes(symbols *s, const char *at, size_t n, bool *done) {
  size_t k;
  uint32_t cp = utf8_get(at, &k);
  char raw = (char)(cp - UNICODE_ESCAPE);
  if (unicode_is_escape(cp) && k == n) {
    at = &raw;
    n = 1;
  }
  *done = has_bytes(s->b, at, n);
  for (size_t i = 0; *done && i < n; i++)
    HP_TRY(push_symbol(s, s->b->byte[(unsigned char)at[i]], '<', '>'));
  return HP_OK;
}

/* One symbol per character.  An unknown one is bytes, or the unknown token (a run of them one
 * token with fuse_unk), or nothing.  As in the reference a pending unknown is put down only before
 * the next known character, so it comes after bytes that follow it. */
static hp_status split_symbols(const tok_bpe *b, tok_bpe_work *w, const char *word, size_t len,
                               token_ids *out) {
  symbols s = {b, w, out, 0};
  bool pending = false;
  w->symbol.len = 0;
  for (size_t at = 0, k; at < len; at += k) {
    uint32_t cp = utf8_get(word + at, &k);
    const char *text = word + at;
    size_t n = k;
    int32_t id = -1;
    uint32_t first = cp, last = cp;
    if (b->plain && cp < DIRECT) {
      id = b->direct[cp];
    } else {
      HP_TRY(add_affixes(b, w, !at, at + k == len, &text, &n));
      if (!tok_vocab_find(b->vocab, text, n, &id)) id = -1;
    }
    if (id >= 0) {
      if (pending) HP_TRY(push_symbol(&s, b->unk, b->unk_first, b->unk_last));
      pending = false;
      if (n != k) find_first_last(text, n, &first, &last);
      HP_TRY(push_symbol(&s, id, first, last));
      continue;
    }
    bool done = false;
    if (b->byte_fallback) HP_TRY(push_bytes(&s, text, n, &done));
    if (done || b->unk == NONE) continue;
    if (b->unk == MISSING)
      HP_FAIL(
          HP_ERR_INPUT,
          "%s: the text has a character that is no token, and the \"unk_token\" is none either; "
          "add it to the vocabulary",
          b->file);
    if (pending && !b->fuse_unk) HP_TRY(push_symbol(&s, b->unk, b->unk_first, b->unk_last));
    pending = true;
  }
  if (pending) HP_TRY(push_symbol(&s, b->unk, b->unk_first, b->unk_last));
  return merge_symbols(b, w, out);
}

hp_status tok_bpe_encode(const tok_bpe *b, tok_bpe_work *w, const char *word, size_t n,
                         token_ids *out) {
  int32_t id = -1;
  unsigned char known = NOT_WHOLE;
  if ((b->plain || b->ignore_merges) && tok_vocab_find(b->vocab, word, n, &id)) {
    known = b->ignore_merges ? WHOLE : atomic_load_explicit(&b->whole[id], memory_order_relaxed);
    if (known == WHOLE) return vec_push(out, id) ? HP_OK : HP_ERR_OOM;
  }
  size_t before = out->len;
  HP_TRY(split_symbols(b, w, word, n, out));
  if (known == UNKNOWN) {
    bool whole = out->len == before + 1 && out->at[before] == id;
    atomic_store_explicit(&b->whole[id], whole ? WHOLE : NOT_WHOLE, memory_order_relaxed);
  }
  return HP_OK;
}
