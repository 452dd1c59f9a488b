#include "codegen/loop_expr.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CLASS_f = LOOP_FLOAT, CLASS_i = LOOP_INT, CLASS_v = 0 };
enum { HAS_f = 1, HAS_i = 1, HAS_v = 0 };

static const loop_expr table[] = {
#define EXPR(name, result, work, a, b, c, expression)                                              \
  {#name,                                                                                          \
   #expression,                                                                                    \
   work,                                                                                           \
   CLASS_##result,                                                                                 \
   HAS_##a + HAS_##b + HAS_##c,                                                                    \
   {CLASS_##a, CLASS_##b, CLASS_##c}},
#include "codegen/expr.def"
};

static const struct {
  const char *identity, *join;
} reduction[LOOP_REDUCE_COUNT][2] = {
#define REDUCTION(id, name, class, identity, join) [LOOP_##id][CLASS_##class] = {#identity, #join},
#include "codegen/expr.def"
};

typedef enum { FN_SCALAR, FN_WIDE, FN_MASK } function_kind; /* as in math.def */
static const struct {
  const char *text;
  function_kind kind;
} function[] = {
#define LOOP_FN(...)      {#__VA_ARGS__, FN_SCALAR},
#define LOOP_WIDE_FN(...) {#__VA_ARGS__, FN_WIDE},
#define LOOP_MASK_FN(...) {#__VA_ARGS__, FN_MASK},
#include "codegen/math.def"
#undef LOOP_FN
};
enum { FUNCTIONS = sizeof function / sizeof *function };

int loop_expr_count(void) { return (int)(sizeof table / sizeof *table); }

const loop_expr *loop_expr_row(int r) {
  HP_ASSERT(r >= 0 && r < loop_expr_count());
  return &table[r];
}

int loop_expr_find(const char *name, const uint8_t *cls, int n) {
  for (int r = 0; r < loop_expr_count(); r++)
    if (table[r].n == n && !memcmp(table[r].arg, cls, (size_t)n) && !strcmp(table[r].name, name))
      return r;
  return -1;
}

/* Length of the word at p: a name or a number; 0 when there is none. */
static size_t measure_word(const char *p) {
  size_t n = 0;
  while (isalnum((unsigned char)p[n]) || p[n] == '_' || p[n] == '.') n++;
  return n;
}

static bool is_word(const char *p, size_t n, const char *word) {
  return n == strlen(word) && !memcmp(p, word, n);
}

/* Writes text with the names a, b and c replaced, where arg is not NULL; wide: as vectors. */
static void print_replaced(const char *text, const char *const *arg, bool wide, str *out) {
  for (const char *p = text; *p;) {
    size_t n = measure_word(p);
    if (arg && n == 1 && *p >= 'a' && *p <= 'c') str_add(out, arg[*p - 'a']);
    else if (wide && is_word(p, n, "float")) str_add(out, "hp_v");
    else if (wide && is_word(p, n, "uint32_t")) str_add(out, "hp_vu");
    else if (wide && n > 3 && !memcmp(p, "hp_", 3)) str_printf(out, "hw_%.*s", (int)n - 3, p + 3);
    else str_add_n(out, p, n ? n : 1);
    p += n ? n : 1;
  }
}

void loop_expr_print(int r, const char *const *arg, bool wide, str *out) {
  print_replaced(loop_expr_row(r)->text, arg, wide, out);
}

/* Is it a function of that kind?  Its name is before the first parenthesis of its text. */
static bool is_function(const char *name, size_t n, function_kind kind) {
  for (int i = 0; i < FUNCTIONS; i++) {
    const char *end = strchr(function[i].text, '('), *at = end - n;
    if (function[i].kind == kind && end - function[i].text > (ptrdiff_t)n && at[-1] == ' ' &&
        !memcmp(at, name, n))
      return true;
  }
  return false;
}

bool loop_expr_is_wide(int r) {
  const loop_expr *e = loop_expr_row(r);
  if (is_function(e->text, measure_word(e->text), FN_MASK)) return true;
  bool wide = e->cls == LOOP_FLOAT && !strchr(e->text, '?');
  for (int k = 0; k < e->n; k++) wide &= e->arg[k] == LOOP_FLOAT;
  for (const char *p = e->text; wide && *p;) {
    size_t n = measure_word(p);
    if (n > 3 && !memcmp(p, "hp_", 3)) wide = is_function(p, n, FN_WIDE);
    p += n ? n : 1;
  }
  return wide;
}

const char *loop_expr_identity(loop_reduction reduce, loop_class cls) {
  return reduction[reduce][cls].identity;
}

void loop_expr_join(loop_reduction reduce, loop_class cls, const char *a, const char *b, str *out) {
  print_replaced(reduction[reduce][cls].join, (const char *const[]){a, b, ""}, false, out);
}

void loop_expr_const(float x, str *out) {
  if (isnan(x)) str_add(out, "hp_from_bits(0x7fc00000)");
  else if (isinf(x)) str_printf(out, "hp_from_bits(0x%s800000)", x > 0 ? "7f" : "ff");
  else str_printf(out, "%af", (double)x);
}

void loop_expr_int(int64_t x, str *out) {
  if (x == INT64_MIN) str_add(out, "(-0x7fffffffffffffff - 1)");
  else str_printf(out, "(int64_t)%lld", (long long)x);
}

void loop_expr_cast(hp_dtype type, loop_class from, const char *v, str *out) {
  bool f = from == LOOP_FLOAT;
  const char *as_float = f ? "" : "(float)";
  switch (type) {
  case HP_BF16: str_printf(out, "hp_round_bf16(%s%s)", as_float, v); break;
  case HP_F16: str_printf(out, "hp_load_f16(hp_store_f16(%s%s))", as_float, v); break;
  case HP_I32:
    str_printf(out,
               f ? "hp_clamp_int(hp_to_int(%s), -0x80000000ll, 0x7fffffff)"
                 : "(int64_t)(int32_t)%s",
               v);
    break;
  case HP_I64: str_printf(out, f ? "hp_to_int(%s)" : "%s", v); break;
  case HP_U8: str_printf(out, f ? "hp_clamp_int(hp_to_int(%s), 0, 255)" : "%s & 255", v); break;
  case HP_BOOL: str_printf(out, "%s != 0", v); break;
  case HP_F32:
  case HP_DTYPE_COUNT: str_printf(out, "%s%s", as_float, v); break;
  }
}

const char *loop_expr_type(loop_class cls) { return cls == LOOP_FLOAT ? "float" : "int64_t"; }

const char *loop_expr_element(hp_dtype type) {
  static const char *const name[HP_DTYPE_COUNT] =
      {[HP_F32] = "float",   [HP_BF16] = "uint16_t", [HP_F16] = "uint16_t", [HP_I32] = "int32_t",
       [HP_I64] = "int64_t", [HP_U8] = "uint8_t",    [HP_BOOL] = "uint8_t"};
  return name[type];
}

void loop_expr_load(hp_dtype type, const char *element, str *out) {
  static const char *const form[HP_DTYPE_COUNT] =
      {[HP_F32] = "", [HP_BF16] = "hp_load_bf16", [HP_F16] = "hp_load_f16", [HP_I32] = "(int64_t)",
       [HP_I64] = "", [HP_U8] = "(int64_t)",      [HP_BOOL] = "0 != "};
  str_printf(out, "%s(%s)", form[type], element);
}

void loop_expr_store(hp_dtype type, const char *value, str *out) {
  static const char *const form[HP_DTYPE_COUNT] = {
      [HP_F32] = "", [HP_BF16] = "hp_store_bf16", [HP_F16] = "hp_store_f16", [HP_I32] = "(int32_t)",
      [HP_I64] = "", [HP_U8] = "(uint8_t)",       [HP_BOOL] = "0 != "};
  str_printf(out, "%s(%s)", form[type], value);
}

void loop_expr_preamble(str *out) {
  for (int i = 0; i < FUNCTIONS; i++) {
    str_add(out, function[i].text);
    str_add_char(out, '\n');
  }
}

void loop_expr_wide_preamble(str *out) {
  for (int i = 0; i < FUNCTIONS; i++) {
    if (function[i].kind != FN_WIDE) continue;
    print_replaced(function[i].text, NULL, true, out);
    str_add_char(out, '\n');
  }
}
