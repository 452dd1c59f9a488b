/* Parser of the graph's text form: one line a node, by recursive descent over the characters. */
#include "base/dtype.h"
#include "ir/attr.h"
#include "ir/print.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPERANDS_MAX = 255, WORD_MAX = 64, STRING_MAX = 1 << 20 };

typedef struct {
  const char *name, *at, *end, *line_start;
  int line;
  hp_graph *g;
  map ids;  /* number in the text -> value */
  str text; /* of the last string */
} parser;

static hp_status fail(const parser *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static hp_status fail(const parser *p, const char *fmt, ...) {
  char why[512];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(why, sizeof why, fmt, ap);
  va_end(ap);
  HP_FAIL(HP_ERR_INPUT, "%s:%d:%d: %s", p->name, p->line, (int)(p->at - p->line_start) + 1, why);
}

static int peek(const parser *p) { return p->at < p->end ? (unsigned char)*p->at : -1; }

static void skip_blanks(parser *p) {
  while (peek(p) == ' ' || peek(p) == '\t' || peek(p) == '\r') p->at++;
}

static bool accept(parser *p, char c) {
  skip_blanks(p);
  if (peek(p) != c) return false;
  p->at++;
  return true;
}

static hp_status expect(parser *p, char c) {
  if (accept(p, c)) return HP_OK;
  return fail(p, "expected '%c'", c);
}

static bool is_word(int c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static hp_status word(parser *p, char out[WORD_MAX]) {
  skip_blanks(p);
  int n = 0;
  while (is_word(peek(p)) && n < WORD_MAX - 1) out[n++] = *p->at++;
  out[n] = 0;
  return n ? HP_OK : fail(p, "expected a name");
}

static hp_status integer(parser *p, int64_t *out) {
  skip_blanks(p);
  bool minus = peek(p) == '-';
  if (minus) p->at++;
  if (peek(p) < '0' || peek(p) > '9') return fail(p, "expected a whole number");
  int64_t v = 0;
  while (peek(p) >= '0' && peek(p) <= '9') {
    int d = *p->at++ - '0';
    if (__builtin_mul_overflow(v, 10, &v) || __builtin_sub_overflow(v, d, &v))
      return fail(p, "the number does not fit in 64 bits");
  }
  if (!minus && v == INT64_MIN) return fail(p, "the number does not fit in 64 bits");
  *out = minus ? v : -v;
  return HP_OK;
}

static hp_status number(parser *p, double *out) {
  char buf[64];
  int n = 0;
  skip_blanks(p);
  while (peek(p) > ' ' && !strchr(",}]", peek(p)) && n < 63) buf[n++] = *p->at++;
  buf[n] = 0;
  char *end;
  *out = strtod(buf, &end);
  return n && !*end ? HP_OK : fail(p, "expected a number");
}

/* A quoted string into p->text. */
static hp_status string(parser *p) {
  HP_TRY(expect(p, '"'));
  str_clear(&p->text);
  str_add(&p->text, "");
  while (peek(p) != '"') {
    int c = peek(p);
    if (c < 0 || c == '\n') return fail(p, "the string does not end on its line");
    if (p->text.len > STRING_MAX) return fail(p, "the string is too long");
    p->at++;
    if (c != '\\') {
      str_add_char(&p->text, (char)c);
      continue;
    }
    c = peek(p);
    p->at += c >= 0;
    if (c == 'n') str_add_char(&p->text, '\n');
    else if (c == '"' || c == '\\') str_add_char(&p->text, (char)c);
    else if (c == 'u' && p->end - p->at >= 4) {
      char hex[5] = {p->at[0], p->at[1], p->at[2], p->at[3], 0}, *end;
      long code = strtol(hex, &end, 16);
      if (*end || code <= 0 || code > 0x7f) return fail(p, "\\u%s is not a control character", hex);
      str_add_char(&p->text, (char)code);
      p->at += 4;
    } else return fail(p, "unknown escape in a string");
  }
  p->at++;
  return str_status(&p->text);
}

/* "f32[2,3]" */
static hp_status type(parser *p, ir_value *v) {
  char name[WORD_MAX];
  hp_dtype t;
  HP_TRY(word(p, name));
  if (!dtype_parse(name, &t)) return fail(p, "\"%s\" is not a dtype", name);
  *v = (ir_value){.dtype = (uint8_t)t};
  HP_TRY(expect(p, '['));
  if (accept(p, ']')) return HP_OK;
  do {
    int64_t d;
    HP_TRY(integer(p, &d));
    if (d < 0) return fail(p, "a dim is negative");
    if (v->rank == HP_MAX_RANK) return fail(p, "more than %d dims", HP_MAX_RANK);
    v->dim[v->rank++] = d;
  } while (accept(p, ','));
  return expect(p, ']');
}

/* "%7": the number behind the sign. */
static hp_status id(parser *p, uint32_t *out) {
  int64_t n;
  HP_TRY(expect(p, '%'));
  if (peek(p) < '0' || peek(p) > '9') return fail(p, "expected a number after %%");
  HP_TRY(integer(p, &n));
  if (n > UINT32_MAX) return fail(p, "the id is too large");
  *out = (uint32_t)n;
  return HP_OK;
}

static hp_status attr_value(parser *p, char kind, attr_record *a) {
  int64_t v, list[ATTR_LIST_MAX];
  double f;
  char name[WORD_MAX];
  hp_dtype t;
  int n = 0;
  switch (kind) {
  case 'f':
    HP_TRY(number(p, &f));
    attr_put_float(a, f);
    return HP_OK;
  case 's':
    HP_TRY(string(p));
    attr_put_str(a, p->g, p->text.at);
    return graph_status(p->g);
  case 't':
    HP_TRY(word(p, name));
    if (!dtype_parse(name, &t)) return fail(p, "\"%s\" is not a dtype", name);
    attr_put_int(a, t);
    return HP_OK;
  case 'l':
    HP_TRY(expect(p, '['));
    while (!accept(p, ']')) {
      if (n == ATTR_LIST_MAX) return fail(p, "more than %d entries", ATTR_LIST_MAX);
      if (n) HP_TRY(expect(p, ','));
      HP_TRY(integer(p, &list[n++]));
    }
    attr_put_list(a, list, n);
    return HP_OK;
  default:
    HP_TRY(integer(p, &v));
    attr_put_int(a, v);
    return HP_OK;
  }
}

/* The attributes of the row, all of them and in its order. */
static hp_status attributes(parser *p, op_id op, uint32_t *out) {
  const char *at = op_table[op].attrs, *key;
  int len, count = 0;
  char kind, name[WORD_MAX];
  attr_record a = {0};
  *out = 0;
  if (!*at) return HP_OK;
  HP_TRY(expect(p, '{'));
  while (attr_next_key(&at, &key, &len, &kind)) {
    if (count++) HP_TRY(expect(p, ','));
    HP_TRY(word(p, name));
    if ((int)strlen(name) != len || strncmp(name, key, (size_t)len))
      return fail(p, "expected the attribute %.*s of %s", len, key, op_table[op].name);
    HP_TRY(expect(p, '='));
    HP_TRY(attr_value(p, kind, &a));
  }
  HP_TRY(expect(p, '}'));
  *out = attr_intern(p->g, &a);
  return graph_status(p->g);
}

/* "@"place"", then key=value pairs of the node's place. */
static hp_status place(parser *p) {
  static const char *const phase[] = {"forward", "backward", "update"};
  char key[WORD_MAX], value[WORD_MAX];
  hp_graph *g = p->g;
  g->loc = 0;
  g->block = g->stage = 0;
  g->phase = g->group = 0;
  if (accept(p, '@')) {
    HP_TRY(string(p));
    g->loc = p->text.len ? graph_string(g, p->text.at) : 0;
  }
  skip_blanks(p);
  while (is_word(peek(p))) {
    HP_TRY(word(p, key));
    HP_TRY(expect(p, '='));
    HP_TRY(word(p, value));
    int64_t v = -1;
    if (!strcmp(key, "phase")) {
      for (int i = 0; i < 3; i++)
        if (!strcmp(value, phase[i])) v = i;
      if (v < 0) return fail(p, "phase is forward, backward or update");
      g->phase = (uint8_t)v;
    } else if (!str_to_i64(value, &v) || v < 0 || v > UINT16_MAX) {
      return fail(p, "%s: expected a number up to %d", key, UINT16_MAX);
    } else if (!strcmp(key, "block")) g->block = (uint16_t)v;
    else if (!strcmp(key, "stage")) g->stage = (uint16_t)v;
    else if (!strcmp(key, "group") && v <= UINT8_MAX) g->group = (uint8_t)v;
    else return fail(p, "\"%s\" is not known here", key);
    skip_blanks(p);
  }
  return HP_OK;
}

static hp_status operands(parser *p, val *in, int *n) {
  *n = 0;
  skip_blanks(p);
  while (peek(p) == '%') {
    uint32_t number_of, v;
    HP_TRY(id(p, &number_of));
    if (!map_get(&p->ids, &number_of, sizeof number_of, &v))
      return fail(p, "%%%u is used before it is made", number_of);
    if (*n == OPERANDS_MAX) return fail(p, "more than %d operands", OPERANDS_MAX);
    in[(*n)++] = v;
    if (!accept(p, ',')) break;
    skip_blanks(p);
  }
  return HP_OK;
}

static hp_status results(parser *p, uint32_t *numbers, ir_value *out, int *n) {
  *n = 0;
  skip_blanks(p);
  while (peek(p) == '%') {
    uint32_t have;
    if (*n == OPERANDS_MAX) return fail(p, "more than %d results", OPERANDS_MAX);
    HP_TRY(id(p, &numbers[*n]));
    if (map_get(&p->ids, &numbers[*n], sizeof numbers[0], &have))
      return fail(p, "%%%u is made twice", numbers[*n]);
    HP_TRY(expect(p, ':'));
    HP_TRY(type(p, &out[(*n)++]));
    if (!accept(p, ',')) break;
    skip_blanks(p);
  }
  return *n ? expect(p, '=') : HP_OK;
}

static hp_status node(parser *p) {
  uint32_t numbers[OPERANDS_MAX], attr;
  ir_value out[OPERANDS_MAX];
  val in[OPERANDS_MAX];
  int n_out, n_in;
  char name[WORD_MAX];
  HP_TRY(results(p, numbers, out, &n_out));
  HP_TRY(word(p, name));
  op_id op = op_find(name, strlen(name));
  if (!op) return fail(p, "\"%s\" is not an op", name);
  HP_TRY(operands(p, in, &n_in));
  const op_row *row = &op_table[op];
  if (n_in < row->in_min || n_in > row->in_max)
    return fail(p, "%s has %d operands, takes %d to %d", name, n_in, row->in_min, row->in_max);
  if (n_out != row->n_out && op != OP_FUSED)
    return fail(p, "%s has %d results, makes %d", name, n_out, row->n_out);
  HP_TRY(attributes(p, op, &attr));
  HP_TRY(place(p));
  val v = graph_add(p->g, op, in, n_in, attr, out, n_out);
  HP_TRY(graph_status(p->g));
  for (int i = 0; i < n_out; i++)
    HP_TRY(map_set(&p->ids, &numbers[i], sizeof numbers[0], v + (val)i));
  return HP_OK;
}

static hp_status lines(parser *p) {
  while (p->at < p->end) {
    p->line_start = p->at;
    p->line++;
    skip_blanks(p);
    if (peek(p) != '\n' && peek(p) != '#' && peek(p) >= 0) HP_TRY(node(p));
    skip_blanks(p);
    if (peek(p) == '#')
      while (p->at < p->end && *p->at != '\n') p->at++;
    if (p->at < p->end && *p->at != '\n') return fail(p, "expected the end of the line");
    if (p->at < p->end) p->at++;
  }
  return HP_OK;
}

hp_status graph_parse(const char *text, size_t n, const char *name, hp_graph **out) {
  parser p = {.name = name, .at = text, .end = text + n, .line_start = text};
  HP_TRY(graph_create(NULL, &p.g));
  hp_status st = lines(&p);
  map_free(&p.ids);
  str_free(&p.text);
  p.g->loc = 0;
  p.g->block = p.g->stage = 0;
  p.g->phase = p.g->group = 0;
  if (st) graph_free(p.g);
  else *out = p.g;
  return st;
}
