#include "tok/tok_dec.h"

#include "tok/tok_bytes.h"
#include "tok/unicode.h"

#include <string.h>

typedef enum {
  DEC_BYTE_LEVEL,
  DEC_FUSE,
  DEC_BYTE_FALLBACK,
  DEC_METASPACE,  /* .character, .flag: drop it from the first token */
  DEC_STRIP,      /* .character, .start, .stop */
  DEC_REPLACE,    /* .re -> .text */
  DEC_WORD_PIECE, /* .text is the prefix, .flag: clean up */
  DEC_BPE         /* .text is the suffix */
} dec_kind;

typedef struct {
  dec_kind kind;
  bool flag;
  uint32_t character;
  size_t start, stop;
  tok_regex *re;
  const char *text;
  size_t len;
} dec_step;

struct tok_decoder {
  VEC(dec_step) step;
  arena mem;
};

enum { TEXT_MAX = 1 << 30 }; /* bytes of one decoded text */

/* --- reading ---------------------------------------------------------------------------- */

static hp_status add_step(tok_decoder *d, dec_step s) {
  if (vec_push(&d->step, s)) return HP_OK;
  tok_regex_free(s.re);
  return HP_ERR_OOM;
}

static hp_status keep_text(const tree_node *r, const char *key, tok_decoder *d, dec_step *s) {
  const tree_node *text;
  HP_TRY(tok_need_text(r, key, &text));
  s->len = text->len;
  s->text = arena_strndup(&d->mem, text->string, s->len);
  return s->text ? HP_OK : HP_ERR_OOM;
}

static hp_status get_char(const tree_node *r, const char *key, uint32_t *out) {
  const tree_node *text;
  size_t k = 0;
  HP_TRY(tok_need_text(r, key, &text));
  if (text->len) *out = utf8_get(text->string, &k);
  if (!k || k != text->len)
    TREE_FAIL(text, "expected one character, found %s", tree_what(text).text);
  return HP_OK;
}

static hp_status parse_metaspace(const tree_node *r, tok_decoder *d) {
  dec_step s = {.kind = DEC_METASPACE};
  const tree_node *scheme = NULL;
  bool prefix = true;
  HP_TRY(get_char(r, "replacement", &s.character));
  HP_TRY(tree_opt_bool(r, "add_prefix_space", prefix, &prefix));
  HP_TRY(tok_opt_text(r, "prepend_scheme", &scheme));
  s.flag = prefix && !tok_is(scheme, "never");
  return add_step(d, s);
}

static hp_status parse_step(const tree_node *node, tok_decoder *d);

static hp_status parse_sequence(const tree_node *r, tok_decoder *d) {
  const tree_node *list;
  HP_TRY(tree_need_list(r, "decoders", &list));
  for (size_t i = 0; i < list->len; i++) HP_TRY(parse_step(list->child[i], d));
  return HP_OK;
}

static hp_status parse_typed(const tree_node *r, const tree_node *type, tok_decoder *d) {
  dec_step s = {0};
  if (tok_is(type, "ByteLevel")) return add_step(d, (dec_step){.kind = DEC_BYTE_LEVEL});
  if (tok_is(type, "ByteFallback")) return add_step(d, (dec_step){.kind = DEC_BYTE_FALLBACK});
  if (tok_is(type, "Fuse")) return add_step(d, (dec_step){.kind = DEC_FUSE});
  if (tok_is(type, "Metaspace")) return parse_metaspace(r, d);
  if (tok_is(type, "Sequence")) return parse_sequence(r, d);
  if (tok_is(type, "Strip")) {
    s.kind = DEC_STRIP;
    HP_TRY(get_char(r, "content", &s.character));
    HP_TRY(tok_need_count(r, "start", &s.start));
    HP_TRY(tok_need_count(r, "stop", &s.stop));
    return add_step(d, s);
  }
  if (tok_is(type, "Replace")) {
    s.kind = DEC_REPLACE;
    HP_TRY(keep_text(r, "content", d, &s));
    HP_TRY(tok_regex_parse(r, &s.re));
    return add_step(d, s);
  }
  if (tok_is(type, "WordPiece")) {
    s.kind = DEC_WORD_PIECE;
    HP_TRY(keep_text(r, "prefix", d, &s));
    HP_TRY(tree_need_bool(r, "cleanup", &s.flag));
    return add_step(d, s);
  }
  if (tok_is(type, "BPEDecoder")) {
    s.kind = DEC_BPE;
    HP_TRY(keep_text(r, "suffix", d, &s));
    return add_step(d, s);
  }
  return tok_unknown(
      type, "decoder",
      "ByteLevel, Metaspace, ByteFallback, Fuse, Strip, Replace, WordPiece, BPEDecoder or "
      "Sequence");
}

static hp_status parse_step(const tree_node *node, tok_decoder *d) {
  const tree_node *type;
  HP_TRY(tok_type(node, "a decoder", &type));
  return parse_typed(node, type, d);
}

hp_status tok_decoder_parse(const tree_node *node, tok_decoder **out) {
  *out = NULL;
  if (!node) return HP_OK;
  tok_decoder *d = mem_calloc(1, sizeof *d);
  HP_TRY_MEM(d);
  hp_status st = parse_step(node, d);
  if (st) tok_decoder_free(d);
  else *out = d;
  return st;
}

void tok_decoder_free(tok_decoder *d) {
  if (!d) return;
  for (size_t i = 0; i < d->step.len; i++) tok_regex_free(d->step.at[i].re);
  vec_free(&d->step);
  arena_free(&d->mem);
  mem_free(d);
}

bool tok_decoder_is_byte_level(const tok_decoder *d) {
  return d && d->step.len == 1 && d->step.at[0].kind == DEC_BYTE_LEVEL;
}

/* --- lists ------------------------------------------------------------------------------ */

static hp_status close_text(tok_list *l) {
  HP_TRY(str_status(&l->text));
  if (l->text.len > TEXT_MAX)
    HP_FAIL(HP_ERR_INPUT, "the ids decode to more than %d bytes of text", TEXT_MAX);
  return vec_push(&l->end, l->text.len) ? HP_OK : HP_ERR_OOM;
}

hp_status tok_list_add(tok_list *l, const char *text, size_t n) {
  str_add_n(&l->text, text, n);
  return close_text(l);
}

static void clear_list(tok_list *l) {
  str_clear(&l->text);
  l->end.len = 0;
}

void tok_list_free(tok_list *l) {
  str_free(&l->text);
  vec_free(&l->end);
}

static const char *list_get(const tok_list *l, size_t i, size_t *n) {
  size_t at = i ? l->end.at[i - 1] : 0;
  *n = l->end.at[i] - at;
  return l->text.at ? l->text.at + at : "";
}

/* --- the steps -------------------------------------------------------------------------- */

void tok_decode_bytes(const char *token, size_t n, str *out) {
  for (size_t at = 0, k; at < n; at += k)
    if (tok_byte_of(utf8_get(token + at, &k)) < 0) {
      str_add_n(out, token, n);
      return;
    }
  for (size_t at = 0, k; at < n; at += k)
    str_add_char(out, (char)tok_byte_of(utf8_get(token + at, &k)));
}

static hp_status decode_byte_level(const tok_list *in, tok_list *out) {
  str bytes = {0};
  for (size_t i = 0, n; i < in->end.len; i++) {
    const char *t = list_get(in, i, &n);
    tok_decode_bytes(t, n, &bytes);
  }
  hp_status st = str_status(&bytes);
  if (!st) {
    utf8_add_lossy(&out->text, bytes.at ? bytes.at : "", bytes.len);
    st = close_text(out);
  }
  str_free(&bytes);
  return st;
}

/* The byte that a token of the form <0xXX> stands for, or -1. */
static int parse_fallback_byte(const char *t, size_t n) {
  if (n != 6 || memcmp(t, "<0x", 3) || t[5] != '>') return -1;
  int x = 0;
  for (int i = 3; i < 5; i++) {
    char c = t[i];
    int digit = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c == '+' && i == 3   ? 0 /* the reference reads a sign, too */
                                       : -1;
    if (digit < 0) return -1;
    x = x << 4 | digit;
  }
  return x;
}

/* A run of bytes is one text when it is UTF-8, else one U+FFFD per byte. */
static hp_status end_run(str *run, tok_list *out) {
  if (!run->len) return HP_OK;
  HP_TRY(str_status(run));
  if (utf8_valid(run->at, run->len) == run->len) HP_TRY(tok_list_add(out, run->at, run->len));
  else
    for (size_t i = 0; i < run->len; i++) HP_TRY(tok_list_add(out, "\xEF\xBF\xBD", 3));
  str_clear(run);
  return HP_OK;
}

static hp_status join_fallback_bytes(const tok_list *in, tok_list *out) {
  str run = {0};
  hp_status st = HP_OK;
  for (size_t i = 0, n; !st && i < in->end.len; i++) {
    const char *t = list_get(in, i, &n);
    int b = parse_fallback_byte(t, n);
    if (b >= 0) {
      str_add_char(&run, (char)b);
      continue;
    }
    st = end_run(&run, out);
    if (!st) st = tok_list_add(out, t, n);
  }
  if (!st) st = end_run(&run, out);
  str_free(&run);
  return st;
}

static void decode_metaspace(const dec_step *s, const char *t, size_t n, bool first, str *out) {
  for (size_t at = 0, k; at < n; at += k) {
    uint32_t cp = utf8_get(t + at, &k);
    if (cp != s->character) str_add_n(out, t + at, k);
    else if (!first || !s->flag) str_add_char(out, ' ');
  }
}

static void strip_text(const dec_step *s, const char *t, size_t n, str *out) {
  size_t at = 0, k;
  for (size_t i = 0; i < s->start && at < n && utf8_get(t + at, &k) == s->character; i++) at += k;
  for (size_t i = 0; i < s->stop && n > at; i++) {
    size_t back = utf8_back(t, n);
    if (utf8_get(t + back, &k) != s->character) break;
    n = back;
  }
  str_add_n(out, t + at, n - at);
}

static hp_status run_replace(const dec_step *s, tok_matcher *m, tok_spans *spans, const char *t,
                             size_t n, str *out) {
  if (n > UINT32_MAX) HP_FAIL(HP_ERR_INPUT, "a token of more than 4 GiB");
  HP_TRY(tok_regex_split(s->re, m, t, n, spans));
  for (size_t i = 0; i < spans->len; i++) {
    tok_span x = spans->at[i];
    if (x.match) str_add_n(out, s->text, s->len);
    else str_add_n(out, t + x.at, x.end - x.at);
    if (out->len > TEXT_MAX) break; /* refused by close_text */
  }
  return HP_OK;
}

static void replace_text(str *s, size_t from, const char *what, size_t n, const char *by,
                         size_t by_len) {
  str out = {0};
  size_t at = from;
  if (s->failed || s->len < from + n) return;
  for (;;) {
    const char *hit = n ? memmem(s->at + at, s->len - at, what, n) : NULL;
    if (!hit) break;
    size_t end = (size_t)(hit - s->at);
    str_add_n(&out, s->at + at, end - at);
    str_add_n(&out, by, by_len);
    at = end + n;
  }
  if (at > from) {
    str_add_n(&out, s->at + at, s->len - at);
    s->len = from;
    s->failed = s->failed || out.failed;
    str_add_n(s, out.at ? out.at : "", out.len);
  }
  str_free(&out);
}

static void decode_word_piece(const dec_step *s, const char *t, size_t n, bool first, str *out) {
  static const char *const cleanup[][2] = {{" .", "."},     {" ?", "?"},           {" !", "!"},
                                           {" ,", ","},     {" ' ", "'"},          {" n't", "n't"},
                                           {" 'm", "'m"},   {" do not", " don't"}, {" 's", "'s"},
                                           {" 've", "'ve"}, {" 're", "'re"}};
  size_t from = out->len;
  bool inner = n >= s->len && !memcmp(t, s->text, s->len);
  if (!first && !inner) str_add_char(out, ' ');
  size_t cut = !first && inner ? s->len : 0;
  str_add_n(out, t + cut, n - cut);
  for (size_t i = 0; s->flag && i < sizeof cleanup / sizeof *cleanup; i++)
    replace_text(out, from, cleanup[i][0], strlen(cleanup[i][0]), cleanup[i][1],
                 strlen(cleanup[i][1]));
}

static hp_status run_step(const dec_step *s, tok_matcher *m, tok_spans *spans, const tok_list *in,
                          tok_list *out) {
  if (s->kind == DEC_BYTE_LEVEL) return decode_byte_level(in, out);
  if (s->kind == DEC_BYTE_FALLBACK) return join_fallback_bytes(in, out);
  if (s->kind == DEC_FUSE) return tok_list_add(out, in->text.at ? in->text.at : "", in->text.len);
  for (size_t i = 0, n; i < in->end.len; i++) {
    const char *t = list_get(in, i, &n);
    bool last = i + 1 == in->end.len;
    size_t from = out->text.len;
    switch (s->kind) {
    case DEC_METASPACE: decode_metaspace(s, t, n, !i, &out->text); break;
    case DEC_STRIP: strip_text(s, t, n, &out->text); break;
    case DEC_REPLACE: HP_TRY(run_replace(s, m, spans, t, n, &out->text)); break;
    case DEC_WORD_PIECE: decode_word_piece(s, t, n, !i, &out->text); break;
    default: /* DEC_BPE */
      str_add_n(&out->text, t, n);
      replace_text(&out->text, from, s->text, s->len, " ", !last);
    }
    HP_TRY(close_text(out));
  }
  return HP_OK;
}

hp_status tok_decode(const tok_decoder *d, tok_list *list, str *out) {
  tok_list next = {0};
  tok_matcher m = {0};
  tok_spans spans = {0};
  hp_status st = HP_OK;
  for (size_t i = 0; d && i < d->step.len; i++) {
    clear_list(&next);
    HP_TRY_GOTO(run_step(&d->step.at[i], &m, &spans, list, &next), st);
    tok_list done = *list;
    *list = next;
    next = done;
  }
  for (size_t i = 0, n; i < list->end.len; i++) {
    const char *t = list_get(list, i, &n);
    if (!d && i) str_add_char(out, ' ');
    str_add_n(out, t, n);
  }
  HP_TRY_GOTO(str_status(out), st);
done:
  tok_list_free(&next);
  tok_matcher_free(&m);
  vec_free(&spans);
  return st;
}
