#include "tok/tok_norm.h"

#include "tok/tok_bytes.h"
#include "tok/unicode.h"

#include <stdio.h>
#include <string.h>

typedef enum {
  NORM_FORM, /* NFC ... : .form */
  NORM_LOWER,
  NORM_STRIP,   /* .left, .right */
  NORM_MARKS,   /* StripAccents */
  NORM_REPLACE, /* .re -> .text */
  NORM_PREPEND, /* .text */
  NORM_NMT,
  NORM_BYTES,
  NORM_CLEAN, /* the four steps of BertNormalizer */
  NORM_CJK_SPACES,
  NORM_NONSPACING
} norm_kind;

typedef struct {
  norm_kind kind;
  unicode_form form;
  bool left, right;
  tok_regex *re;
  const char *text;
  size_t len;
} norm_step;

/* Sequences are flattened: a list of steps. */
struct tok_normalizer {
  VEC(norm_step) step;
  arena mem;
};

static hp_status add_step(tok_normalizer *n, norm_step s) {
  if (vec_push(&n->step, s)) return HP_OK;
  tok_regex_free(s.re);
  return HP_ERR_OOM;
}

static hp_status keep_text(tok_normalizer *n, const tree_node *node, norm_step *s) {
  s->len = node->len;
  s->text = arena_strndup(&n->mem, node->string, node->len);
  return s->text ? HP_OK : HP_ERR_OOM;
}

static hp_status parse_bert(const tree_node *r, tok_normalizer *n) {
  bool clean = true, cjk = true, lower = true;
  HP_TRY(tree_need_bool(r, "clean_text", &clean));
  HP_TRY(tree_need_bool(r, "handle_chinese_chars", &cjk));
  HP_TRY(tree_need_bool(r, "lowercase", &lower));
  bool marks = lower;
  HP_TRY(tree_opt_bool(r, "strip_accents", marks, &marks));
  if (clean) HP_TRY(add_step(n, (norm_step){.kind = NORM_CLEAN}));
  if (cjk) HP_TRY(add_step(n, (norm_step){.kind = NORM_CJK_SPACES}));
  if (marks) {
    HP_TRY(add_step(n, (norm_step){.kind = NORM_FORM, .form = UNICODE_NFD}));
    HP_TRY(add_step(n, (norm_step){.kind = NORM_NONSPACING}));
  }
  if (lower) HP_TRY(add_step(n, (norm_step){.kind = NORM_LOWER}));
  return HP_OK;
}

static hp_status parse_with_text(const tree_node *r, tok_normalizer *n, bool replace) {
  norm_step s = {.kind = replace ? NORM_REPLACE : NORM_PREPEND};
  const tree_node *text;
  HP_TRY(tok_need_text(r, replace ? "content" : "prepend", &text));
  HP_TRY(keep_text(n, text, &s));
  if (replace) HP_TRY(tok_regex_parse(r, &s.re));
  return add_step(n, s);
}

static hp_status parse_strip(const tree_node *r, tok_normalizer *n) {
  norm_step s = {.kind = NORM_STRIP};
  HP_TRY(tree_need_bool(r, "strip_left", &s.left));
  HP_TRY(tree_need_bool(r, "strip_right", &s.right));
  return add_step(n, s);
}

static hp_status parse_step(const tree_node *node, tok_normalizer *n);

static hp_status parse_sequence(const tree_node *r, tok_normalizer *n) {
  const tree_node *list;
  HP_TRY(tree_need_list(r, "normalizers", &list));
  for (size_t i = 0; i < list->len; i++) HP_TRY(parse_step(list->child[i], n));
  return HP_OK;
}

static hp_status parse_step(const tree_node *node, tok_normalizer *n) {
  static const struct {
    const char *name;
    norm_step step;
  } simple[] = {{"NFC", {.kind = NORM_FORM, .form = UNICODE_NFC}},
                {"NFD", {.kind = NORM_FORM, .form = UNICODE_NFD}},
                {"NFKC", {.kind = NORM_FORM, .form = UNICODE_NFKC}},
                {"NFKD", {.kind = NORM_FORM, .form = UNICODE_NFKD}},
                {"Lowercase", {.kind = NORM_LOWER}},
                {"StripAccents", {.kind = NORM_MARKS}},
                {"Nmt", {.kind = NORM_NMT}},
                {"ByteLevel", {.kind = NORM_BYTES}}};
  const tree_node *type;
  HP_TRY(tok_type(node, "a normalizer", &type));
  for (size_t i = 0; i < sizeof simple / sizeof *simple; i++)
    if (tok_is(type, simple[i].name)) return add_step(n, simple[i].step);
  if (tok_is(type, "Sequence")) return parse_sequence(node, n);
  if (tok_is(type, "BertNormalizer") || tok_is(type, "Bert")) return parse_bert(node, n);
  if (tok_is(type, "Strip")) return parse_strip(node, n);
  if (tok_is(type, "Replace")) return parse_with_text(node, n, true);
  if (tok_is(type, "Prepend")) return parse_with_text(node, n, false);
  return tok_unknown(type, "normalizer",
                     "NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Replace, Prepend, Nmt, "
                     "ByteLevel, BertNormalizer or Sequence");
}

hp_status tok_normalizer_parse(const tree_node *node, tok_normalizer **out) {
  *out = NULL;
  if (!node) return HP_OK;
  tok_normalizer *n = mem_calloc(1, sizeof *n);
  HP_TRY_MEM(n);
  hp_status st = parse_step(node, n);
  if (st) tok_normalizer_free(n);
  else *out = n;
  return st;
}

void tok_normalizer_free(tok_normalizer *n) {
  if (!n) return;
  for (size_t i = 0; i < n->step.len; i++) tok_regex_free(n->step.at[i].re);
  vec_free(&n->step);
  arena_free(&n->mem);
  mem_free(n);
}

bool tok_normalizer_takes_bytes(const tok_normalizer *n) {
  for (size_t i = 0; n && i < n->step.len; i++)
    if (n->step.at[i].kind == NORM_BYTES) return true;
  return false;
}

static void strip_text(const norm_step *s, const char *text, size_t n, str *out) {
  size_t at = 0, k;
  while (s->left && at < n && unicode_is_space(utf8_get(text + at, &k))) at += k;
  while (s->right && n > at) {
    size_t last = utf8_back(text, n);
    if (!unicode_is_space(utf8_get(text + last, &k))) break;
    n = last;
  }
  str_add_n(out, text + at, n - at);
}

/* Whether cp lies in one of n ranges [first, last]. */
static bool is_in_ranges(uint32_t cp, const uint32_t range[][2], size_t n) {
  for (size_t i = 0; i < n; i++)
    if (cp >= range[i][0] && cp <= range[i][1]) return true;
  return false;
}
#define IN_RANGES(cp, range) is_in_ranges((cp), (range), sizeof(range) / sizeof *(range))

static bool is_cjk(uint32_t cp) {
  static const uint32_t range[][2] = {{0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF},
                                      {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF},
                                      {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
  return IN_RANGES(cp, range);
}

/* SentencePiece's "nmt" rule: some control characters vanish, other blanks become spaces. */
static void map_nmt(uint32_t cp, str *out) {
  static const uint32_t dropped[][2] = {{1, 8},       {0xB, 0xB},   {0xE, 0x1F},
                                        {0x7F, 0x7F}, {0x8F, 0x8F}, {0x9F, 0x9F}};
  static const uint32_t blank[][2] = {{9, 0xA},         {0xC, 0xD},       {0x1680, 0x1680},
                                      {0x200B, 0x200F}, {0x2028, 0x2029}, {0x2581, 0x2581},
                                      {0xFEFF, 0xFEFF}, {0xFFFD, 0xFFFD}};
  if (IN_RANGES(cp, dropped)) return;
  utf8_add(out, IN_RANGES(cp, blank) ? ' ' : cp);
}

/* The step for one character: drop it, or append what it becomes. */
static void map_char(norm_kind kind, uint32_t cp, str *out) {
  switch (kind) {
  case NORM_LOWER: unicode_add_lower(out, cp); return;
  case NORM_MARKS:
    if (!unicode_is_mark(cp)) utf8_add(out, cp);
    return;
  case NORM_NONSPACING:
    if (!unicode_is_nonspacing(cp)) utf8_add(out, cp);
    return;
  case NORM_CJK_SPACES:
    if (is_cjk(cp)) str_add_char(out, ' ');
    utf8_add(out, cp);
    if (is_cjk(cp)) str_add_char(out, ' ');
    return;
  case NORM_CLEAN:
    if (cp == '\t' || cp == '\n' || cp == '\r') str_add_char(out, ' ');
    else if (cp && cp != UNICODE_REPLACEMENT && !unicode_is_other(cp))
      utf8_add(out, unicode_is_space(cp) ? ' ' : cp);
    return;
  default: map_nmt(cp, out);
  }
}

static hp_status replace_text(const norm_step *s, tok_matcher *m, const char *text, size_t n,
                              str *out) {
  tok_spans spans = {0};
  hp_status st = tok_regex_split(s->re, m, text, n, &spans);
  for (size_t i = 0; !st && i < spans.len; i++) {
    tok_span p = spans.at[i];
    if (p.match) str_add_n(out, s->text, s->len);
    else str_add_n(out, text + p.at, p.end - p.at);
    if (out->len / TOK_GROWTH_MAX > n + TOK_GROWTH_MIN) break; /* refused by the caller */
  }
  vec_free(&spans);
  return st;
}

static hp_status run_step(const norm_step *s, tok_matcher *m, const char *text, size_t n,
                          str *out) {
  switch (s->kind) {
  case NORM_FORM: return unicode_normalize(s->form, text, n, out);
  case NORM_REPLACE: return replace_text(s, m, text, n, out);
  case NORM_STRIP: strip_text(s, text, n, out); break;
  case NORM_BYTES: tok_bytes_add(out, text, n); break;
  case NORM_PREPEND:
    if (n) str_add_n(out, s->text, s->len);
    str_add_n(out, text, n);
    break;
  default:
    for (size_t at = 0, k; at < n; at += k) map_char(s->kind, utf8_get(text + at, &k), out);
  }
  return HP_OK;
}

hp_status tok_normalize(const tok_normalizer *n, tok_matcher *m, const char *text, size_t len,
                        str *out) {
  str work[2] = {{0}, {0}};
  hp_status st = HP_OK;
  size_t limit = (len + TOK_GROWTH_MIN) * TOK_GROWTH_MAX;
  const char *at = text;
  size_t now = len;
  for (size_t i = 0; n && i < n->step.len; i++) {
    str *to = &work[i & 1];
    str_clear(to);
    HP_TRY_GOTO(run_step(&n->step.at[i], m, at, now, to), st);
    HP_TRY_GOTO(str_status(to), st);
    at = to->at ? to->at : "";
    now = to->len;
    if (now > limit || now > UINT32_MAX / 2)
      HP_FAIL_GOTO(
          st, HP_ERR_INPUT,
          "the tokenizer's normalizer makes %zu bytes of a text of %zu; the limit is %d times "
          "its size",
          now, len, TOK_GROWTH_MAX);
  }
  str_add_n(out, at, now);
  st = str_status(out);
done:
  str_free(&work[0]);
  str_free(&work[1]);
  return st;
}
