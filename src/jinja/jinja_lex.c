/* Text and tags into tokens, by the rules of Jinja2's lexer with trim_blocks and lstrip_blocks. */
#include "jinja/jinja_node.h"

#include "jinja/jinja_text.h"

#include "base/utf8.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  struct jinja *t;
  const char *s;
  size_t n, at;
  size_t seen, line_start, line; /* places are found up to `seen`; line from 1 */
  bool line_starting;            /* what was read last ended a line */
  char open[JINJA_NESTING_MAX];  /* brackets that are open in a tag */
  unsigned n_open;
  jinja_tokens *out;
} lexer;

static void find_line(lexer *x, size_t at) {
  for (; x->seen < at; x->seen++) {
    if (x->s[x->seen] != '\n') continue;
    x->line++;
    x->line_start = x->seen + 1;
  }
}

#define LEX_FAIL(x, at, ...)                                                                       \
  do {                                                                                             \
    find_line((x), (at));                                                                          \
    return lex_error((x), (at), __LINE__, __VA_ARGS__);                                            \
  } while (0)

static hp_status lex_error(const lexer *x, size_t at, int line, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static hp_status lex_error(const lexer *x, size_t at, int line, const char *fmt, ...) {
  char text[512];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  return err_set(HP_ERR_INPUT, __FILE__, line, "%s:%zu:%zu: %s", x->t->name, x->line,
                 at - x->line_start + 1, text);
}

static hp_status push(lexer *x, jinja_token_kind kind, size_t at, const char *text, size_t len) {
  find_line(x, at);
  jinja_token token = {.kind = kind,
                       .line = (uint32_t)x->line,
                       .column = (uint32_t)(at - x->line_start + 1),
                       .text = text,
                       .len = len};
  return vec_push(x->out, token) ? HP_OK : HP_ERR_OOM;
}

static bool is_at(const lexer *x, size_t at, const char *text) {
  size_t n = strlen(text);
  return x->n - at >= n && !memcmp(x->s + at, text, n);
}

/* --- text -------------------------------------------------------------------------------- */

static size_t find_tag(const lexer *x, size_t at) {
  while (at < x->n) {
    const char *p = memchr(x->s + at, '{', x->n - at);
    if (!p) break;
    at = (size_t)(p - x->s);
    if (at + 1 < x->n && p[1] && strchr("{%#", p[1])) return at;
    at++;
  }
  return x->n;
}

/* The text before a tag; `sign` follows the tag's opening.  A minus takes all white space away;
 * otherwise a block or comment alone on its line takes that of its line, a plus forbids it. */
static hp_status add_text(lexer *x, size_t at, size_t end, char sign, bool output) {
  size_t len = end - at;
  if (sign == '-') {
    len = jinja_trim_space(x->s + at, len);
  } else if (sign != '+' && !output) {
    size_t line = len;
    while (line && x->s[at + line - 1] != '\n') line--;
    if ((line || x->line_starting) && line + jinja_skip_space(x->s + at + line, len - line) == len)
      len = line;
  }
  return len ? push(x, JINJA_T_TEXT, at, x->s + at, len) : HP_OK;
}

/* What closes a block, comment or raw block at `at`: "-%}" with the white space behind it, "+%}",
 * or "%}" with a line break; 0: nothing. */
static size_t closing(const lexer *x, size_t at, const char *close, bool plus) {
  if (at < x->n && x->s[at] == '-' && is_at(x, at + 1, close))
    return 3 + jinja_skip_space(x->s + at + 3, x->n - at - 3);
  if (plus && at < x->n && x->s[at] == '+' && is_at(x, at + 1, close)) return 3;
  if (!is_at(x, at, close)) return 0;
  return plus && at + 2 < x->n && x->s[at + 2] == '\n' ? 3 : 2;
}

static void move_to(lexer *x, size_t at) {
  x->line_starting = at && x->s[at - 1] == '\n';
  x->at = at;
}

static hp_status skip_comment(lexer *x, size_t begin, bool sign) {
  for (size_t at = begin + 2 + sign; at < x->n; at++) {
    size_t n = closing(x, at, "#}", true);
    if (!n) continue;
    move_to(x, at + n);
    return HP_OK;
  }
  LEX_FAIL(x, begin, "the comment has no end \"#}\"");
}

/* The length of "{% word" at `at`, up to before what closes it; 0: it is not there. */
static size_t opening_of(const lexer *x, size_t at, const char *word) {
  size_t from = at;
  if (!is_at(x, at, "{%")) return 0;
  at += 2;
  if (at < x->n && (x->s[at] == '-' || x->s[at] == '+')) at++;
  at += jinja_skip_space(x->s + at, x->n - at);
  if (!is_at(x, at, word)) return 0;
  at += strlen(word);
  return at + jinja_skip_space(x->s + at, x->n - at) - from;
}

static char sign_at(const lexer *x, size_t at) {
  char c = at < x->n ? x->s[at] : 0;
  return c == '-' || c == '+' ? c : 0;
}

/* At "{% raw %}" the text up to "{% endraw %}" becomes a token; *done: it was one. */
static hp_status lex_raw(lexer *x, size_t begin, bool *done) {
  size_t n = opening_of(x, begin, "raw");
  size_t close = n ? closing(x, begin + n, "%}", false) : 0;
  *done = close != 0;
  if (!close) return HP_OK;
  size_t text = begin + n + close;
  move_to(x, text);
  for (size_t at = text; at < x->n; at++) {
    if (x->s[at] != '{' || !(n = opening_of(x, at, "endraw"))) continue;
    if (!(close = closing(x, at + n, "%}", true))) continue;
    HP_TRY(add_text(x, text, at, sign_at(x, at + 2), false));
    move_to(x, at + n + close);
    return HP_OK;
  }
  LEX_FAIL(x, begin, "\"{%% raw %%}\" has no \"{%% endraw %%}\"");
}

/* --- inside of tags ---------------------------------------------------------------------- */

static bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* Digits with single underscores between them; the end. */
static size_t skip_digits(const lexer *x, size_t at, int base) {
  size_t end = at;
  for (;; at++) {
    char c = at < x->n ? x->s[at] : 0;
    char low = (char)(c | 0x20);
    bool digit = base == 16 ? (c >= '0' && c <= '9') || (low >= 'a' && low <= 'f')
                            : c >= '0' && c < '0' + base;
    if (digit) end = at + 1;
    else if (c != '_' || at != end) return end;
  }
}

/* The end of the number with fraction or exponent whose whole part ends at `end`; the same end
 * when it has neither. */
static size_t float_end(const lexer *x, size_t end) {
  size_t next;
  if (x->at && x->s[x->at - 1] == '.') return end;
  if (end < x->n && x->s[end] == '.' && (next = skip_digits(x, end + 1, 10)) > end + 1) end = next;
  if (end >= x->n || (x->s[end] | 0x20) != 'e') return end;
  size_t digits = end + 1 + (sign_at(x, end + 1) != 0);
  next = skip_digits(x, digits, 10);
  return next > digits ? next : end;
}

/* The base of an integer at x->at, and where its digits begin. */
static int base_at(const lexer *x, size_t *digits) {
  static const char letter[] = "xob";
  static const int base[] = {16, 8, 2};
  *digits = x->at;
  if (x->s[x->at] != '0' || x->at + 1 >= x->n) return 10;
  char second = (char)(x->s[x->at + 1] | 0x20);
  const char *p = memchr(letter, second, 3);
  if (!p || skip_digits(x, x->at + 2, base[p - letter]) == x->at + 2) return 10;
  *digits += 2;
  return base[p - letter];
}

static hp_status lex_number(lexer *x) {
  char text[400];
  size_t at, n = 0;
  int base = base_at(x, &at);
  size_t whole = skip_digits(x, at, base), end = base == 10 ? float_end(x, whole) : whole;
  for (size_t i = at; i < end && n < sizeof text - 1; i++)
    if (x->s[i] != '_') text[n++] = x->s[i];
  text[n] = 0;
  HP_TRY(push(x, end > whole ? JINJA_T_FLOAT : JINJA_T_INT, x->at, x->s + at, end - at));
  jinja_token *token = &x->out->at[x->out->len - 1];
  errno = 0;
  if (end > whole) token->number = strtod(text, NULL);
  else token->integer = strtoll(text, NULL, base);
  if (n == sizeof text - 1 || (end == whole && errno))
    LEX_FAIL(x, x->at, "the number is too large: integers have 64 bits");
  x->at = end;
  return HP_OK;
}

/* A character given by `digits` digits of `base` at *at, in UTF-8. */
static hp_status unescape_code(lexer *x, size_t *at, size_t digits, int base, char **to) {
  uint32_t c = 0;
  size_t n = 0;
  for (; n < digits && *at < x->n; n++, ++*at) {
    char d = x->s[*at], low = (char)(d | 0x20);
    int v = d >= '0' && d <= '9' ? d - '0' : low >= 'a' && low <= 'f' ? low - 'a' + 10 : 99;
    if (v >= base) break;
    c = c * (uint32_t)base + (uint32_t)v;
  }
  if (base == 16 && n < digits) LEX_FAIL(x, *at, "the escape needs %zu hexadecimal digits", digits);
  if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
    LEX_FAIL(x, *at, "the escape is no character of Unicode");
  *to += utf8_encode(c, *to);
  return HP_OK;
}

static hp_status unescape(lexer *x, size_t *at, char **to) {
  static const char from[] = "\\'\"abfnrtv", become[] = "\\'\"\a\b\f\n\r\t\v";
  char c = x->s[++*at];
  const char *p = c ? strchr(from, c) : NULL;
  if (p) {
    *(*to)++ = become[p - from];
    ++*at;
  } else if (c == '\n') {
    ++*at;
  } else if (c == 'x' || c == 'u' || c == 'U') {
    ++*at;
    return unescape_code(x, at, c == 'x' ? 2 : c == 'u' ? 4 : 8, 16, to);
  } else if (c >= '0' && c <= '7') {
    return unescape_code(x, at, 3, 8, to);
  } else if (c == 'N') {
    LEX_FAIL(x, *at, "characters by name, \\N{...}, are not supported: write \\u and the number");
  } else {
    *(*to)++ = '\\'; /* not an escape: both stay */
  }
  return HP_OK;
}

static hp_status lex_string(lexer *x) {
  char quote = x->s[x->at];
  size_t end = x->at + 1;
  while (end < x->n && x->s[end] != quote) end += x->s[end] == '\\' ? 2 : 1;
  if (end >= x->n) LEX_FAIL(x, x->at, "the string has no end");
  char *text = arena_alloc(&x->t->mem, end - x->at, 1), *to = text;
  HP_TRY_MEM(text);
  for (size_t at = x->at + 1; at < end;) {
    if (x->s[at] == '\\') HP_TRY(unescape(x, &at, &to));
    else *to++ = x->s[at++];
  }
  HP_TRY(push(x, JINJA_T_STRING, x->at, text, (size_t)(to - text)));
  x->at = end + 1;
  return HP_OK;
}

static hp_status lex_operator(lexer *x) {
  static const char *const two[] = {"==", "!=", ">=", "<=", "//", "**"};
  size_t n = 1;
  char c = x->s[x->at];
  for (size_t i = 0; i < sizeof two / sizeof *two; i++)
    if (is_at(x, x->at, two[i])) n = 2;
  if (n == 1 && (!c || !strchr("+-/*%~[](){}><=.:|,;", c))) {
    uint32_t code;
    size_t len = utf8_decode(x->s + x->at, x->n - x->at, &code);
    LEX_FAIL(x, x->at, "unexpected character '%.*s'", (int)len, x->s + x->at);
  }
  if (strchr("([{", c)) {
    if (x->n_open == JINJA_NESTING_MAX)
      LEX_FAIL(x, x->at, "more than %d brackets in each other", JINJA_NESTING_MAX);
    x->open[x->n_open++] = c == '(' ? ')' : c == '[' ? ']' : '}';
  } else if (strchr(")]}", c)) {
    if (!x->n_open) LEX_FAIL(x, x->at, "unexpected '%c'", c);
    char expected = x->open[--x->n_open];
    if (c != expected) LEX_FAIL(x, x->at, "unexpected '%c', expected '%c'", c, expected);
  }
  HP_TRY(push(x, JINJA_T_OP, x->at, x->s + x->at, n));
  x->at += n;
  return HP_OK;
}

/* The tokens of a tag up to its end. */
static hp_status lex_tag(lexer *x, size_t begin, bool output) {
  for (;;) {
    x->at += jinja_skip_space(x->s + x->at, x->n - x->at);
    if (x->at >= x->n) LEX_FAIL(x, begin, "the tag has no end \"%s\"", output ? "}}" : "%}");
    size_t n = x->n_open ? 0 : closing(x, x->at, output ? "}}" : "%}", !output);
    if (n) {
      HP_TRY(
          push(x, output ? JINJA_T_OUTPUT_END : JINJA_T_BLOCK_END, x->at, output ? "}}" : "%}", 2));
      move_to(x, x->at + n);
      return HP_OK;
    }
    char c = x->s[x->at];
    if (c >= '0' && c <= '9') {
      HP_TRY(lex_number(x));
    } else if (is_name(c)) {
      size_t end = x->at;
      while (end < x->n && is_name(x->s[end])) end++;
      HP_TRY(push(x, JINJA_T_NAME, x->at, x->s + x->at, end - x->at));
      x->at = end;
    } else if (c == '"' || c == '\'') {
      HP_TRY(lex_string(x));
    } else {
      HP_TRY(lex_operator(x));
    }
  }
}

hp_status jinja_lex(struct jinja *t, jinja_tokens *out) {
  lexer x = {.t = t, .s = t->text, .n = t->len, .line = 1, .line_starting = true, .out = out};
  while (x.at < x.n) {
    size_t tag = find_tag(&x, x.at);
    if (tag == x.n) {
      HP_TRY(push(&x, JINJA_T_TEXT, x.at, x.s + x.at, x.n - x.at));
      break;
    }
    char c = x.s[tag + 1], sign = sign_at(&x, tag + 2);
    HP_TRY(add_text(&x, x.at, tag, sign, c == '{'));
    bool raw = false;
    if (c == '%') HP_TRY(lex_raw(&x, tag, &raw));
    if (raw) continue;
    if (c == '#') {
      HP_TRY(skip_comment(&x, tag, sign != 0));
      continue;
    }
    HP_TRY(push(&x, c == '{' ? JINJA_T_OUTPUT : JINJA_T_BLOCK, tag, x.s + tag, 2));
    x.at = tag + 2 + (sign != 0);
    HP_TRY(lex_tag(&x, tag, c == '{'));
  }
  return push(&x, JINJA_T_END, x.n, "", 0);
}
