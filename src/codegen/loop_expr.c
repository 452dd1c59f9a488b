#include "codegen/loop_expr.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

enum { CLASS_f = LOOP_FLOAT, CLASS_i = LOOP_INT, CLASS_v = 0 };
enum { HAS_f = 1, HAS_i = 1, HAS_v = 0 };

static const loop_expr table[] = {
#define EXPR(name, result, a, b, c, expression)                                                    \
  {#name, #expression, CLASS_##result, HAS_##a + HAS_##b + HAS_##c, {CLASS_##a, CLASS_##b, CLASS_##c}},
#include "codegen/expr.def"
#undef EXPR
};

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

void loop_expr_print(int r, const char *const *arg, str *out) {
  for (const char *p = loop_expr_row(r)->text; *p;) {
    size_t n = 0;
    while (isalnum((unsigned char)p[n]) || p[n] == '_' || p[n] == '.') n++;
    if (n == 1 && *p >= 'a' && *p <= 'c') str_add(out, arg[*p - 'a']);
    else str_add_n(out, p, n ? n : 1);
    p += n ? n : 1;
  }
}

void loop_expr_const(float x, str *out) {
  if (isnan(x)) str_add(out, "hp_from_bits(0x7fc00000)");
  else if (isinf(x)) str_printf(out, "hp_from_bits(0x%s800000)", x > 0 ? "7f" : "ff");
  else str_printf(out, "%af", (double)x);
}
