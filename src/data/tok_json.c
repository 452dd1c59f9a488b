#include "data/tok_json.h"

#include "base/hash.h"
#include "base/vec.h"
#include "data/unicode.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 64, NUMBER_MAX = 64, FEW_KEYS = 16 };

typedef struct {
  const char *file;
  const char *at, *end;
  unsigned line, depth;
  arena *mem;
  VEC(tj_node) stack; /* children of the containers still open */
  str text;             /* of a string with escapes */
} parser;

static hp_status bad(const parser *p, const char *want) {
  if (p->at == p->end)
    HP_FAIL(HP_ERR_INPUT, "%s:%u: the JSON ends too early; expected %s", p->file, p->line, want);
  unsigned char c = (unsigned char)*p->at;
  if (c < 0x20 || c > 0x7E)
    HP_FAIL(HP_ERR_INPUT, "%s:%u: bad JSON at byte 0x%02x; expected %s", p->file, p->line, c, want);
  HP_FAIL(HP_ERR_INPUT, "%s:%u: bad JSON at '%c'; expected %s", p->file, p->line, c, want);
}

static void skip_space(parser *p) {
  for (; p->at < p->end; p->at++) {
    char c = *p->at;
    if (c == '\n') p->line++;
    else if (c != ' ' && c != '\t' && c != '\r') return;
  }
}

static hp_status parse_hex4(parser *p, uint32_t *out) {
  uint32_t x = 0;
  for (int i = 0; i < 4; i++, p->at++) {
    char c = p->at < p->end ? *p->at : 0;
    if (c >= '0' && c <= '9') x = x << 4 | (uint32_t)(c - '0');
    else if (c >= 'a' && c <= 'f') x = x << 4 | (uint32_t)(c - 'a' + 10);
    else if (c >= 'A' && c <= 'F') x = x << 4 | (uint32_t)(c - 'A' + 10);
    else return bad(p, "four hexadecimal digits after \\u");
  }
  *out = x;
  return HP_OK;
}

static hp_status parse_escape(parser *p) {
  static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
  char c = p->at < p->end ? *p->at : 0;
  const char *found = c ? strchr(from, c) : NULL;
  if (found) {
    str_add_char(&p->text, to[found - from]);
    p->at++;
    return HP_OK;
  }
  if (c != 'u') return bad(p, "an escape such as \\n or \\u0041");
  p->at++;
  uint32_t cp, low;
  HP_TRY(parse_hex4(p, &cp));
  if (cp >= 0xD800 && cp <= 0xDBFF) {
    if (p->end - p->at < 6 || p->at[0] != '\\' || p->at[1] != 'u')
      return bad(p, "the second half (\\udc00 to \\udfff) of a surrogate pair");
    p->at += 2;
    HP_TRY(parse_hex4(p, &low));
    if (low < 0xDC00 || low > 0xDFFF)
      return bad(p, "the second half (\\udc00 to \\udfff) of a surrogate pair before this");
    cp = 0x10000 + ((cp - 0xD800) << 10) + (low - 0xDC00);
  } else if (cp >= 0xDC00 && cp <= 0xDFFF) {
    return bad(p, "no lone surrogate before this");
  }
  utf8_add(&p->text, cp);
  return HP_OK;
}

/* A string, the opening quote at p->at. */
static hp_status parse_text(parser *p, const char **at, size_t *len) {
  const char *start = ++p->at;
  bool escaped = false;
  for (;;) {
    const char *from = p->at;
    while (p->at < p->end && *p->at != '"' && *p->at != '\\' && (unsigned char)*p->at >= 0x20)
      p->at++;
    size_t n = (size_t)(p->at - from), good = utf8_valid(from, n);
    if (good < n) {
      p->at = from + good;
      return bad(p, "valid UTF-8");
    }
    if (p->at == p->end || (unsigned char)*p->at < 0x20)
      return bad(p, "the closing quote of a string (control characters are written \\u00XX)");
    if (*p->at == '"') {
      if (escaped) str_add_n(&p->text, from, n);
      break;
    }
    if (!escaped) str_clear(&p->text);
    escaped = true;
    str_add_n(&p->text, from, n);
    p->at++;
    HP_TRY(parse_escape(p));
  }
  *at = start;
  *len = (size_t)(p->at++ - start);
  if (escaped) {
    HP_TRY(str_status(&p->text));
    *len = p->text.len;
    *at = arena_strndup(p->mem, p->text.at, p->text.len);
    HP_TRY_MEM(*at);
  }
  return HP_OK;
}

static hp_status parse_number(parser *p, tj_node *out) {
  const char *s = p->at;
  const char *q = s;
  const char *end = p->end;
  bool whole = true;
  if (q < end && *q == '-') q++;
  const char *digits = q;
  while (q < end && *q >= '0' && *q <= '9') q++;
  if (q == digits || (*digits == '0' && q - digits > 1)) return bad(p, "a value");
  if (q < end && *q == '.') {
    whole = false;
    const char *fraction = ++q;
    while (q < end && *q >= '0' && *q <= '9') q++;
    if (q == fraction) return bad(p, "digits after the point of a number");
  }
  if (q < end && (*q == 'e' || *q == 'E')) {
    whole = false;
    if (++q < end && (*q == '+' || *q == '-')) q++;
    const char *exponent = q;
    while (q < end && *q >= '0' && *q <= '9') q++;
    if (q == exponent) return bad(p, "digits in the exponent of a number");
  }
  char text[NUMBER_MAX];
  if (q - s >= NUMBER_MAX) return bad(p, "a number of fewer than 64 characters");
  memcpy(text, s, (size_t)(q - s));
  text[q - s] = 0;
  errno = 0;
  out->integer = whole ? strtoll(text, NULL, 10) : 0;
  out->kind = TJ_INT;
  if (!whole || errno == ERANGE) {
    out->kind = TJ_REAL;
    out->real = strtod(text, NULL);
  }
  p->at = q;
  return HP_OK;
}

static hp_status parse_word(parser *p, const char *word, tj_kind kind, bool flag, tj_node *out) {
  size_t n = strlen(word);
  if ((size_t)(p->end - p->at) < n || memcmp(p->at, word, n)) return bad(p, "a value");
  p->at += n;
  out->kind = kind;
  if (kind == TJ_BOOL) out->flag = flag;
  return HP_OK;
}

/* The keys of an object must differ.  Few are compared, many are hashed. */
static hp_status check_keys(const parser *p, const tj_node *at, size_t n) {
  const tj_node *twin = NULL;
  if (n <= FEW_KEYS) {
    for (size_t i = 1; i < n && !twin; i++)
      for (size_t j = 0; j < i; j++)
        if (at[i].key_len == at[j].key_len && !memcmp(at[i].key, at[j].key, at[i].key_len))
          twin = &at[i];
  } else {
    size_t cap = 64;
    while (cap < n * 2) cap *= 2;
    uint32_t *slot = mem_calloc(cap, sizeof *slot);
    HP_TRY_MEM(slot);
    for (size_t i = 0; i < n && !twin; i++) {
      size_t h = hash_bytes(at[i].key, at[i].key_len) & (cap - 1);
      for (; slot[h] && !twin; h = (h + 1) & (cap - 1)) {
        const tj_node *other = &at[slot[h] - 1];
        if (at[i].key_len == other->key_len && !memcmp(at[i].key, other->key, other->key_len))
          twin = &at[i];
      }
      slot[h] = (uint32_t)(i + 1);
    }
    mem_free(slot);
  }
  if (twin)
    HP_FAIL(HP_ERR_INPUT, "%s:%u: the key \"%.*s\" is there twice; remove one", p->file, twin->line,
            twin->key_len > 80 ? 80 : (int)twin->key_len, twin->key);
  return HP_OK;
}

static hp_status parse_value(parser *p, tj_node *out);

static hp_status parse_items(parser *p, tj_node *out, bool object) {
  size_t base = p->stack.len;
  char close = object ? '}' : ']';
  if (++p->depth > DEPTH_MAX) return bad(p, "no more than 64 levels of nesting");
  p->at++;
  skip_space(p);
  if (p->at < p->end && *p->at == close) goto closed;
  for (;;) {
    tj_node item = {0};
    skip_space(p);
    if (object) {
      if (p->at == p->end || *p->at != '"') return bad(p, "a key in double quotes");
      HP_TRY(parse_text(p, &item.key, &item.key_len));
      skip_space(p);
      if (p->at == p->end || *p->at != ':') return bad(p, "':' after a key");
      p->at++;
    }
    HP_TRY(parse_value(p, &item));
    if (!vec_push(&p->stack, item)) return HP_ERR_OOM;
    skip_space(p);
    if (p->at == p->end || (*p->at != ',' && *p->at != close))
      return bad(p, object ? "',' or '}'" : "',' or ']'");
    if (*p->at++ == close) break;
  }
  p->at--;
closed:
  p->at++;
  p->depth--;
  size_t n = p->stack.len - base;
  if (n > UINT32_MAX / 4) return bad(p, "fewer members");
  if (object) HP_TRY(check_keys(p, p->stack.at + base, n));
  tj_node *at = arena_alloc(p->mem, n ? n : 1, sizeof *at);
  HP_TRY_MEM(at);
  if (n) memcpy(at, p->stack.at + base, n * sizeof *at);
  p->stack.len = base;
  out->kind = object ? TJ_MAP : TJ_LIST;
  out->items.at = at;
  out->items.n = n;
  return HP_OK;
}

static hp_status parse_value(parser *p, tj_node *out) {
  skip_space(p);
  out->line = p->line;
  if (p->at == p->end) return bad(p, "a value");
  switch (*p->at) {
  case '{': return parse_items(p, out, true);
  case '[': return parse_items(p, out, false);
  case '"':
    out->kind = TJ_TEXT;
    return parse_text(p, &out->text.at, &out->text.len);
  case 't': return parse_word(p, "true", TJ_BOOL, true, out);
  case 'f': return parse_word(p, "false", TJ_BOOL, false, out);
  case 'n': return parse_word(p, "null", TJ_NULL, false, out);
  default: return parse_number(p, out);
  }
}

hp_status tj_doc_parse(const char *file, const char *bytes, size_t n, tj_doc *out) {
  *out = (tj_doc){.file = file};
  parser p = {.file = file, .at = bytes, .end = bytes + n, .line = 1, .mem = &out->mem};
  hp_status st;
  HP_TRY_GOTO(parse_value(&p, &out->root), st);
  skip_space(&p);
  if (p.at < p.end) HP_TRY_GOTO(bad(&p, "nothing after the value"), st);
done:
  vec_free(&p.stack);
  str_free(&p.text);
  if (st) tj_doc_free(out);
  return st;
}

void tj_doc_free(tj_doc *d) {
  arena_free(&d->mem);
  *d = (tj_doc){0};
}

const tj_node *tj_find(const tj_node *object, const char *key) {
  if (!object || object->kind != TJ_MAP) return NULL;
  size_t n = strlen(key);
  for (size_t i = 0; i < object->items.n; i++) {
    const tj_node *m = &object->items.at[i];
    if (m->key_len == n && !memcmp(m->key, key, n)) return m->kind == TJ_NULL ? NULL : m;
  }
  return NULL;
}

bool tj_is(const tj_node *text, const char *want) {
  size_t n = strlen(want);
  return text && text->kind == TJ_TEXT && text->text.len == n && !memcmp(text->text.at, want, n);
}

const char *tj_kind_name(tj_kind k) {
  static const char *const name[] = {
      [TJ_NULL] = "null", [TJ_BOOL] = "true or false", [TJ_INT] = "a whole number",
      [TJ_REAL] = "a number", [TJ_TEXT] = "a string",   [TJ_LIST] = "a list",
      [TJ_MAP] = "an object"};
  return name[k];
}

hp_status tj_get_kind(const tj_reader *r, const char *key, tj_kind kind,
                        const tj_node **out) {
  const tj_node *m = tj_find(r->object, key);
  if (!m)
    HP_FAIL(HP_ERR_INPUT, "%s:%u: %s has no \"%s\"; expected %s", r->file, r->object->line, r->what,
            key, tj_kind_name(kind));
  if (m->kind != kind)
    HP_FAIL(HP_ERR_INPUT, "%s:%u: \"%s\" of %s is %s; expected %s", r->file, m->line, key, r->what,
            tj_kind_name(m->kind), tj_kind_name(kind));
  *out = m;
  return HP_OK;
}

hp_status tj_get_flag(const tj_reader *r, const char *key, bool must, bool *out) {
  const tj_node *m;
  if (!must && !tj_find(r->object, key)) return HP_OK;
  HP_TRY(tj_get_kind(r, key, TJ_BOOL, &m));
  *out = m->flag;
  return HP_OK;
}

hp_status tj_get_count(const tj_reader *r, const char *key, bool must, size_t *out) {
  const tj_node *m;
  if (!must && !tj_find(r->object, key)) return HP_OK;
  HP_TRY(tj_get_kind(r, key, TJ_INT, &m));
  if (m->integer < 0)
    HP_FAIL(HP_ERR_INPUT, "%s:%u: \"%s\" of %s is %lld; expected 0 or more", r->file, m->line, key,
            r->what, (long long)m->integer);
  *out = (size_t)m->integer;
  return HP_OK;
}

hp_status tj_get_text(const tj_reader *r, const char *key, bool must, const tj_node **out) {
  if (!must && !tj_find(r->object, key)) return HP_OK;
  return tj_get_kind(r, key, TJ_TEXT, out);
}
