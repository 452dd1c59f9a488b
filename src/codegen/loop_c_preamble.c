/* What every translation unit of kernels starts with: types, the functions of math.def, and the
 * joining of 16 lanes. */
#include "codegen/loop_c.h"
#include "codegen/loop_expr.h"

/* The loop of hp_join_max_f and hp_join_min_f.  hp_max asks for NaN at every step of the chain, and
 * so doubles its latency; here that is noted beside the chain, with the same result. */
static void print_join_extreme(bool max, str *out) {
  str_add(out, "  int bad[16];\n  for (int i = 0; i < 16; i++) bad[i] = x[i] != x[i];\n"
               "  for (int64_t k = 0; k < n; k += 16)\n    for (int i = 0; i < 16; i++) {\n"
               "      bad[i] |= t[k + i] != t[k + i];\n");
  str_printf(out, "      x[i] = x[i] %c t[k + i] ? x[i] : t[k + i];\n    }\n", max ? '>' : '<');
  str_add(out, "  for (int i = 0; i < 16; i++) x[i] = bad[i] ? hp_from_bits(0x7fc00000) : x[i];\n");
}

/* hp_join_sum_f adds whole groups of 16 numbers to 16 lanes; hp_lanes_sum_f joins the lanes in a
 * fixed tree.  Not inlined: once in a unit is enough, and compiling is quicker. */
static void print_lanes(loop_reduction reduce, loop_class cls, str *out) {
  static const char head[] = "static __attribute__((noinline)) ";
  const char *type = loop_expr_type(cls), *word = loop_reduction_name[reduce];
  const char letter = cls == LOOP_FLOAT ? 'f' : 'i';
  str_printf(out, "%svoid hp_join_%s_%c(%s *lane, const %s *t, int64_t n) {\n", head, word, letter,
             type, type);
  str_printf(out, "  %s x[16];\n  for (int i = 0; i < 16; i++) x[i] = lane[i];\n", type);
  if (cls == LOOP_FLOAT && (reduce == LOOP_MAX || reduce == LOOP_MIN)) {
    print_join_extreme(reduce == LOOP_MAX, out);
  } else {
    str_add(out, "  for (int64_t k = 0; k < n; k += 16)\n    for (int i = 0; i < 16; i++) x[i] = ");
    loop_expr_join(reduce, cls, "x[i]", "t[k + i]", out);
    str_add(out, ";\n");
  }
  str_add(out, "  for (int i = 0; i < 16; i++) lane[i] = x[i];\n}\n");
  str_printf(out, "%s%s hp_lanes_%s_%c(%s *x) {\n", head, type, word, letter, type);
  str_add(out, "  for (int w = 8; w > 0; w /= 2)\n    for (int i = 0; i < w; i++) x[i] = ");
  loop_expr_join(reduce, cls, "x[i]", "x[i + w]", out);
  str_add(out, ";\n  return x[0];\n}\n");
}

void loop_c_preamble(str *out) {
  str_add(out, "typedef __INT8_TYPE__ int8_t;\ntypedef __UINT8_TYPE__ uint8_t;\n"
               "typedef __UINT16_TYPE__ uint16_t;\ntypedef __INT32_TYPE__ int32_t;\n"
               "typedef __UINT32_TYPE__ uint32_t;\ntypedef __INT64_TYPE__ int64_t;\n"
               "typedef __UINT64_TYPE__ uint64_t;\n"
               "#ifdef __clang__\n"
               "#define IVDEP _Pragma(\"clang loop vectorize(assume_safety)\")\n"
               "#else\n#define IVDEP _Pragma(\"GCC ivdep\")\n#endif\n");
  loop_expr_preamble(out);
  for (int r = 0; r < LOOP_REDUCE_COUNT; r++) {
    print_lanes((loop_reduction)r, LOOP_FLOAT, out);
    print_lanes((loop_reduction)r, LOOP_INT, out);
  }
}
