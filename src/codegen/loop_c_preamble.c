/* What every translation unit of kernels starts with: types, the functions of math.def, the joining
 * of 16 lanes, and what moves chunks between memory and arrays of floats. */
#include "codegen/loop_c.h"
#include "codegen/loop_expr.h"

/* The loop of hp_join_max_f and hp_join_min_f.  hp_max asks for NaN at every step of the chain, and
 * so doubles its latency; here that is noted beside the chain, from the bits: the function is
 * compiled as if there were no NaN and one zero, so that a step is one instruction.  A zero ends up
 * as +0, whichever it was. */
static void print_join_extreme(bool max, str *out) {
  str_add(out, "  const uint32_t *u = (const uint32_t *)t;\n  uint32_t *y = (uint32_t *)lane;\n"
               "  uint32_t bad[16];\n"
               "  for (int i = 0; i < 16; i++) bad[i] = (y[i] & 0x7fffffffu) > 0x7f800000u;\n"
               "  for (int64_t k = 0; k < n; k += 16)\n    for (int i = 0; i < 16; i++) {\n"
               "      bad[i] |= (u[k + i] & 0x7fffffffu) > 0x7f800000u;\n");
  str_printf(out, "      x[i] = x[i] %c t[k + i] ? x[i] : t[k + i];\n    }\n", max ? '>' : '<');
  str_add(out, "  for (int i = 0; i < 16; i++) lane[i] = x[i];\n"
               "  for (int i = 0; i < 16; i++) y[i] = bad[i] ? 0x7fc00000u : y[i];\n");
}

/* hp_join_sum_f adds whole groups of 16 numbers to 16 lanes; hp_lanes_sum_f joins the lanes in a
 * fixed tree.  Not inlined: once in a unit is enough, and compiling is quicker. */
static void print_lanes(loop_reduction reduce, loop_class cls, str *out) {
  static const char head[] = "static __attribute__((noinline)) ";
  const char *type = loop_expr_type(cls), *word = loop_reduction_name[reduce];
  const char letter = cls == LOOP_FLOAT ? 'f' : 'i';
  bool extreme = cls == LOOP_FLOAT && (reduce == LOOP_MAX || reduce == LOOP_MIN);
  str_printf(out, "%s%svoid hp_join_%s_%c(%s *lane, const %s *t, int64_t n) {\n", head,
             extreme ? "FINITE " : "", word, letter, type, type);
  str_printf(out, "  %s x[16];\n  for (int i = 0; i < 16; i++) x[i] = lane[i];\n", type);
  if (extreme) {
    print_join_extreme(reduce == LOOP_MAX, out);
  } else {
    str_add(out, "  for (int64_t k = 0; k < n; k += 16)\n    for (int i = 0; i < 16; i++) x[i] = ");
    loop_expr_join(reduce, cls, "x[i]", "t[k + i]", out);
    str_add(out, ";\n  for (int i = 0; i < 16; i++) lane[i] = x[i];\n");
  }
  str_add(out, "}\n");
  str_printf(out, "%s%s hp_lanes_%s_%c(%s *x) {\n", head, type, word, letter, type);
  str_add(out, "  for (int w = 8; w > 0; w /= 2)\n    for (int i = 0; i < w; i++) x[i] = ");
  loop_expr_join(reduce, cls, "x[i]", "x[i + w]", out);
  str_printf(out, ";\n  return x[0]%s;\n}\n", extreme ? " + 0.0f" : "");
}

/* Chunks in and out.  hp_stream writes past the caches, whole lines of 64 bytes where `to` has
 * them; hp_streamed, at the end of a kernel, makes that visible to whoever is told that it has
 * ended. */
static const char chunks[] =
    "#define NOINLINE static __attribute__((noinline))\n"
    "typedef float hp_line __attribute__((vector_size(64), aligned(4), may_alias));\n"
    "NOINLINE void hp_stream(void *to, const void *from, int64_t bytes) {\n"
    "  char *t = to;\n"
    "  const char *f = from;\n"
    "  int64_t head = -(int64_t)(__UINTPTR_TYPE__)t & 63, i;\n"
    "  head = head < bytes ? head : bytes;\n"
    "  for (i = 0; i < head; i += 2) *(uint16_t *)(t + i) = *(const uint16_t *)(f + i);\n"
    "  for (i = head; i + 64 <= bytes; i += 64) {\n"
    "    hp_line x;\n"
    "    __builtin_memcpy(&x, f + i, 64);\n"
    "#if defined(__clang__)\n"
    "    typedef float whole __attribute__((vector_size(64)));\n"
    "    __builtin_nontemporal_store((whole)x, (whole *)(t + i));\n"
    "#elif defined(__AVX512F__)\n"
    "    typedef float whole __attribute__((vector_size(64)));\n"
    "    __builtin_ia32_movntps512((float *)(t + i), (whole)x);\n"
    "#elif defined(__SSE__)\n"
    "    typedef float part __attribute__((vector_size(16)));\n"
    "    for (int k = 0; k < 4; k++) {\n"
    "      const part y = {x[4 * k], x[4 * k + 1], x[4 * k + 2], x[4 * k + 3]};\n"
    "      __builtin_ia32_movntps((float *)(t + i) + 4 * k, y);\n"
    "    }\n"
    "#else\n"
    "    __builtin_memcpy(t + i, &x, 64);\n"
    "#endif\n"
    "  }\n"
    "  for (; i < bytes; i += 2) *(uint16_t *)(t + i) = *(const uint16_t *)(f + i);\n"
    "}\n"
    "static inline void hp_streamed(void) {\n"
    "#if defined(__SSE__)\n"
    "  __builtin_ia32_sfence();\n"
    "#endif\n"
    "}\n"
    "static inline void hp_fetch(const void *at, int64_t bytes) {\n"
    "  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch((const char *)at + i, 0, 2);\n"
    "}\n"
    "static inline void hp_write_f32(float *to, const float *x, int64_t n, int64_t stream) {\n"
    "  if (stream) hp_stream(to, x, n * 4);\n"
    "}\n";

/* hp_read_bf16, hp_write_bf16 and those of f16. */
static void print_halves(const char *type, str *out) {
  str_printf(out,
             "NOINLINE void hp_read_%s(float *to, const uint16_t *x, int64_t n) {\n"
             "  IVDEP for (int64_t k = 0; k < n; k++) to[k] = hp_load_%s(x[k]);\n"
             "}\n"
             "NOINLINE void hp_write_%s(uint16_t *to, const float *x, int64_t n, int64_t stream) "
             "{\n"
             "  uint16_t aside[%d], *y = stream ? aside : to;\n"
             "  IVDEP for (int64_t k = 0; k < n; k++) y[k] = hp_store_%s(x[k]);\n"
             "  if (stream) hp_stream(to, y, n * 2);\n"
             "}\n",
             type, type, type, LOOP_C_CHUNK, type);
}

void loop_c_preamble(str *out) {
  str_add(out, "typedef __INT8_TYPE__ int8_t;\ntypedef __UINT8_TYPE__ uint8_t;\n"
               "typedef __UINT16_TYPE__ uint16_t;\ntypedef __INT32_TYPE__ int32_t;\n"
               "typedef __UINT32_TYPE__ uint32_t;\ntypedef __INT64_TYPE__ int64_t;\n"
               "typedef __UINT64_TYPE__ uint64_t;\n"
               "#ifdef __clang__\n"
               "#define IVDEP _Pragma(\"clang loop vectorize(assume_safety)\")\n"
               "#define FINITE\n"
               "#else\n#define IVDEP _Pragma(\"GCC ivdep\")\n"
               "#define FINITE "
               "__attribute__((optimize(\"finite-math-only\", \"no-signed-zeros\")))\n"
               "#endif\n");
  loop_expr_preamble(out);
  str_add(out, chunks);
  print_halves("bf16", out);
  print_halves("f16", out);
  for (int r = 0; r < LOOP_REDUCE_COUNT; r++) {
    print_lanes((loop_reduction)r, LOOP_FLOAT, out);
    print_lanes((loop_reduction)r, LOOP_INT, out);
  }
}
