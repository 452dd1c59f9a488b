#include "data/tok_norm.h"

#include "data/tok_bytes.h"
#include "data/unicode.h"

#include <stdio.h>
#include <string.h>

typedef enum {
  NORM_FORM,     /* NFC ... : .form */
  NORM_LOWER,
  NORM_STRIP,    /* .left, .right */
  NORM_MARKS,    /* StripAccents */
  NORM_REPLACE,  /* .re -> .text */
  NORM_PREPEND,  /* .text */
  NORM_NMT,
  NORM_BYTES,
  NORM_CLEAN,    /* the four steps of BertNormalizer */
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

static hp_status add(tok_normalizer *n, norm_step s) {
  if (vec_push(&n->step, s)) return HP_OK;
  tok_regex_free(s.re);
  return HP_ERR_OOM;
}

static hp_status keep_text(tok_normalizer *n, const tj_node *node, norm_step *s) {
  s->len = node->text.len;
  s->text = arena_strndup(&n->mem, node->text.at, node->text.len);
  return s->text ? HP_OK : HP_ERR_OOM;
}

static hp_status parse_bert(const tj_reader *r, tok_normalizer *n) {
  bool clean = true, cjk = true, lower = true;
  HP_TRY(tj_get_flag(r, "clean_text", true, &clean));
  HP_TRY(tj_get_flag(r, "handle_chinese_chars", true, &cjk));
  HP_TRY(tj_get_flag(r, "lowercase", true, &lower));
  bool marks = lower;
  HP_TRY(tj_get_flag(r, "strip_accents", false, &marks));
  if (clean) HP_TRY(add(n, (norm_step){.kind = NORM_CLEAN}));
  if (cjk) HP_TRY(add(n, (norm_step){.kind = NORM_CJK_SPACES}));
  if (marks) {
    HP_TRY(add(n, (norm_step){.kind = NORM_FORM, .form = UNICODE_NFD}));
    HP_TRY(add(n, (norm_step){.kind = NORM_NONSPACING}));
  }
  if (lower) HP_TRY(add(n, (norm_step){.kind = NORM_LOWER}));
  return HP_OK;
}

static hp_status parse_with_text(const tj_reader *r, tok_normalizer *n, bool replace) {
  norm_step s = {.kind = replace ? NORM_REPLACE : NORM_PREPEND};
  const tj_node *text;
  HP_TRY(tj_get_text(r, replace ? "content" : "prepend", true, &text));
  HP_TRY(keep_text(n, text, &s));
  if (replace) HP_TRY(tok_regex_parse(r, &s.re));
  return add(n, s);
}

static hp_status parse_strip(const tj_reader *r, tok_normalizer *n) {
  norm_step s = {.kind = NORM_STRIP};
  HP_TRY(tj_get_flag(r, "strip_left", true, &s.left));
  HP_TRY(tj_get_flag(r, "strip_right", true, &s.right));
  return add(n, s);
}

static hp_status parse(const char *file, const tj_node *node, tok_normalizer *n);

static hp_status parse_sequence(const tj_reader *r, tok_normalizer *n) {
  const tj_node *list;
  HP_TRY(tj_get_kind(r, "normalizers", TJ_LIST, &list));
  for (size_t i = 0; i < list->items.n; i++) HP_TRY(parse(r->file, &list->items.at[i], n));
  return HP_OK;
}

static hp_status parse(const char *file, const tj_node *node, tok_normalizer *n) {
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
  tj_reader r = {file, "a normalizer", node};
  const tj_node *type;
  HP_TRY(tj_get_kind(&r, "type", TJ_TEXT, &type));
  for (size_t i = 0; i < sizeof simple / sizeof *simple; i++)
    if (tj_is(type, simple[i].name)) return add(n, simple[i].step);
  char what[80];
  snprintf(what, sizeof what, "normalizer %.*s", type->text.len > 40 ? 40 : (int)type->text.len,
           type->text.at);
  r.what = what;
  if (tj_is(type, "Sequence")) return parse_sequence(&r, n);
  if (tj_is(type, "BertNormalizer") || tj_is(type, "Bert")) return parse_bert(&r, n);
  if (tj_is(type, "Strip")) return parse_strip(&r, n);
  if (tj_is(type, "Replace")) return parse_with_text(&r, n, true);
  if (tj_is(type, "Prepend")) return parse_with_text(&r, n, false);
  HP_FAIL(HP_ERR_UNSUPPORTED,
          "%s:%u: %s is not supported; expected NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, "
          "Replace, Prepend, Nmt, ByteLevel, BertNormalizer or Sequence",
          file, type->line, what);
}

hp_status tok_normalizer_parse(const char *file, const tj_node *node, tok_normalizer **out) {
  *out = NULL;
  if (!node || node->kind == TJ_NULL) return HP_OK;
  tok_normalizer *n = mem_calloc(1, sizeof *n);
  HP_TRY_MEM(n);
  hp_status st;
  tj_reader r = {file, "\"normalizer\"", node};
  if (node->kind != TJ_MAP)
    HP_FAIL_GOTO(st, HP_ERR_INPUT, "%s:%u: %s is %s; expected an object", file, node->line, r.what,
                 tj_kind_name(node->kind));
  HP_TRY_GOTO(parse(file, node, n), st);
done:
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

static void strip(const norm_step *s, const char *text, size_t n, str *out) {
  size_t at = 0, k;
  while (s->left && at < n && unicode_is_space(utf8_get(text + at, &k))) at += k;
  while (s->right && n > at) {
    size_t last = utf8_back(text, n);
    if (!unicode_is_space(utf8_get(text + last, &k))) break;
    n = last;
  }
  str_add_n(out, text + at, n - at);
}

static bool is_cjk(uint32_t cp) {
  return (cp >= 0x4E00 && cp <= 0x9FFF) || (cp >= 0x3400 && cp <= 0x4DBF) ||
         (cp >= 0x20000 && cp <= 0x2A6DF) || (cp >= 0x2A700 && cp <= 0x2B73F) ||
         (cp >= 0x2B740 && cp <= 0x2B81F) || (cp >= 0x2B920 && cp <= 0x2CEAF) ||
         (cp >= 0xF900 && cp <= 0xFAFF) || (cp >= 0x2F800 && cp <= 0x2FA1F);
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
  default: /* NORM_NMT */
    if ((cp >= 1 && cp <= 8) || cp == 0xB || (cp >= 0xE && cp <= 0x1F) || cp == 0x7F || cp == 0x8F ||
        cp == 0x9F)
      return;
    bool blank = cp == 9 || cp == 0xA || cp == 0xC || cp == 0xD || cp == 0x1680 ||
                 (cp >= 0x200B && cp <= 0x200F) || cp == 0x2028 || cp == 0x2029 || cp == 0x2581 ||
                 cp == 0xFEFF || cp == UNICODE_REPLACEMENT;
    utf8_add(out, blank ? ' ' : cp);
  }
}

static hp_status replace(const norm_step *s, tok_matcher *m, const char *text, size_t n, str *out) {
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

static hp_status run(const norm_step *s, tok_matcher *m, const char *text, size_t n, str *out) {
  switch (s->kind) {
  case NORM_FORM: return unicode_normalize(s->form, text, n, out);
  case NORM_REPLACE: return replace(s, m, text, n, out);
  case NORM_STRIP: strip(s, text, n, out); break;
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
    HP_TRY_GOTO(run(&n->step.at[i], m, at, now, to), st);
    HP_TRY_GOTO(str_status(to), st);
    at = to->at ? to->at : "";
    now = to->len;
    if (now > limit || now > UINT32_MAX / 2)
      HP_FAIL_GOTO(st, HP_ERR_INPUT,
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
