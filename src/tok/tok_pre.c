#include "tok/tok_pre.h"

#include "tok/tok_bytes.h"
#include "tok/unicode.h"

#include <string.h>

static const char gpt2_words[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

typedef enum { ISOLATED, REMOVED, CONTIGUOUS, WITH_PREVIOUS, WITH_NEXT } behavior;

/* What a stage looks for: runs of characters that satisfy a test, or an expression. */
typedef enum {
  PRE_REGEX,     /* .re */
  PRE_CHARS,     /* every character that passes .test is a match */
  PRE_WORDS,     /* runs of \w, runs of neither \w nor \s */
  PRE_LENGTH,    /* every .length characters */
  PRE_PREFIX,    /* put a space before a piece that begins with none */
  PRE_METASPACE, /* spaces become .meta; .prepend */
  PRE_BYTES      /* to the byte-level alphabet */
} pre_kind;

typedef enum { PREPEND_NEVER, PREPEND_FIRST, PREPEND_ALWAYS } prepend;

typedef struct {
  pre_kind kind;
  behavior how;
  bool invert;
  tok_regex *re;
  bool (*test)(uint32_t cp);
  uint32_t delimiter; /* instead of a test, when there is none */
  char meta[5];
  size_t meta_len;
  prepend prepend;
  size_t length;
} pre_step;

struct tok_pretokenizer {
  VEC(pre_step) step;
};

/* --- reading ---------------------------------------------------------------------------- */

static hp_status add_step(tok_pretokenizer *p, pre_step s) {
  if (vec_push(&p->step, s)) return HP_OK;
  tok_regex_free(s.re);
  return HP_ERR_OOM;
}

/* The "behavior"; *out stays as it is when there is none. */
static hp_status parse_behavior(const tree_node *r, behavior *out) {
  static const char *const name[] = {"Isolated", "Removed", "Contiguous", "MergedWithPrevious",
                                     "MergedWithNext"};
  const tree_node *text = NULL;
  HP_TRY(tok_opt_text(r, "behavior", &text));
  if (!text) return HP_OK;
  for (int i = 0; i < 5; i++)
    if (tok_is(text, name[i])) {
      *out = (behavior)i;
      return HP_OK;
    }
  TREE_FAIL(
      text,
      "expected Isolated, Removed, Contiguous, MergedWithPrevious or MergedWithNext, found %s",
      tree_what(text).text);
}

/* A member that is one character. */
static hp_status parse_char(const tree_node *r, const char *key, const tree_node **out) {
  HP_TRY(tok_need_text(r, key, out));
  const tree_node *t = *out;
  if (!t->len || utf8_len(t->string) != t->len)
    TREE_FAIL(t, "expected one character, found %s", tree_what(t).text);
  return HP_OK;
}

static hp_status parse_split(const tree_node *r, tok_pretokenizer *p) {
  pre_step s = {.kind = PRE_REGEX};
  const tree_node *text;
  HP_TRY(tok_need_text(r, "behavior", &text));
  HP_TRY(parse_behavior(r, &s.how));
  HP_TRY(tree_need_bool(r, "invert", &s.invert));
  HP_TRY(tok_regex_parse(r, &s.re));
  return add_step(p, s);
}

static hp_status parse_byte_level(const tree_node *r, tok_pretokenizer *p) {
  bool prefix = true, use_regex = true;
  HP_TRY(tree_need_bool(r, "add_prefix_space", &prefix));
  HP_TRY(tree_opt_bool(r, "use_regex", use_regex, &use_regex));
  if (prefix) HP_TRY(add_step(p, (pre_step){.kind = PRE_PREFIX}));
  if (use_regex) {
    pre_step s = {.kind = PRE_REGEX, .how = ISOLATED};
    HP_TRY(tok_regex_compile(gpt2_words, sizeof gpt2_words - 1, "ByteLevel", &s.re));
    HP_TRY(add_step(p, s));
  }
  return add_step(p, (pre_step){.kind = PRE_BYTES});
}

static hp_status parse_metaspace(const tree_node *r, tok_pretokenizer *p) {
  const tree_node *meta, *scheme = NULL;
  bool prefix = true, split = true;
  pre_step s = {.kind = PRE_METASPACE, .prepend = PREPEND_ALWAYS};
  HP_TRY(parse_char(r, "replacement", &meta));
  HP_TRY(tree_opt_bool(r, "add_prefix_space", prefix, &prefix));
  HP_TRY(tree_opt_bool(r, "split", split, &split));
  HP_TRY(tok_opt_text(r, "prepend_scheme", &scheme));
  if (scheme) {
    if (tok_is(scheme, "first")) s.prepend = PREPEND_FIRST;
    else if (tok_is(scheme, "never")) s.prepend = PREPEND_NEVER;
    else if (!tok_is(scheme, "always"))
      TREE_FAIL(scheme, "expected first, never or always, found %s", tree_what(scheme).text);
  }
  if (!prefix) s.prepend = PREPEND_NEVER;
  memcpy(s.meta, meta->string, meta->len);
  s.meta_len = meta->len;
  HP_TRY(add_step(p, s));
  size_t k;
  uint32_t cp = utf8_get(s.meta, &k);
  return split ? add_step(p, (pre_step){.kind = PRE_CHARS, .how = WITH_NEXT, .delimiter = cp})
               : HP_OK;
}

static hp_status parse_chars(const tree_node *r, const tree_node *type, tok_pretokenizer *p,
                             bool *done) {
  pre_step s = {.kind = PRE_CHARS, .how = ISOLATED};
  *done = true;
  if (tok_is(type, "Punctuation")) {
    s.test = unicode_is_punctuation;
    HP_TRY(parse_behavior(r, &s.how));
    return add_step(p, s);
  }
  if (tok_is(type, "Digits")) {
    bool each = false;
    s.test = unicode_is_numeric;
    HP_TRY(tree_need_bool(r, "individual_digits", &each));
    s.how = each ? ISOLATED : CONTIGUOUS;
    return add_step(p, s);
  }
  if (tok_is(type, "CharDelimiterSplit") || tok_is(type, "Delimiter")) {
    const tree_node *text;
    size_t k;
    HP_TRY(parse_char(r, "delimiter", &text));
    s.delimiter = utf8_get(text->string, &k);
    s.how = REMOVED;
    return add_step(p, s);
  }
  if (tok_is(type, "WhitespaceSplit") || tok_is(type, "BertPreTokenizer")) {
    HP_TRY(add_step(p, (pre_step){.kind = PRE_CHARS, .how = REMOVED, .test = unicode_is_space}));
    s.test = unicode_is_punctuation;
    return tok_is(type, "BertPreTokenizer") ? add_step(p, s) : HP_OK;
  }
  *done = false;
  return HP_OK;
}

static hp_status parse_step(const tree_node *node, tok_pretokenizer *p);

static hp_status parse_sequence(const tree_node *r, tok_pretokenizer *p) {
  const tree_node *list;
  HP_TRY(tree_need_list(r, "pretokenizers", &list));
  for (size_t i = 0; i < list->len; i++) HP_TRY(parse_step(list->child[i], p));
  return HP_OK;
}

static hp_status parse_fixed_length(const tree_node *r, tok_pretokenizer *p) {
  pre_step s = {.kind = PRE_LENGTH, .length = 5};
  HP_TRY(tok_opt_count(r, "length", &s.length));
  if (!s.length) TREE_FAIL(tree_get(r, "length"), "expected 1 or more");
  return add_step(p, s);
}

static hp_status parse_step(const tree_node *node, tok_pretokenizer *p) {
  const tree_node *type;
  bool done;
  HP_TRY(tok_type(node, "a pre-tokenizer", &type));
  HP_TRY(parse_chars(node, type, p, &done));
  if (done) return HP_OK;
  if (tok_is(type, "Sequence")) return parse_sequence(node, p);
  if (tok_is(type, "ByteLevel")) return parse_byte_level(node, p);
  if (tok_is(type, "Split")) return parse_split(node, p);
  if (tok_is(type, "Metaspace")) return parse_metaspace(node, p);
  if (tok_is(type, "FixedLength")) return parse_fixed_length(node, p);
  if (tok_is(type, "Whitespace")) return add_step(p, (pre_step){.kind = PRE_WORDS});
  return tok_unknown(
      type, "pre-tokenizer",
      "ByteLevel, Split, Metaspace, Whitespace, WhitespaceSplit, Digits, Punctuation, "
      "BertPreTokenizer, CharDelimiterSplit, FixedLength or Sequence");
}

hp_status tok_pretokenizer_parse(const tree_node *node, tok_pretokenizer **out) {
  *out = NULL;
  if (!node) return HP_OK;
  tok_pretokenizer *p = mem_calloc(1, sizeof *p);
  HP_TRY_MEM(p);
  hp_status st = parse_step(node, p);
  if (st) tok_pretokenizer_free(p);
  else *out = p;
  return st;
}

void tok_pretokenizer_free(tok_pretokenizer *p) {
  if (!p) return;
  for (size_t i = 0; i < p->step.len; i++) tok_regex_free(p->step.at[i].re);
  vec_free(&p->step);
  mem_free(p);
}

bool tok_pretokenizer_takes_bytes(const tok_pretokenizer *p) {
  for (size_t i = 0; p && i < p->step.len; i++)
    if (p->step.at[i].kind == PRE_BYTES) return true;
  return false;
}

/* --- running ---------------------------------------------------------------------------- */

void tok_words_free(tok_words *w) {
  str_free(&w->text);
  str_free(&w->next_text);
  vec_free(&w->piece);
  vec_free(&w->next_piece);
  vec_free(&w->spans);
  tok_matcher_free(&w->matcher);
}

hp_status tok_words_add(tok_words *w, const char *text, size_t len, bool first) {
  if (!len) return HP_OK;
  if (len > UINT32_MAX - w->text.len) HP_FAIL(HP_ERR_ARG, "a text of more than 4 GiB; cut it");
  tok_piece p = {(uint32_t)w->text.len, (uint32_t)len, -1, first};
  str_add_n(&w->text, text, len);
  return vec_push(&w->piece, p) ? str_status(&w->text) : HP_ERR_OOM;
}

hp_status tok_words_add_token(tok_words *w, int32_t id) {
  return vec_push(&w->piece, ((tok_piece){0, 0, id, false})) ? HP_OK : HP_ERR_OOM;
}

static hp_status add_span(tok_spans *s, size_t at, size_t end, bool match) {
  return vec_push(s, ((tok_span){(uint32_t)at, (uint32_t)end, match})) ? HP_OK : HP_ERR_OOM;
}

/* Every character that passes is a match of its own; what is between matches is one span. */
static hp_status find_chars(const pre_step *s, const char *text, size_t n, tok_spans *out) {
  size_t done = 0;
  out->len = 0;
  for (size_t at = 0, k; at < n; at += k) {
    uint32_t cp = utf8_get(text + at, &k);
    if (s->test ? !s->test(cp) : cp != s->delimiter) continue;
    if (done < at) HP_TRY(add_span(out, done, at, false));
    HP_TRY(add_span(out, at, at + k, true));
    done = at + k;
  }
  return done < n ? add_span(out, done, n, false) : HP_OK;
}

static hp_status find_words(const char *text, size_t n, tok_spans *out) {
  out->len = 0;
  for (size_t at = 0, k; at < n;) {
    uint32_t cp = utf8_get(text + at, &k);
    size_t start = at;
    bool word = unicode_is_word(cp);
    at += k;
    if (!word && unicode_is_space(cp)) continue;
    for (; at < n; at += k) {
      cp = utf8_get(text + at, &k);
      if (unicode_is_word(cp) != word || (!word && unicode_is_space(cp))) break;
    }
    HP_TRY(add_span(out, start, at, false));
  }
  return HP_OK;
}

static hp_status find_lengths(size_t length, const char *text, size_t n, tok_spans *out) {
  out->len = 0;
  size_t start = 0, chars = 0;
  for (size_t at = 0, k; at < n; at += k) {
    k = utf8_len(text + at);
    if (chars++ % length || !at) continue;
    HP_TRY(add_span(out, start, at, false));
    start = at;
  }
  return add_span(out, start, n, false);
}

/* Joins spans as the behavior says; the spans that stay become words. */
static void join_spans(behavior how, bool invert, tok_spans *s) {
  if (invert)
    for (size_t i = 0; i < s->len; i++) s->at[i].match = !s->at[i].match;
  size_t n = 0;
  bool previous = false;
  if (how == CONTIGUOUS || how == WITH_PREVIOUS) {
    for (size_t i = 0; i < s->len; i++) {
      tok_span x = s->at[i];
      bool glue = how == CONTIGUOUS ? x.match == previous : x.match && !previous;
      if (glue && n) s->at[n - 1].end = x.end;
      else s->at[n++] = x;
      previous = x.match;
    }
    s->len = n;
  } else if (how == WITH_NEXT) {
    size_t to = s->len;
    for (size_t i = s->len; i-- > 0;) {
      tok_span x = s->at[i];
      if (x.match && !previous && to < s->len) s->at[to].at = x.at;
      else s->at[--to] = x;
      previous = x.match;
    }
    memmove(s->at, s->at + to, (s->len - to) * sizeof *s->at);
    s->len -= to;
  }
}

static hp_status find_spans(const pre_step *s, tok_words *w, const char *text, size_t n) {
  switch (s->kind) {
  case PRE_REGEX: return tok_regex_split(s->re, &w->matcher, text, n, &w->spans);
  case PRE_CHARS: return find_chars(s, text, n, &w->spans);
  case PRE_WORDS: return find_words(text, n, &w->spans);
  default: return find_lengths(s->length, text, n, &w->spans);
  }
}

/* Stages that cut: the text stays. */
static hp_status cut_words(const pre_step *s, tok_words *w) {
  w->next_piece.len = 0;
  for (size_t i = 0; i < w->piece.len; i++) {
    tok_piece p = w->piece.at[i];
    if (p.id >= 0) {
      if (!vec_push(&w->next_piece, p)) return HP_ERR_OOM;
      continue;
    }
    HP_TRY(find_spans(s, w, w->text.at + p.at, p.len));
    join_spans(s->how, s->invert, &w->spans);
    if (!vec_reserve(&w->next_piece, w->spans.len)) return HP_ERR_OOM;
    for (size_t j = 0; j < w->spans.len; j++) {
      tok_span x = w->spans.at[j];
      if (x.at == x.end || (x.match && s->how == REMOVED)) continue;
      w->next_piece.at[w->next_piece.len++] =
          (tok_piece){p.at + x.at, x.end - x.at, -1, p.first && !x.at};
    }
  }
  return HP_OK;
}

static void add_metaspaced(const pre_step *s, const tok_piece *p, const char *text, str *out) {
  bool has = p->len >= s->meta_len && !memcmp(text, s->meta, s->meta_len);
  bool wants = s->prepend == PREPEND_ALWAYS || (s->prepend == PREPEND_FIRST && p->first);
  if (wants && !has && text[0] != ' ') str_add_n(out, s->meta, s->meta_len);
  for (size_t at = 0; at < p->len;) {
    const char *space = memchr(text + at, ' ', p->len - at);
    size_t end = space ? (size_t)(space - text) : p->len;
    str_add_n(out, text + at, end - at);
    if (space) str_add_n(out, s->meta, s->meta_len);
    at = end + (space != NULL);
  }
}

/* Stages that rewrite: the pieces stay, the text changes. */
static hp_status rewrite_words(const pre_step *s, tok_words *w) {
  str *out = &w->next_text;
  str_clear(out);
  for (size_t i = 0; i < w->piece.len; i++) {
    tok_piece *p = &w->piece.at[i];
    if (p->id >= 0) continue;
    const char *text = w->text.at + p->at;
    size_t at = out->len;
    if (s->kind == PRE_METASPACE) {
      add_metaspaced(s, p, text, out);
    } else if (s->kind == PRE_BYTES) {
      tok_bytes_add(out, text, p->len);
    } else {
      if (text[0] != ' ') str_add_char(out, ' ');
      str_add_n(out, text, p->len);
    }
    HP_TRY(str_status(out));
    if (out->len > w->limit)
      HP_FAIL(HP_ERR_INPUT, "the tokenizer's pre-tokenizers make more than %zu bytes of a text",
              w->limit);
    p->at = (uint32_t)at;
    p->len = (uint32_t)(out->len - at);
  }
  return HP_OK;
}

hp_status tok_pretokenize(const tok_pretokenizer *p, tok_words *w) {
  for (size_t i = 0; p && i < p->step.len; i++) {
    const pre_step *s = &p->step.at[i];
    if (s->kind == PRE_PREFIX || s->kind == PRE_METASPACE || s->kind == PRE_BYTES) {
      HP_TRY(rewrite_words(s, w));
      str text = w->text;
      w->text = w->next_text;
      w->next_text = text;
    } else {
      HP_TRY(cut_words(s, w));
      void *at = w->piece.at;
      size_t cap = w->piece.cap;
      w->piece.at = w->next_piece.at;
      w->piece.cap = w->next_piece.cap;
      w->piece.len = w->next_piece.len;
      w->next_piece.at = at;
      w->next_piece.cap = cap;
    }
  }
  return HP_OK;
}
