/* Text form of the loop IR: printer and parser.  The parser calls the builder, so that a parsed
 * loop obeys the same rules as a built one. */
#include "base/dtype.h"
#include "codegen/loop_expr.h"
#include "codegen/loop_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- printer ------------------------------------------------------------------------------- */

static void print_list(const int64_t *x, int n, str *out) {
  for (int i = 0; i < n; i++) str_printf(out, "%s%lld", i ? "," : "[", (long long)x[i]);
  str_add_char(out, ']');
}

static void print_strides(const loop *l, const loop_access *at, str *out) {
  print_list(at->stride, l->space.rank, out);
  if (at->offset) str_printf(out, " +%lld", (long long)at->offset);
}

static void print_access(const loop *l, const char *word, int operand, hp_dtype type,
                         const loop_access *at, str *out) {
  str_printf(out, "%s %d %s ", word, operand, dtype_name(type));
  print_strides(l, at, out);
}

static void print_value(const loop *l, const loop_value *v, str *out) {
  switch ((loop_what)v->what) {
  case LOOP_IN: print_access(l, "in", v->operand, v->type, &v->at, out); break;
  case LOOP_CONST:
    str_add(out, "const ");
    str_add_float(out, v->f32);
    break;
  case LOOP_INTEGER: str_printf(out, "int %lld", (long long)v->i64); break;
  case LOOP_IOTA:
    str_printf(out, "iota %d", v->dim);
    if (v->at.offset) str_printf(out, " %+lld", (long long)v->at.offset);
    break;
  case LOOP_UNIFORM:
    str_printf(out, "uniform %lld ", (long long)v->i64);
    print_strides(l, &v->at, out);
    break;
  case LOOP_CAST: str_printf(out, "cast %s", dtype_name(v->type)); break;
  case LOOP_OP: str_add(out, loop_expr_row(v->op)->name); break;
  case LOOP_REDUCE: str_add(out, loop_reduction_name[v->reduce]); break;
  }
  for (int k = 0; k < 3; k++)
    if (v->arg[k] >= 0) str_printf(out, " %%%d", v->arg[k]);
}

void loop_print(const loop *l, const char *sep, str *out) {
  str_printf(out, "%s ", loop_kind_name[l->kind]);
  print_list(l->space.dim, l->space.rank, out);
  for (size_t i = 0; i < l->value.len; i++) {
    str_printf(out, "%s%%%zu = ", sep, i);
    print_value(l, &l->value.at[i], out);
  }
  for (size_t i = 0; i < l->store.len; i++) {
    const loop_store *s = &l->store.at[i];
    str_add(out, sep);
    print_access(l, "out", s->operand, s->type, &s->at, out);
    if (s->fold) str_printf(out, " %s", loop_reduction_name[s->reduce]);
    str_printf(out, " %%%d", s->value);
  }
}

/* --- parser -------------------------------------------------------------------------------- */

typedef struct {
  const char *at, *end, *where;
  int line;
} reader;

enum { WORD_MAX = 32 };

static void skip_blanks(reader *r) {
  while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\r')) r->at++;
}

static bool at_line_end(reader *r) {
  skip_blanks(r);
  return r->at == r->end || *r->at == '\n' || *r->at == ';';
}

#define REFUSE(r, ...)                                                                             \
  do {                                                                                             \
    char what_[160];                                                                               \
    snprintf(what_, sizeof what_, __VA_ARGS__);                                                    \
    HP_FAIL(HP_ERR_INPUT, "%s: loop, line %d: %s", (r)->where, (r)->line, what_);                  \
  } while (0)

/* The next few characters of the text, for messages. */
static const char *show_rest(reader *r, char buf[24]) {
  size_t n = 0;
  skip_blanks(r);
  for (const char *p = r->at; p < r->end && n < 20 && *p != '\n' && *p != ';'; p++)
    buf[n++] = (*p >= ' ' && *p <= '~') ? *p : '?';
  buf[n] = 0;
  return n ? buf : "the end of the line";
}

static bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == '-' || c == '+';
}

/* The next word; empty if there is none or it is too long. */
static void read_word(reader *r, char word[WORD_MAX]) {
  size_t n = 0;
  skip_blanks(r);
  while (r->at + n < r->end && is_word(r->at[n])) n++;
  word[0] = 0;
  if (n >= WORD_MAX) return;
  memcpy(word, r->at, n);
  word[n] = 0;
  r->at += n;
}

static hp_status expect_char(reader *r, char c) {
  char buf[24];
  skip_blanks(r);
  if (r->at == r->end || *r->at != c)
    REFUSE(r, "'%c' was expected, not \"%s\"", c, show_rest(r, buf));
  r->at++;
  return HP_OK;
}

static hp_status read_int(reader *r, int64_t low, int64_t high, int64_t *out) {
  char word[WORD_MAX], buf[24];
  const char *s = word;
  reader before = *r;
  read_word(r, word);
  if (*s == '+' && s[1] != '-' && s[1] != '+') s++;
  if (!*s || !str_to_i64(s, out))
    REFUSE(&before, "a whole number was expected, not \"%s\"", show_rest(&before, buf));
  if (*out < low || *out > high)
    REFUSE(r, "%s is not within %lld to %lld", word, (long long)low, (long long)high);
  return HP_OK;
}

static hp_status read_list(reader *r, int64_t *x, int *n) {
  HP_TRY(expect_char(r, '['));
  for (*n = 0;;) {
    if (*n == HP_MAX_RANK) REFUSE(r, "more than %d numbers in [ ]", HP_MAX_RANK);
    HP_TRY(read_int(r, INT64_MIN, INT64_MAX, &x[(*n)++]));
    skip_blanks(r);
    if (r->at < r->end && *r->at == ',') {
      r->at++;
      continue;
    }
    return expect_char(r, ']');
  }
}

static hp_status read_ref(reader *r, int *value) {
  int64_t v;
  HP_TRY(expect_char(r, '%'));
  HP_TRY(read_int(r, 0, LOOP_VALUES_MAX - 1, &v));
  *value = (int)v;
  return HP_OK;
}

static hp_status read_type(reader *r, hp_dtype *type) {
  char word[WORD_MAX], buf[24];
  reader before = *r;
  read_word(r, word);
  for (int t = 0; t < HP_DTYPE_COUNT; t++) {
    *type = (hp_dtype)t;
    if (!strcmp(word, dtype_name(*type))) return HP_OK;
  }
  REFUSE(&before, "an element type was expected (f32 bf16 f16 i32 i64 u8 bool), not \"%s\"",
         show_rest(&before, buf));
}

static hp_status read_strides(reader *r, const loop *l, loop_access *at) {
  int n;
  HP_TRY(read_list(r, at->stride, &n));
  if (n != l->space.rank) REFUSE(r, "%d strides, the kernel has %d dims", n, l->space.rank);
  at->offset = 0;
  skip_blanks(r);
  if (r->at < r->end && *r->at == '+') HP_TRY(read_int(r, 0, INT64_MAX, &at->offset));
  return HP_OK;
}

/* Operand number, type, strides and offset. */
static hp_status read_access(reader *r, const loop *l, int64_t *operand, hp_dtype *type,
                             loop_access *at) {
  HP_TRY(read_int(r, 0, LOOP_OPERANDS_MAX - 1, operand));
  HP_TRY(read_type(r, type));
  return read_strides(r, l, at);
}

/* Returns the status of the builder, with the place in the text added. */
static hp_status check_built(reader *r, const loop *l) {
  if (!l->failed) return HP_OK;
  if (l->failed == HP_ERR_OOM) return HP_ERR_OOM;
  char said[512];
  snprintf(said, sizeof said, "%s", err_message());
  err_clear();
  return err_set(HP_ERR_INPUT, __FILE__, __LINE__, "%s: line %d: %s", r->where, r->line, said);
}

static hp_status read_const(reader *r, loop *l) {
  char word[WORD_MAX], buf[24];
  char *end = word;
  reader before = *r;
  read_word(r, word);
  float x = strtof(word, &end);
  if (end == word || *end)
    REFUSE(&before, "a number was expected, not \"%s\"", show_rest(&before, buf));
  loop_const(l, x);
  return HP_OK;
}

static hp_status read_iota(reader *r, loop *l) {
  int64_t dim, from = 0;
  HP_TRY(read_int(r, 0, HP_MAX_RANK - 1, &dim));
  if (!at_line_end(r)) HP_TRY(read_int(r, INT64_MIN, INT64_MAX, &from));
  loop_iota(l, (int)dim, from);
  return HP_OK;
}

static hp_status read_uniform(reader *r, loop *l) {
  int64_t stream;
  loop_access at;
  int seed;
  HP_TRY(read_int(r, INT64_MIN, INT64_MAX, &stream));
  HP_TRY(read_strides(r, l, &at));
  HP_TRY(read_ref(r, &seed));
  loop_uniform(l, seed, stream, at.stride, at.offset);
  return HP_OK;
}

static hp_status read_op(reader *r, loop *l, const char *name) {
  int arg[3] = {-1, -1, -1}, n = 0;
  while (n < 3 && !at_line_end(r)) HP_TRY(read_ref(r, &arg[n++]));
  for (int i = 0; i < LOOP_REDUCE_COUNT; i++) {
    if (n == 1 && !strcmp(name, loop_reduction_name[i])) {
      loop_reduce(l, name, arg[0]);
      return HP_OK;
    }
  }
  loop_op(l, name, arg[0], arg[1], arg[2]);
  return HP_OK;
}

/* "%3 = ..." */
static hp_status read_value(reader *r, loop *l) {
  char word[WORD_MAX];
  int number, arg;
  int64_t n;
  hp_dtype type;
  loop_access at;
  HP_TRY(read_ref(r, &number));
  if ((size_t)number != l->value.len)
    REFUSE(r, "%%%d: values are numbered in order, %%%zu was expected", number, l->value.len);
  HP_TRY(expect_char(r, '='));
  read_word(r, word);
  if (!strcmp(word, "in")) {
    HP_TRY(read_access(r, l, &n, &type, &at));
    loop_in(l, (int)n, type, at.stride, at.offset);
  } else if (!strcmp(word, "const")) {
    HP_TRY(read_const(r, l));
  } else if (!strcmp(word, "int")) {
    HP_TRY(read_int(r, INT64_MIN, INT64_MAX, &n));
    loop_int(l, n);
  } else if (!strcmp(word, "iota")) {
    HP_TRY(read_iota(r, l));
  } else if (!strcmp(word, "uniform")) {
    HP_TRY(read_uniform(r, l));
  } else if (!strcmp(word, "cast")) {
    HP_TRY(read_type(r, &type));
    HP_TRY(read_ref(r, &arg));
    loop_cast(l, type, arg);
  } else if (*word) {
    HP_TRY(read_op(r, l, word));
  } else {
    REFUSE(r, "an op was expected after '='");
  }
  return check_built(r, l);
}

static hp_status read_out(reader *r, loop *l) {
  char word[WORD_MAX], buf[24];
  int64_t operand;
  hp_dtype type;
  loop_access at;
  int value;
  reader before = *r;
  read_word(r, word);
  if (strcmp(word, "out"))
    REFUSE(&before, "\"%%N = op\" or \"out\" was expected, not \"%s\"", show_rest(&before, buf));
  HP_TRY(read_access(r, l, &operand, &type, &at));
  read_word(r, word);
  HP_TRY(read_ref(r, &value));
  if (*word) loop_fold(l, word, (int)operand, type, at.stride, at.offset, value);
  else loop_out(l, (int)operand, type, at.stride, at.offset, value);
  return check_built(r, l);
}

static hp_status read_header(reader *r, loop *l) {
  char word[WORD_MAX], buf[24];
  hp_shape space = {0};
  int kind = 0;
  reader before = *r;
  read_word(r, word);
  while (kind < 3 && strcmp(word, loop_kind_name[kind])) kind++;
  if (kind == 3)
    REFUSE(&before, "map, row or col was expected, not \"%s\"", show_rest(&before, buf));
  HP_TRY(read_list(r, space.dim, &space.rank));
  loop_begin(l, (loop_kind)kind, &space);
  return check_built(r, l);
}

static hp_status read_line(reader *r, loop *l) {
  char buf[24];
  if (!l->space.rank) {
    HP_TRY(read_header(r, l));
  } else if (*r->at == '%') {
    HP_TRY(read_value(r, l));
  } else {
    HP_TRY(read_out(r, l));
  }
  if (!at_line_end(r)) REFUSE(r, "\"%s\" is left over", show_rest(r, buf));
  return HP_OK;
}

hp_status loop_parse(const char *text, size_t n, const char *where, loop *out) {
  reader r = {.at = text, .end = text + n, .where = where, .line = 1};
  loop l = {0};
  hp_status st = HP_OK;
  while (!st && r.at < r.end) {
    if (!at_line_end(&r)) st = read_line(&r, &l);
    if (!st && r.at < r.end) {
      r.at++;
      r.line++;
    }
  }
  if (!st && !l.store.len)
    st = err_set(HP_ERR_INPUT, __FILE__, __LINE__,
                 "%s: loop, line %d: a kernel with at least one out line was expected", where,
                 r.line);
  if (st) loop_free(&l);
  else *out = l;
  return st;
}
