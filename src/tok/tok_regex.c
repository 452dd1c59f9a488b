#define PCRE2_CODE_UNIT_WIDTH 8
#include "tok/tok_regex.h"

#include "tok/unicode.h"

#include <pcre2.h>
#include <string.h>

/* Work on a text is counted by callouts in the expression (see tok_regex_translate): a step each,
 * and one for each byte between two of them.  PCRE2's own limit holds for one place at which a
 * match is tried, and there are as many places as bytes: it alone leaves the square of the length.
 * Real expressions take 2 to 5 steps a byte.  Of numbers, some look ahead to their end at every
 * third digit: what is allowed of any text is for 10,000 digits. */
enum {
  PATTERN_MAX = 64 << 10, /* bytes; real ones have a few hundred */
  STEPS_MIN = 16 << 20,   /* of a text: 0.2 s */
  STEPS_PER_BYTE = 64,
  PLACE_MIN = 10000, /* of PCRE2's steps at one place, and STEPS_PER_BYTE for each byte */
  HEAP_LIMIT_KIB = 64 << 10,
  SHOWN = 80 /* bytes of an expression in messages */
};

struct tok_regex {
  pcre2_code *code;
  char where[256], shown[SHOWN + 4];
};

static hp_status refuse_regex(const tok_regex *re, int code, size_t offset) {
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
  memcpy(re->shown, pattern, n < SHOWN ? n : SHOWN);
  if (n > SHOWN) memcpy(re->shown + SHOWN, "...", 4);
  if (n > PATTERN_MAX)
    HP_FAIL_GOTO(st, HP_ERR_INPUT, "%s: a regular expression of %zu bytes; expected at most %d",
                 where, n, PATTERN_MAX);
  HP_TRY_GOTO(tok_regex_translate(pattern, n, where, true, &text), st);
  context = pcre2_compile_context_create(NULL);
  if (!context) HP_FAIL_GOTO(st, HP_ERR_OOM, "%s: no memory for a regular expression", where);
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  int code;
  PCRE2_SIZE offset;
  re->code = pcre2_compile((PCRE2_SPTR)text.at, text.len,
                           PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_DUPNAMES |
                               PCRE2_NEVER_BACKSLASH_C | PCRE2_NO_UTF_CHECK,
                           &code, &offset, context);
  if (!re->code) HP_TRY_GOTO(refuse_regex(re, code, offset), st);
  (void)pcre2_jit_compile(re->code, PCRE2_JIT_COMPLETE); /* without it the interpreter runs */
done:
  pcre2_compile_context_free(context);
  str_free(&text);
  if (st) tok_regex_free(re);
  else *out = re;
  return st;
}

/* Literal text as an expression. */
static hp_status quote_text(const tree_node *text, str *out) {
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
  hp_status st = quote_text(text, &quoted);
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

/* --- counting --------------------------------------------------------------------------------- */

static size_t find_distance(size_t a, size_t b) { return a < b ? b - a : a - b; }

/* The longest group that a reference may compare. */
static size_t find_longest_group(const pcre2_callout_block *b) {
  size_t longest = 0;
  for (uint32_t k = 1; k < b->capture_top; k++) {
    PCRE2_SIZE at = b->offset_vector[2 * k], end = b->offset_vector[2 * k + 1];
    if (at != PCRE2_UNSET && end != PCRE2_UNSET && end - at > longest && end > at)
      longest = end - at;
  }
  return longest;
}

/* Ends the match when the text has used up its steps. */
static int count_step(pcre2_callout_block *b, void *data) {
  tok_matcher *m = data;
  if (b->start_match != m->start) m->start = m->at = b->start_match;
  m->steps += 1 + find_distance(m->at, b->current_position);
  m->at = b->current_position;
  if (b->callout_number == TOK_COUNT_REFERENCE) m->steps += find_longest_group(b);
  if (b->callout_number >= TOK_COUNT_TIMES && b->callout_number < TOK_COUNT_TIMES + 17)
    m->steps += (size_t)1 << (b->callout_number - TOK_COUNT_TIMES);
  return m->steps > m->allowed ? PCRE2_ERROR_CALLOUT : 0;
}

static hp_status prepare_matcher(tok_matcher *m) {
  if (m->data) return HP_OK;
  m->data = pcre2_match_data_create(1, NULL);
  m->context = pcre2_match_context_create(NULL);
  if (!m->data || !m->context) {
    tok_matcher_free(m);
    HP_FAIL(HP_ERR_OOM, "no memory to match regular expressions");
  }
  pcre2_set_heap_limit(m->context, HEAP_LIMIT_KIB);
  m->allowed = STEPS_MIN;
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
  m->start = m->at = from;
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

static hp_status refuse_text(const tok_regex *re, int code, size_t n) {
  bool limit = code == PCRE2_ERROR_CALLOUT || code == PCRE2_ERROR_MATCHLIMIT ||
               code == PCRE2_ERROR_DEPTHLIMIT || code == PCRE2_ERROR_HEAPLIMIT;
  if (limit)
    HP_FAIL(
        HP_ERR_INPUT,
        "%s: the regular expression \"%s\" fails on this text of %zu bytes: it goes over the "
        "same characters again and again (%s); cut the text, or use an expression that does not",
        re->where, re->shown, n,
        code == PCRE2_ERROR_CALLOUT      ? "more steps than grow with its length"
        : code == PCRE2_ERROR_MATCHLIMIT ? "more steps than one match may take"
                                         : "deeper than one match may go");
  char why[128] = "unknown error";
  pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
  HP_FAIL(HP_ERR_INPUT, "%s: the regular expression \"%s\" fails on this text of %zu bytes: %s",
          re->where, re->shown, n, why);
}

hp_status tok_regex_split(const tok_regex *re, tok_matcher *m, const char *text, size_t n,
                          tok_spans *out) {
  out->len = 0;
  HP_ASSERT(n <= UINT32_MAX);
  HP_TRY(prepare_matcher(m));
  HP_TRY(cast_shadow(m, text, n, &text));
  uint64_t more = (uint64_t)STEPS_PER_BYTE * n, place = PLACE_MIN + more;
  m->allowed += more;
  pcre2_set_callout(m->context, count_step, m);
  pcre2_set_match_limit(m->context, place > UINT32_MAX ? UINT32_MAX : (uint32_t)place);
  size_t done = 0, from = 0;
  bool any = false;
  while (from <= n) {
    size_t at, end;
    int rc = next_match(re, m, text, n, from, &at, &end);
    if (rc < 0) return refuse_text(re, rc, n);
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
