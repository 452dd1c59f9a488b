#define PCRE2_CODE_UNIT_WIDTH 8
#include "data/tok_regex.h"

#include "data/unicode.h"

#include <pcre2.h>
#include <string.h>

enum {
  PATTERN_MAX = 64 << 10, /* bytes; real ones have a few hundred */
  STEPS_MIN = 10000,      /* of one match, and per byte of the text beyond: real expressions */
  STEPS_PER_BYTE = 64,    /* take a few per byte, ones that blow up are stopped early */
  HEAP_LIMIT_KIB = 64 << 10
};

struct tok_regex {
  pcre2_code *code;
  char where[256];
};

static hp_status refuse(const tok_regex *re, int code, size_t offset) {
  char text[128] = "unknown error";
  pcre2_get_error_message(code, (PCRE2_UCHAR *)text, sizeof text);
  HP_FAIL(HP_ERR_INPUT, "%s: bad regular expression: %s at byte %zu (as PCRE2 reads it)", re->where,
          text, offset);
}

hp_status tok_regex_compile(const char *pattern, size_t n, const char *where, tok_regex **out) {
  str text = {0};
  hp_status st;
  pcre2_compile_context *context = NULL;
  tok_regex *re = mem_calloc(1, sizeof *re);
  HP_TRY_MEM(re);
  size_t keep = strlen(where) < sizeof re->where ? strlen(where) : sizeof re->where - 1;
  memcpy(re->where, where, keep);
  if (n > PATTERN_MAX)
    HP_FAIL_GOTO(st, HP_ERR_INPUT, "%s: a regular expression of %zu bytes; expected at most %d",
                 where, n, PATTERN_MAX);
  HP_TRY_GOTO(tok_regex_translate(pattern, n, where, &text), st);
  context = pcre2_compile_context_create(NULL);
  if (!context) HP_FAIL_GOTO(st, HP_ERR_OOM, "%s: no memory for a regular expression", where);
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  int code;
  PCRE2_SIZE offset;
  re->code = pcre2_compile((PCRE2_SPTR)text.at, text.len,
                           PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_DUPNAMES |
                               PCRE2_NEVER_BACKSLASH_C | PCRE2_NO_UTF_CHECK,
                           &code, &offset, context);
  if (!re->code) HP_TRY_GOTO(refuse(re, code, offset), st);
  (void)pcre2_jit_compile(re->code, PCRE2_JIT_COMPLETE); /* without it the interpreter runs */
done:
  pcre2_compile_context_free(context);
  str_free(&text);
  if (st) tok_regex_free(re);
  else *out = re;
  return st;
}

/* Literal text as an expression. */
static hp_status quote(const tree_node *text, str *out) {
  str_add(out, "");
  for (size_t i = 0; i < text->len; i++) {
    char c = text->string[i];
    if (c > 0 && c < 0x7F && strchr("\\^$.|?*+()[]{}-#&~", c)) str_add_char(out, '\\');
    if (c) str_add_char(out, c);
    else str_add(out, "\\x00");
  }
  return str_status(out);
}

hp_status tok_regex_parse(const tree_node *r, tok_regex **out) {
  const tree_node *pattern, *text;
  str quoted = {0};
  HP_TRY(tree_need_map(r, "pattern", &pattern));
  tree_place where = tree_where(pattern);
  if (tok_get(pattern, "Regex")) {
    HP_TRY(tok_need_text(pattern, "Regex", &text));
    return tok_regex_compile(text->string, text->len, where.text, out);
  }
  HP_TRY(tok_need_text(pattern, "String", &text));
  hp_status st = quote(text, &quoted);
  if (!st) st = tok_regex_compile(quoted.at, quoted.len, where.text, out);
  str_free(&quoted);
  return st;
}

void tok_regex_free(tok_regex *re) {
  if (!re) return;
  pcre2_code_free(re->code);
  mem_free(re);
}

void tok_matcher_free(tok_matcher *m) {
  pcre2_match_data_free(m->data);
  pcre2_match_context_free(m->context);
  str_free(&m->shadow);
  *m = (tok_matcher){0};
}

static hp_status prepare(tok_matcher *m) {
  if (m->data) return HP_OK;
  m->data = pcre2_match_data_create(1, NULL);
  m->context = pcre2_match_context_create(NULL);
  if (!m->data || !m->context) {
    tok_matcher_free(m);
    HP_FAIL(HP_ERR_OOM, "no memory to match regular expressions");
  }
  pcre2_set_heap_limit(m->context, HEAP_LIMIT_KIB);
  return HP_OK;
}

/* *out is the text, or its copy in which stand-ins replace characters too new for PCRE2. */
static hp_status cast_shadow(tok_matcher *m, const char *text, size_t n, const char **out) {
  *out = text;
  size_t done = 0;
  for (size_t at = 0, k; at < n; at += k) {
    if ((unsigned char)text[at] < 0xE0) {
      k = 1;
      continue;
    }
    uint32_t cp = utf8_get(text + at, &k), stand_in = unicode_stand_in(cp);
    if (cp == stand_in) continue;
    if (!done) str_clear(&m->shadow);
    str_add_n(&m->shadow, text + done, at - done);
    utf8_add(&m->shadow, stand_in);
    done = at + k;
  }
  if (!done) return HP_OK;
  str_add_n(&m->shadow, text + done, n - done);
  *out = m->shadow.at;
  return str_status(&m->shadow);
}

/* The next match at or after `from`: 1 and its bounds, 0 for none, or a failure of PCRE2. */
static int next_match(const tok_regex *re, tok_matcher *m, const char *text, size_t n, size_t from,
                      size_t *at, size_t *end) {
  int rc =
      pcre2_match(re->code, (PCRE2_SPTR)text, n, from, PCRE2_NO_UTF_CHECK, m->data, m->context);
  if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
    rc = pcre2_match(re->code, (PCRE2_SPTR)text, n, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                     m->data, m->context);
  if (rc == PCRE2_ERROR_NOMATCH) return 0;
  if (rc < 0) return rc;
  const PCRE2_SIZE *bound = pcre2_get_ovector_pointer(m->data);
  *at = bound[0];
  *end = bound[1];
  return *at <= *end && *at >= from ? 1 : 0; /* \K may move the start: no match then */
}

hp_status tok_regex_split(const tok_regex *re, tok_matcher *m, const char *text, size_t n,
                          tok_spans *out) {
  out->len = 0;
  HP_ASSERT(n <= UINT32_MAX);
  HP_TRY(prepare(m));
  HP_TRY(cast_shadow(m, text, n, &text));
  uint64_t steps = STEPS_MIN + (uint64_t)STEPS_PER_BYTE * n;
  pcre2_set_match_limit(m->context, steps > UINT32_MAX ? UINT32_MAX : (uint32_t)steps);
  size_t done = 0, from = 0;
  bool any = false;
  while (from <= n) {
    size_t at, end;
    int rc = next_match(re, m, text, n, from, &at, &end);
    if (rc < 0) {
      char why[128] = "unknown error";
      pcre2_get_error_message(rc, (PCRE2_UCHAR *)why, sizeof why);
      HP_FAIL(HP_ERR_INPUT, "%s: the regular expression fails on this text: %s", re->where, why);
    }
    if (!rc) break;
    from = end;
    if (at == end && any && end == done) { /* an empty match right after a match does not count */
      from = end < n ? end + utf8_len(text + end) : n + 1;
      continue;
    }
    if (!vec_reserve(out, 2)) return HP_ERR_OOM;
    if (done < at) out->at[out->len++] = (tok_span){(uint32_t)done, (uint32_t)at, false};
    out->at[out->len++] = (tok_span){(uint32_t)at, (uint32_t)end, true};
    done = end;
    any = true;
  }
  if (done < n && !vec_push(out, ((tok_span){(uint32_t)done, (uint32_t)n, false})))
    return HP_ERR_OOM;
  return HP_OK;
}
