#include "base/json.h"

#include "base/io.h"
#include "base/utf8.h"
#include "base/vec.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAIL_HERE(r, ...) return fail_at((r), (r)->at, __LINE__, __VA_ARGS__)

/* Fails with name:line:column of a byte of the line that is being read. */
static hp_status fail_at(const json_reader *r, size_t at, int line, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static hp_status fail_at(const json_reader *r, size_t at, int line, const char *fmt, ...) {
  char text[512];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  return err_set(HP_ERR_INPUT, __FILE__, line, "%s:%zu:%zu: %s", r->name, r->line + 1,
                 at - r->line_start + 1, text);
}

/* --- tokens --------------------------------------------------------------------------- */

static int peek(const json_reader *r) {
  return r->at < r->len ? (unsigned char)r->text[r->at] : -1;
}

static void skip_space(json_reader *r) {
  for (int c; (c = peek(r)) == ' ' || c == '\t' || c == '\n' || c == '\r'; r->at++) {
    if (c != '\n') continue;
    r->line++;
    r->line_start = r->at + 1;
  }
}

static bool take_word(json_reader *r, const char *word) {
  size_t n = strlen(word);
  if (r->len - r->at < n || memcmp(r->text + r->at, word, n)) return false;
  r->at += n;
  return true;
}

static hp_status read_hex4(json_reader *r, unsigned *out) {
  unsigned v = 0;
  for (int i = 0; i < 4; i++, r->at++) {
    int c = peek(r);
    int digit = c >= '0' && c <= '9'                 ? c - '0'
                : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                     : -1;
    if (c < 0 || digit < 0) FAIL_HERE(r, "\\u must be followed by four hexadecimal digits");
    v = v << 4 | (unsigned)digit;
  }
  *out = v;
  return HP_OK;
}

/* One escape, the backslash already read, into scratch. */
static hp_status read_escape(json_reader *r) {
  static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
  int c = peek(r);
  const char *plain = c > 0 ? strchr(from, c) : NULL;
  if (plain) {
    str_add_char(&r->scratch, to[plain - from]);
    r->at++;
    return HP_OK;
  }
  if (c != 'u') FAIL_HERE(r, "unknown escape in a string; a backslash is written \\\\");
  size_t start = r->at++ - 1;
  unsigned code, low;
  HP_TRY(read_hex4(r, &code));
  if (code >= 0xd800 && code < 0xdc00 && take_word(r, "\\u")) {
    HP_TRY(read_hex4(r, &low));
    if (low < 0xdc00 || low > 0xdfff) low = 0;
    code = low ? 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00) : 0xd800;
  }
  if (code >= 0xd800 && code < 0xe000)
    return fail_at(r, start, __LINE__,
                   "\\u escape of half a surrogate pair, which is no character");
  char buf[4];
  str_add_n(&r->scratch, buf, utf8_encode(code, buf));
  return HP_OK;
}

/* The rest of a string after its opening quote.  Text without escapes is not copied. */
static hp_status read_string(json_reader *r, json_token *t) {
  size_t start = r->at, copied = r->at;
  str_clear(&r->scratch);
  for (;;) {
    int c = peek(r);
    if (c == '"') break;
    if (c < 0) return fail_at(r, start - 1, __LINE__, "a string that starts here does not end");
    if (c < 0x20)
      FAIL_HERE(r, "a control character (code %d) inside a string; write it as an escape", c);
    if (c == '\\') {
      str_add_n(&r->scratch, r->text + copied, r->at - copied);
      r->at++;
      HP_TRY(read_escape(r));
      copied = r->at;
    } else if (c < 0x80) {
      r->at++;
    } else {
      uint32_t code;
      size_t n = utf8_decode(r->text + r->at, r->len - r->at, &code);
      if (!n)
        FAIL_HERE(r, "invalid UTF-8 (byte 0x%02x) inside a string; save the file as UTF-8", c);
      r->at += n;
    }
  }
  t->kind = JSON_T_STRING;
  t->text = r->text + start;
  t->len = r->at - start;
  if (copied != start) {
    str_add_n(&r->scratch, r->text + copied, r->at - copied);
    t->text = r->scratch.at;
    t->len = r->scratch.len;
  }
  r->at++;
  return str_status(&r->scratch);
}

static void skip_digits(json_reader *r) {
  for (int c; (c = peek(r)) >= '0' && c <= '9';) r->at++;
}

/* A number by the grammar of JSON: no plus sign, no leading zeros, digits around the point. */
static hp_status read_number(json_reader *r, json_token *t) {
  size_t start = r->at;
  bool whole = true;
  if (peek(r) == '-') r->at++;
  size_t digits = r->at;
  skip_digits(r);
  if (r->at == digits) FAIL_HERE(r, "a digit was expected");
  if (r->text[digits] == '0' && r->at - digits > 1)
    return fail_at(r, start, __LINE__, "a number may not start with 0");
  if (peek(r) == '.') {
    size_t point = r->at++;
    whole = false;
    skip_digits(r);
    if (r->at == point + 1) FAIL_HERE(r, "a digit was expected after the decimal point");
  }
  if (peek(r) == 'e' || peek(r) == 'E') {
    whole = false;
    r->at++;
    if (peek(r) == '+' || peek(r) == '-') r->at++;
    size_t first = r->at;
    skip_digits(r);
    if (r->at == first) FAIL_HERE(r, "a digit was expected in the exponent");
  }
  str_clear(&r->scratch);
  str_add_n(&r->scratch, r->text + start, r->at - start);
  HP_TRY(str_status(&r->scratch));
  if (whole && str_to_i64(r->scratch.at, &t->integer)) {
    t->kind = JSON_T_INT;
  } else {
    t->kind = JSON_T_FLOAT;
    t->number = strtod(r->scratch.at, NULL);
  }
  return HP_OK;
}

hp_status json_next(json_reader *r, json_token *out) {
  skip_space(r);
  json_token t = {.line = r->line + 1, .column = r->at - r->line_start + 1};
  int c = peek(r);
  switch (c) {
  case -1: t.kind = JSON_T_END; break;
  case '{':
  case '}':
  case '[':
  case ']':
  case ',':
  case ':':
    t.kind = (json_kind)c;
    r->at++;
    break;
  case '"':
    r->at++;
    HP_TRY(read_string(r, &t));
    break;
  default:
    if (take_word(r, "true") || take_word(r, "false")) {
      t.kind = JSON_T_BOOL;
      t.boolean = c == 't';
    } else if (take_word(r, "null")) {
      t.kind = JSON_T_NULL;
    } else if (take_word(r, "NaN")) {
      t.kind = JSON_T_FLOAT;
      t.number = NAN;
    } else if (take_word(r, "Infinity") || take_word(r, "-Infinity")) {
      t.kind = JSON_T_FLOAT;
      t.number = c == '-' ? -INFINITY : INFINITY;
    } else if (c == '-' || (c >= '0' && c <= '9')) {
      HP_TRY(read_number(r, &t));
    } else if (c == 0xef && r->at == 0) {
      FAIL_HERE(r, "starts with a byte order mark; save the file as UTF-8 without it");
    } else if (c > 0x20 && c < 0x7f) {
      FAIL_HERE(r, "unexpected '%c'; a value of JSON was expected", c);
    } else {
      FAIL_HERE(r, "unexpected byte 0x%02x; a value of JSON was expected", c);
    }
  }
  *out = t;
  return HP_OK;
}

hp_status json_unexpected(const json_reader *r, const json_token *found, const char *wanted) {
  static const char *const word[] =
      {"the end of the text", "null", "true or false", "a number", "a number", "a string"};
  char mark[4] = {'\'', (char)found->kind, '\'', 0};
  return err_set(HP_ERR_INPUT, __FILE__, __LINE__, "%s:%zu:%zu: expected %s, found %s", r->name,
                 found->line, found->column, wanted,
                 found->kind <= JSON_T_STRING ? word[found->kind] : mark);
}

/* Reads `"key":`, of which t is the first token, and the first token of the value to t. */
static hp_status skip_key(json_reader *r, json_token *t) {
  if (t->kind != JSON_T_STRING) return json_unexpected(r, t, "a key in double quotes");
  HP_TRY(json_next(r, t));
  if (t->kind != JSON_T_COLON) return json_unexpected(r, t, "':' after the key");
  return json_next(r, t);
}

/* A value that begins with t, up to the first value inside it that is not read yet: then *more is
 * true and t is that one's first token.  open: the closing brackets that are to come. */
static hp_status skip_opening(json_reader *r, json_token *t, str *open, bool *more) {
  *more = t->kind == JSON_T_OPEN_MAP || t->kind == JSON_T_OPEN_LIST;
  if (!*more) {
    bool value = t->kind != JSON_T_END && t->kind <= JSON_T_STRING;
    return value ? HP_OK : json_unexpected(r, t, "a value");
  }
  bool is_map = t->kind == JSON_T_OPEN_MAP;
  json_kind close = is_map ? JSON_T_CLOSE_MAP : JSON_T_CLOSE_LIST;
  HP_TRY(json_next(r, t));
  *more = t->kind != close;
  if (!*more) return HP_OK;
  str_add_char(open, (char)close);
  HP_TRY(str_status(open));
  return is_map ? skip_key(r, t) : HP_OK;
}

/* What follows a value: closing brackets, then a comma and the next value, whose first token is t.
 * *more is false when all brackets are closed. */
static hp_status skip_closing(json_reader *r, json_token *t, str *open, bool *more) {
  for (*more = false; open->len && !*more;) {
    bool is_map = open->at[open->len - 1] == '}';
    json_kind close = is_map ? JSON_T_CLOSE_MAP : JSON_T_CLOSE_LIST;
    HP_TRY(json_next(r, t));
    if (t->kind == close) {
      open->len--;
      continue;
    }
    if (t->kind != JSON_T_COMMA) return json_unexpected(r, t, is_map ? "',' or '}'" : "',' or ']'");
    HP_TRY(json_next(r, t));
    if (is_map) HP_TRY(skip_key(r, t));
    *more = true;
  }
  return HP_OK;
}

hp_status json_skip(json_reader *r, const json_token *first) {
  json_token t = *first;
  str open = {0};
  hp_status st = HP_OK;
  for (bool more = true; more && !st;) {
    HP_TRY_GOTO(skip_opening(r, &t, &open, &more), st);
    if (!more) HP_TRY_GOTO(skip_closing(r, &t, &open, &more), st);
  }
done:
  str_free(&open);
  return st;
}

void json_reader_free(json_reader *r) { str_free(&r->scratch); }

/* --- tree ----------------------------------------------------------------------------- */

typedef struct {
  json_reader in;
  arena *mem;
  const char *source;
  VEC(tree_node *) items; /* finished children of the containers that are still open */
} builder;

static hp_status parse_value(builder *b, const json_token *t, int depth, tree_node **out);

/* One `"key": value`; t is the token where the key should be. */
static hp_status parse_member(builder *b, json_token *t, int depth, tree_node **out) {
  if (t->kind != JSON_T_STRING) return json_unexpected(&b->in, t, "a key in double quotes");
  size_t len = t->len;
  const char *key = arena_strndup(b->mem, t->text, len);
  HP_TRY_MEM(key);
  HP_TRY(json_next(&b->in, t));
  if (t->kind != JSON_T_COLON) return json_unexpected(&b->in, t, "':' after the key");
  HP_TRY(json_next(&b->in, t));
  HP_TRY(parse_value(b, t, depth, out));
  (*out)->key = key;
  (*out)->key_len = (uint32_t)len;
  return HP_OK;
}

static hp_status parse_container(builder *b, tree_node *node, int depth) {
  json_kind close = node->kind == TREE_MAP ? JSON_T_CLOSE_MAP : JSON_T_CLOSE_LIST;
  size_t start = b->items.len;
  json_token t;
  if (depth > TREE_DEPTH_MAX)
    TREE_FAIL(node, "more than %d lists and maps inside each other", TREE_DEPTH_MAX);
  HP_TRY(json_next(&b->in, &t));
  while (t.kind != close) {
    tree_node *item;
    if (node->kind == TREE_MAP) HP_TRY(parse_member(b, &t, depth, &item));
    else HP_TRY(parse_value(b, &t, depth, &item));
    if (!vec_push(&b->items, item)) return HP_ERR_OOM;
    HP_TRY(json_next(&b->in, &t));
    if (t.kind == close) break;
    if (t.kind != JSON_T_COMMA)
      return json_unexpected(&b->in, &t, node->kind == TREE_MAP ? "',' or '}'" : "',' or ']'");
    HP_TRY(json_next(&b->in, &t));
    if (t.kind == close) return json_unexpected(&b->in, &t, "a value after the comma");
  }
  size_t n = b->items.len - start;
  b->items.len = start;
  return tree_adopt(b->mem, node, b->items.at ? b->items.at + start : NULL, n);
}

static hp_status parse_value(builder *b, const json_token *t, int depth, tree_node **out) {
  static const tree_kind kinds[] =
      {[JSON_T_NULL] = TREE_NULL,     [JSON_T_BOOL] = TREE_BOOL,     [JSON_T_INT] = TREE_INT,
       [JSON_T_FLOAT] = TREE_FLOAT,   [JSON_T_STRING] = TREE_STRING, [JSON_T_OPEN_MAP] = TREE_MAP,
       [JSON_T_OPEN_LIST] = TREE_LIST};
  bool open = t->kind == JSON_T_OPEN_MAP || t->kind == JSON_T_OPEN_LIST;
  if (!open && (t->kind == JSON_T_END || t->kind > JSON_T_STRING))
    return json_unexpected(&b->in, t, "a value");
  tree_node *n = tree_new(b->mem, kinds[t->kind], b->source, t->line, t->column);
  HP_TRY_MEM(n);
  switch (n->kind) {
  case TREE_NULL: break;
  case TREE_BOOL: n->boolean = t->boolean; break;
  case TREE_INT: n->integer = t->integer; break;
  case TREE_FLOAT: n->number = t->number; break;
  case TREE_STRING:
    n->string = arena_strndup(b->mem, t->text, t->len);
    HP_TRY_MEM(n->string);
    n->len = (uint32_t)t->len;
    break;
  case TREE_LIST:
  case TREE_MAP: HP_TRY(parse_container(b, n, depth + 1)); break;
  }
  *out = n;
  return HP_OK;
}

/* What a reader has before it, as one value. */
static hp_status parse_rest(const json_reader *in, tree *out) {
  tree t = {0};
  json_token tok;
  hp_status st = HP_OK;
  if (in->len - in->at >= UINT32_MAX)
    HP_FAIL(HP_ERR_INPUT, "%s: more than 4 GiB of JSON", in->name);
  builder b = {.in = *in, .mem = &t.mem};
  b.source = arena_strdup(b.mem, in->name);
  if (!b.source) st = HP_ERR_OOM;
  if (!st) HP_TRY_GOTO(json_next(&b.in, &tok), st);
  if (!st) HP_TRY_GOTO(parse_value(&b, &tok, 0, &t.root), st);
  if (!st) HP_TRY_GOTO(json_next(&b.in, &tok), st);
  if (!st && tok.kind != JSON_T_END)
    HP_TRY_GOTO(json_unexpected(&b.in, &tok, "the end of the text after the value"), st);
done:
  json_reader_free(&b.in);
  vec_free(&b.items);
  if (st) tree_free(&t);
  else *out = t;
  return st;
}

hp_status json_parse_line(const char *bytes, size_t len, const char *name, size_t line, tree *out) {
  json_reader in = {.name = name, .text = bytes, .len = len, .line = line ? line - 1 : 0};
  return parse_rest(&in, out);
}

hp_status json_parse_between(const json_reader *from, size_t end, tree *out) {
  json_reader in = *from;
  in.len = end;
  in.scratch = (str){0};
  return parse_rest(&in, out);
}

hp_status json_parse(const char *bytes, size_t len, const char *name, tree *out) {
  return json_parse_line(bytes, len, name, 1, out);
}

hp_status json_load(const char *path, size_t max, tree *out) {
  char *text;
  size_t len;
  HP_TRY(file_read(path, max, &text, &len));
  hp_status st = json_parse(text, len, path, out);
  mem_free(text);
  return st;
}
