/* What every translation unit of kernels starts with: types, the functions of math.def, the joining
 * of lanes, and what moves chunks between memory and arrays of floats. */
#include "codegen/loop_c.h"
#include "codegen/loop_expr.h"

#include <stdio.h>

/* The loop of hp_join_max_f and hp_join_min_f, for which the first 16 lanes do.  hp_max asks for
 * NaN at every step of the chain, and so doubles its latency; here that is noted next to the chain,
 * from the bits: the function is compiled as if there were no NaN and one zero, so that a step is
 * one instruction.  A zero ends up as +0, whichever it was. */
static void print_join_extreme(bool max, str *out) {
  str_add(out, "  const uint32_t *u = (const uint32_t *)t;\n  uint32_t *y = (uint32_t *)lane;\n"
               "  float x[16];\n  for (int i = 0; i < 16; i++) x[i] = lane[i];\n"
               "  uint32_t bad[16];\n"
               "  for (int i = 0; i < 16; i++) bad[i] = (y[i] & 0x7fffffffu) > 0x7f800000u;\n"
               "  for (int64_t k = 0; k < n; k += 16)\n    for (int i = 0; i < 16; i++) {\n"
               "      bad[i] |= (u[k + i] & 0x7fffffffu) > 0x7f800000u;\n");
  str_printf(out, "      x[i] = x[i] %c t[k + i] ? x[i] : t[k + i];\n    }\n", max ? '>' : '<');
  str_add(out, "  for (int i = 0; i < 16; i++) lane[i] = x[i];\n"
               "  for (int i = 0; i < 16; i++) y[i] = bad[i] ? 0x7fc00000u : y[i];\n");
}

/* Numbers t to the lanes, whole groups of them. */
static void print_join(loop_reduction reduce, loop_class cls, str *out) {
  str_printf(out,
             "  %s x[%d];\n  for (int i = 0; i < %d; i++) x[i] = lane[i];\n"
             "  for (int64_t k = 0; k < n; k += %d)\n    for (int i = 0; i < %d; i++) x[i] = ",
             loop_expr_type(cls), PLAN_LANES, PLAN_LANES, PLAN_LANES, PLAN_LANES);
  loop_expr_join(reduce, cls, "x[i]", "t[k + i]", out);
  str_printf(out, ";\n  for (int i = 0; i < %d; i++) lane[i] = x[i];\n", PLAN_LANES);
}

static bool is_extreme(loop_reduction reduce, loop_class cls) {
  return cls == LOOP_FLOAT && (reduce == LOOP_MAX || reduce == LOOP_MIN);
}
static char get_class_letter(loop_class cls) { return cls == LOOP_FLOAT ? 'f' : 'i'; }

/* hp_join_sum_f adds whole groups of numbers to the lanes.  Not inlined: once in a unit is enough,
 * and compiling is quicker. */
static void print_group_join(loop_reduction reduce, loop_class cls, str *out) {
  const char *type = loop_expr_type(cls);
  str_printf(out, "NOINLINE %svoid hp_join_%s_%c(%s *lane, const %s *t, int64_t n) {\n",
             is_extreme(reduce, cls) ? "FINITE " : "", loop_reduction_name[reduce],
             get_class_letter(cls), type, type);
  if (is_extreme(reduce, cls)) print_join_extreme(reduce == LOOP_MAX, out);
  else print_join(reduce, cls, out);
  str_add(out, "}\n");
}

/* hp_lanes_sum_f joins the lanes in a fixed tree. */
static void print_lanes(loop_reduction reduce, loop_class cls, str *out) {
  const char *type = loop_expr_type(cls);
  str_printf(out, "NOINLINE %s hp_lanes_%s_%c(%s *t%d) {\n", type, loop_reduction_name[reduce],
             get_class_letter(cls), type, PLAN_LANES);
  for (int w = PLAN_LANES / 2; w > 0; w /= 2) { /* an array a level: all of it stays in registers */
    char low[32], high[32];
    snprintf(low, sizeof low, "t%d[i]", 2 * w);
    snprintf(high, sizeof high, "t%d[i + %d]", 2 * w, w);
    str_printf(out, "  %s t%d[%d];\n  for (int i = 0; i < %d; i++) t%d[i] = ", type, w, w, w, w);
    loop_expr_join(reduce, cls, low, high, out);
    str_add(out, ";\n");
  }
  str_printf(out, "  return t1[0]%s;\n}\n", is_extreme(reduce, cls) ? " + 0.0f" : "");
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
    "  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch((const char *)at + i, 0, 3);\n"
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

/* Uniform numbers, those of base/philox.h: 8 counters a vector, a word of each in 64 bits, and 4
 * vectors side by side, for a round waits for the one before.  hp_uniforms draws whole counters
 * into room and gives the place of number `index` there. */
static const char uniforms[] =
    "typedef uint64_t hp_words __attribute__((vector_size(64)));\n"
    "typedef int32_t hp_ints __attribute__((vector_size(64)));\n"
    "typedef uint32_t hp_halves __attribute__((vector_size(64)));\n"
    "typedef float hp_floats __attribute__((vector_size(64)));\n"
    "#define HP_ROOM(n) ((n) / 128 * 128 + 256)\n"
    "#define UNROLL _Pragma(\"GCC unroll 10\")\n"
    "#if defined(__clang__)\n"
    "#define HP_SHUFFLE __builtin_shufflevector\n"
    "#else\n"
    "#define HP_SHUFFLE(x, y, ...) __builtin_shuffle(x, y, (hp_words){__VA_ARGS__})\n"
    "#endif\n"
    "static inline hp_words hp_low(hp_words x) { return x & 0xffffffffu; }\n"
    "static inline hp_words hp_times(hp_words x, uint32_t m) {\n"
    "#if defined(__AVX512F__) && !defined(__clang__)\n"
    "  typedef long long product __attribute__((vector_size(64)));\n"
    "  const hp_words y = (hp_words){0} + m;\n"
    "  return (hp_words)__builtin_ia32_pmuludq512_mask((hp_ints)x, (hp_ints)y, (product){0}, -1);\n"
    "#else\n"
    "  return hp_low(x) * m;\n"
    "#endif\n"
    "}\n"
    "static inline void hp_units(float *to, hp_words x) {\n"
    "  const hp_ints u = (hp_ints)((hp_halves)x >> 8);\n"
    "  const hp_floats f = __builtin_convertvector(u, hp_floats) * 0x1p-24f;\n"
    "  __builtin_memcpy(to, &f, 64);\n"
    "}\n"
    "NOINLINE float *hp_uniforms(float *room, uint64_t seed, uint64_t stream, uint64_t index,\n"
    "                            int64_t n) {\n"
    "  uint64_t key0[10], key1[10];\n"
    "  const hp_words lanes = {0, 1, 2, 3, 4, 5, 6, 7}, zero = {0};\n"
    "  for (int r = 0; r < 10; r++) key0[r] = (uint32_t)(seed + r * 0x9e3779b9u);\n"
    "  for (int r = 0; r < 10; r++) key1[r] = (uint32_t)((seed >> 32) + r * 0xbb67ae85u);\n"
    "  n += index & 3;\n"
    "  for (int64_t i = 0; i < n; i += 128) {\n"
    "    hp_words a[4], b[4], c[4], d[4];\n"
    "    UNROLL for (int k = 0; k < 4; k++) {\n"
    "      a[k] = lanes + ((index >> 2) + (i >> 2) + 8 * k), b[k] = a[k] >> 32;\n"
    "      c[k] = zero + stream, d[k] = c[k] >> 32;\n"
    "    }\n"
    "    UNROLL for (int r = 0; r < 10; r++) UNROLL for (int k = 0; k < 4; k++) {\n"
    "      const hp_words p = hp_times(a[k], 0xd2511f53u), q = hp_times(c[k], 0xcd9e8d57u);\n"
    "      a[k] = q >> 32 ^ b[k] ^ key0[r], b[k] = q;\n"
    "      c[k] = p >> 32 ^ d[k] ^ key1[r], d[k] = p;\n"
    "    }\n"
    "    UNROLL for (int k = 0; k < 4; k++) {\n"
    "      const hp_words x = hp_low(a[k]) | b[k] << 32, y = hp_low(c[k]) | d[k] << 32;\n"
    "      hp_units(room + i + 32 * k, HP_SHUFFLE(x, y, 0, 8, 1, 9, 2, 10, 3, 11));\n"
    "      hp_units(room + i + 32 * k + 16, HP_SHUFFLE(x, y, 4, 12, 5, 13, 6, 14, 7, 15));\n"
    "    }\n"
    "  }\n"
    "  return room + (index & 3);\n"
    "}\n"
    "static inline float hp_uniform(uint64_t seed, uint64_t stream, uint64_t index) {\n"
    "  float room[HP_ROOM(1)];\n"
    "  return *hp_uniforms(room, seed, stream, index, 1);\n"
    "}\n";

/* Vectors of 16 floats, in groups of eight: what hw_ functions and the loops of loop_c_wide.c are
 * made of.  The bits are those of the hp_ functions (but the payload of a NaN).  The instruction
 * that narrows to bf16 takes subnormal numbers for 0: a group with a 0 in its result is looked at,
 * and one that has a subnormal number is narrowed by integers. */
static const char wide[] =
    "#define HP_WIDE 1\n"
    "#define EACH _Pragma(\"GCC unroll 8\") for (int i = 0; i < 8; i++)\n"
    "#define PAIRS _Pragma(\"GCC unroll 4\") for (int i = 0; i < 4; i++)\n"
    "#define LANES PAIRS\n"
    "#define hw_upper(x, ...) (hp_v) HP_SHUFFLE((hp_words)(x), (hp_words)(x), __VA_ARGS__)\n"
    "typedef float hp_v __attribute__((vector_size(64)));\n"
    "typedef uint32_t hp_vu __attribute__((vector_size(64)));\n"
    "typedef uint16_t hp_vh __attribute__((vector_size(32), aligned(2), may_alias));\n"
    "typedef uint16_t hp_vw __attribute__((vector_size(64), aligned(2), may_alias));\n"
    "#define HALF(i) i, i, i + 1, i + 1, i + 2, i + 2, i + 3, i + 3\n"
    "static const hp_vw hw_spread = {HALF(0), HALF(4), HALF(8), HALF(12)};\n"
    "#define hw_all(x) ((x) - (hp_v){0})\n"
    "#define hw_bits(x) ((hp_vu)hw_all(x))\n"
    "#define hw_from_bits(u) ((hp_v)((u) - (hp_vu){0}))\n"
    "#define hw_fma(a, b, c) \\\n"
    "  (hp_v)__builtin_ia32_vfmaddps512_mask(hw_all(a), hw_all(b), hw_all(c), (uint16_t)-1, 4)\n"
    "#define hw_compare(a, b, how) \\\n"
    "  (uint16_t)__builtin_ia32_cmpps512_mask(hw_all(a), hw_all(b), how, (uint16_t)-1, 4)\n"
    "#define hw_less(a, b) hw_compare(a, b, 17)\n"
    "#define hw_at_least(a, b) hw_compare(a, b, 29)\n"
    "#define hw_equal(a, b) hw_compare(a, b, 0)\n"
    "#define hw_differs(a, b) hw_compare(a, b, 4)\n"
    "#define hw_is_nan(a) hw_compare(a, a, 3)\n"
    "#ifdef __clang__\n"
    "#define hw_pick(m, a, b) (hp_v)__builtin_ia32_selectps_512(m, hw_all(a), hw_all(b))\n"
    "#define hw_max(a, b) (hp_v)__builtin_ia32_maxps512(a, b, 4)\n"
    "#define hw_min(a, b) (hp_v)__builtin_ia32_minps512(a, b, 4)\n"
    "#else\n"
    "#define hw_pick(m, a, b) (hp_v)__builtin_ia32_blendmps_512_mask(hw_all(b), hw_all(a), m)\n"
    "#define hw_max(a, b) (hp_v)__builtin_ia32_maxps512_mask(a, b, a, (uint16_t)-1, 4)\n"
    "#define hw_min(a, b) (hp_v)__builtin_ia32_minps512_mask(a, b, a, (uint16_t)-1, 4)\n"
    "#endif\n"
    "#define hw_choose hw_pick\n"
    "#define hw_bounded(x, high) hw_min(hw_all(high), x)\n"
    "#define hw_scale(p, n, mask) \\\n"
    "  (hp_v)__builtin_ia32_scalefps512_mask(p, n, hw_all(0.0f), mask, 4)\n"
    "#define hw_scaled(p, n, x, low, high) hw_scale(p, n, hw_compare(x, hw_all(low), 21))\n"
    "#define INLINE static inline __attribute__((always_inline))\n"
    "INLINE hp_v hw_fraction(hp_v x) {\n"
    "  __asm__(\"vreduceps $0, %0, %0\" : \"+v\"(x));\n"
    "  return x;\n"
    "}\n"
    "INLINE uint16_t hw_first(int64_t n) { return n < 1 ? 0 : n < 16 ? (1 << n) - 1 : 0xffff; }\n"
    "INLINE hp_v hw_load_f32(const float *x, int i) { return *(const hp_line *)(x + 16 * i); }\n"
    "INLINE hp_v hw_widen(hp_vw u, int half) {\n"
    "  const hp_vw at = hw_spread + (uint16_t)(half * 16);\n"
    "  __asm__(\"vpermw %1, %2, %0%{%3%}%{z%}\"\n"
    "          : \"=v\"(u) : \"v\"(u), \"v\"(at), \"Yk\"(0xaaaaaaaau));\n"
    "  return (hp_v)u;\n"
    "}\n"
    "INLINE hp_v hw_load_bf16(const uint16_t *x, int i) {\n"
    "  return hw_widen(*(const hp_vw *)(x + i / 2 * 32), i % 2);\n"
    "}\n"
    "INLINE void hw_write_f32(float *to, const hp_v *x, int64_t n, int64_t stream) {\n"
    "  float pad[128], *t = n < 128 ? pad : to;\n"
    "  if (stream && !((__UINTPTR_TYPE__)t & 63) && t == to)\n"
    "    EACH __asm__(\"vmovntps %1, %0\" : \"=m\"(*(hp_line *)(t + 16 * i)) : \"v\"(x[i]));\n"
    "  else EACH *(hp_line *)(t + 16 * i) = x[i];\n"
    "  if (t != to) __builtin_memcpy(to, pad, n * 4);\n"
    "}\n";

static const char wide_halves[] =
    "INLINE uint32_t hw_zeros(hp_vw x) {\n"
    "  uint32_t zeros;\n"
    "  __asm__(\"vptestnmw %1, %1, %0\" : \"=Yk\"(zeros) : \"v\"(x));\n"
    "  return zeros;\n"
    "}\n"
    "INLINE hp_vh hw_narrow(hp_v x) {\n"
    "  hp_vh y;\n"
    "  __asm__(\"vpmovdw %1, %0\" : \"=v\"(y) : \"v\"(hw_bits(hw_round_bf16(x)) >> 16));\n"
    "  return y;\n"
    "}\n"
    "#ifdef __AVX512BF16__\n"
    "INLINE int hw_narrows(hp_vw *y, const hp_v *x) {\n"
    "  hp_vw least = {0};\n"
    "  uint16_t subnormal = 0;\n"
    "  least -= 1;\n"
    "  PAIRS {\n"
    "    __asm__(\"vcvtne2ps2bf16 %1, %2, %0\"\n"
    "            : \"=v\"(y[i]) : \"v\"(x[2 * i]), \"v\"(x[2 * i + 1]));\n"
    "    __asm__(\"vpminuw %1, %0, %0\" : \"+v\"(least) : \"v\"(y[i] + y[i]));\n"
    "  }\n"
    "  if (hw_zeros(least))\n"
    "    EACH subnormal |= __builtin_ia32_fpclassps512_mask(x[i], 32, (uint16_t)-1);\n"
    "  return __builtin_expect(!subnormal, 1);\n"
    "}\n"
    "#else\n"
    "#define hw_narrows(y, x) 0\n"
    "#endif\n"
    "INLINE void hw_rounds_bf16(hp_v *x) {\n"
    "  hp_vw y[4];\n"
    "  if (hw_narrows(y, x)) EACH x[i] = hw_widen(y[i / 2], i % 2);\n"
    "  else EACH x[i] = hw_round_bf16(x[i]);\n"
    "}\n"
    "INLINE void hw_write_bf16(uint16_t *to, const hp_v *x, int64_t n, int64_t stream) {\n"
    "  uint16_t pad[128], *t = n < 128 ? pad : to;\n"
    "  hp_vw y[4];\n"
    "  if (!hw_narrows(y, x)) {\n"
    "    hp_vh z[8];\n" /* y itself would go to memory, always */
    "    EACH z[i] = hw_narrow(x[i]);\n"
    "    PAIRS y[i] = *(const hp_vw *)&z[2 * i];\n"
    "  }\n"
    "  if (stream && !((__UINTPTR_TYPE__)t & 63) && t == to)\n"
    "    PAIRS __asm__(\"vmovntps %1, %0\" : \"=m\"(*(hp_vw *)(t + 32 * i)) : \"v\"(y[i]));\n"
    "  else PAIRS *(hp_vw *)(t + 32 * i) = y[i];\n"
    "  if (t != to) __builtin_memcpy(to, pad, n * 2);\n"
    "}\n";

/* hw_join_sum_f: a group to the vectors y of the lanes, after what is beyond n elements has become
 * the identity.  An extreme needs one vector: a NaN in it stays, being the second operand; one of
 * the group is brought in at its end. */
static void print_wide_joins(loop_reduction reduce, str *out) {
  const char *word = loop_reduction_name[reduce];
  str_printf(out,
             "INLINE void hw_join_%s_f(hp_v *y, hp_v *x, int64_t n) {\n"
             "  if (n < 128) EACH x[i] = hw_pick(hw_first(n - 16 * i), x[i], %s);\n",
             word, loop_expr_identity(reduce, LOOP_FLOAT));
  if (reduce == LOOP_MAX || reduce == LOOP_MIN) {
    str_printf(out,
               "  uint16_t nan = 0;\n"
               "  PAIRS nan = __builtin_ia32_korhi(nan, hw_compare(x[2 * i], x[2 * i + 1], 3));\n"
               "  PAIRS x[i] = hw_%s(x[i], x[i + 4]);\n"
               "  *y = hw_%s(hw_%s(hw_%s(x[0], x[1]), hw_%s(x[2], x[3])), *y);\n"
               "  *y = hw_pick(nan, hw_from_bits(0x7fc00000u), *y);\n}\n",
               word, word, word, word, word);
    return;
  }
  str_add(out, "  EACH y[i % 4] = ");
  loop_expr_join(reduce, LOOP_FLOAT, "y[i % 4]", "x[i]", out);
  str_add(out, ";\n}\n");
}

static void print_wide_step(loop_reduction reduce, const char *a, const char *b, str *out) {
  str_printf(out, "  %s = ", a);
  if (is_extreme(reduce, LOOP_FLOAT))
    str_printf(out, "hw_%s(%s, %s)", loop_reduction_name[reduce], a, b);
  else loop_expr_join(reduce, LOOP_FLOAT, a, b, out);
  str_add(out, ";\n");
}

/* hp_lanes_sum_f in registers: a row waits for it, and a short one mostly for it.  Below 16 lanes
 * the lower ones alone count. */
static void print_wide_lanes(loop_reduction reduce, str *out) {
  const bool extreme = is_extreme(reduce, LOOP_FLOAT);
  str_printf(out,
             "INLINE float hp_lanes_%s_f(const float *t) {\n"
             "  hp_v y[4];\n  LANES y[i] = hw_load_f32(t, i);\n",
             loop_reduction_name[reduce]);
  if (extreme)
    str_add(out, "  const int nan = hw_compare(y[0], y[1], 3) | hw_compare(y[2], y[3], 3);\n");
  print_wide_step(reduce, "y[0]", "y[2]", out);
  print_wide_step(reduce, "y[1]", "y[3]", out);
  print_wide_step(reduce, "y[0]", "y[1]", out);
  print_wide_step(reduce, "y[0]", "hw_upper(y[0], 4, 5, 6, 7, 4, 5, 6, 7)", out);
  print_wide_step(reduce, "y[0]", "hw_upper(y[0], 2, 3, 2, 3, 2, 3, 2, 3)", out);
  print_wide_step(reduce, "y[0]", "hw_upper(y[0], 1, 1, 1, 1, 1, 1, 1, 1)", out);
  str_add(out, "  const float low = y[0][0], high = y[0][1];\n  return ");
  if (extreme) str_add(out, "nan ? hp_from_bits(0x7fc00000u) : ");
  loop_expr_join(reduce, LOOP_FLOAT, "low", "high", out);
  str_add(out, extreme ? " + 0.0f;\n}\n" : ";\n}\n");
}

/* hw_group_f32: where a group of n elements is loaded from, aside when it is not a whole one. */
static void print_wide_group(const char *type, const char *element, str *out) {
  str_printf(out,
             "INLINE const %s *hw_group_%s(%s *pad, const %s *x, int64_t n) {\n"
             "  if (n >= 128) return x;\n"
             "  __builtin_memset(pad, 0, 128 * sizeof *x);\n"
             "  __builtin_memcpy(pad, x, n * sizeof *x);\n"
             "  return pad;\n}\n",
             element, type, element, element);
}

/* hw_fold_sum: a group to the chains of n columns. */
static void print_wide_fold(loop_reduction reduce, str *out) {
  str_printf(out,
             "INLINE void hw_fold_%s(float *chain, const hp_v *x, int64_t n) {\n"
             "  float pad[128];\n"
             "  const float *at = hw_group_f32(pad, chain, n);\n"
             "  hp_v y[8];\n"
             "  EACH y[i] = ",
             loop_reduction_name[reduce]);
  loop_expr_join(reduce, LOOP_FLOAT, "hw_load_f32(at, i)", "x[i]", out);
  str_add(out, ";\n  hw_write_f32(chain, y, n, 0);\n}\n");
}

static void print_wide(str *out) {
  str_add(out, "#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__)\n");
  str_add(out, wide);
  loop_expr_wide_preamble(out);
  str_add(out, wide_halves);
  print_wide_group("f32", "float", out);
  print_wide_group("bf16", "uint16_t", out);
  for (int r = 0; r < LOOP_REDUCE_COUNT; r++) {
    print_wide_joins((loop_reduction)r, out);
    print_wide_lanes((loop_reduction)r, out);
  }
  print_wide_fold(LOOP_SUM, out);
  print_wide_fold(LOOP_PROD, out);
  str_add(out, "#else\n");
  for (int r = 0; r < LOOP_REDUCE_COUNT; r++) print_lanes((loop_reduction)r, LOOP_FLOAT, out);
  str_add(out, "#endif\n");
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
  str_add(out, uniforms);
  print_halves("bf16", out);
  print_halves("f16", out);
  for (int r = 0; r < LOOP_REDUCE_COUNT; r++) {
    print_group_join((loop_reduction)r, LOOP_FLOAT, out);
    print_group_join((loop_reduction)r, LOOP_INT, out);
    print_lanes((loop_reduction)r, LOOP_INT, out);
  }
  print_wide(out);
}
