/* Kernels against an independent evaluation in double, and compiled against interpreted code to
 * the bit. */
#include "loop_case.h"

#include "codegen/loop_expr.h"

#include <stdlib.h>

/* --- kernels ---------------------------------------------------------------------------------- */

static const char *const kernels[] = {
    /* sizes that are no multiple of anything, and the element types */
    "map [1]; %0 = in 0 f32 [1]; %1 = exp %0; out 0 f32 [1] %1",
    "map [4099]; %0 = in 0 bf16 [1]; %1 = in 1 f16 [1]; %2 = mul %0 %1; out 0 bf16 [1] %2; out 1 "
    "f16 [1] %2; out 2 f32 [1] %2",
    "map [257]; %0 = in 0 i32 [1]; %1 = in 1 i64 [1]; %2 = in 2 u8 [1]; %3 = in 3 bool [1]; "
    "%4 = add %0 %1; %5 = mul %4 %2; %6 = select %3 %5 %0; out 0 i32 [1] %6; out 1 i64 [1] %6; "
    "out 2 u8 [1] %6; out 3 bool [1] %6",
    "map [300]; %0 = in 0 f32 [1]; %1 = cast i32 %0; %2 = cast u8 %0; %3 = cast bool %0; %4 = cast "
    "i64 %0; %5 = cast f32 %1; %6 = cast bf16 %0; %7 = cast f16 %1; out 0 i32 [1] %1; out 1 u8 [1] "
    "%2; out 2 bool [1] %3; out 3 i64 [1] %4; out 4 f32 [1] %5; out 5 f32 [1] %6; out 6 f32 [1] %7",
    /* broadcast, transpose, slice, flip, constants and indices */
    "map [7,13]; %0 = in 0 f32 [13,1]; %1 = in 1 f32 [0,1]; %2 = in 2 f32 [1,0]; %3 = in 3 f32 "
    "[0,0]; %4 = add %0 %1; %5 = mul %4 %2; %6 = add %5 %3; out 0 f32 [13,1] %6",
    "map [17,31]; %0 = in 0 f32 [1,17]; %1 = relu %0; out 0 f32 [31,1] %1",
    "map [5,6,7]; %0 = in 0 f32 [84,14,2] +1; %1 = in 1 f32 [-42,-7,-1] +209; %2 = sub %0 %1; out "
    "0 f32 [1,5,30] +3 %2",
    "map [9,10]; %0 = iota 0 +100; %1 = iota 1 -5; %2 = lt %0 %1; %3 = ge %0 %1; %4 = const 2.5; "
    "%5 = const -inf; %6 = select %3 %4 %5; %7 = int 3; %8 = mul %1 %7; %9 = cast f32 %8; "
    "%10 = max %6 %9; out 0 f32 [10,1] %10; out 1 bool [10,1] %2",
    "map [4,1,8]; %0 = in 0 f32 [8,99,1]; %1 = iota 1 +7; %2 = cast f32 %1; %3 = add %0 %2; out 0 "
    "f32 [8,8,1] %3",
    /* rope: two halves of a row, read and written with offsets */
    "map [3,5,4]; %0 = in 0 f32 [40,8,1]; %1 = in 0 f32 [40,8,1] +4; %2 = in 1 f32 [0,4,1]; "
    "%3 = cos %2; %4 = sin %2; %5 = mul %0 %3; %6 = mul %1 %4; %7 = sub %5 %6; %8 = mul %1 %3; "
    "%9 = mul %0 %4; %10 = add %8 %9; out 0 f32 [40,8,1] %7; out 0 f32 [40,8,1] +4 %10",
    /* random numbers: runs that start within a counter, across the words of one; by strides; in
       rows, columns and slices */
    "map [4099]; %0 = in 0 i64 [0]; %1 = uniform 7 [1] +17179869181 %0; %2 = const 0.25; "
    "%3 = ge %1 %2; %4 = const 0; %5 = in 1 bf16 [1]; %6 = select %3 %5 %4; out 0 bf16 [1] %6; "
    "out 1 f32 [1] %1",
    "map [9,70]; %0 = int -5; %1 = uniform -3 [1,9] +2 %0; %2 = uniform 9 [1000,1] +99 %0; "
    "%3 = mul %1 %2; out 0 f32 [70,1] %3",
    "row [5,1031]; %0 = in 0 f32 [1031,1]; %1 = int 77; %2 = uniform 1 [1031,1] %1; "
    "%3 = mul %0 %2; %4 = sum %3; %5 = add %2 %4; %6 = sum %2; out 0 f32 [1031,1] %5; "
    "out 1 f32 [1,0] %6",
    "col [70,33]; %0 = in 0 f32 [33,1]; %1 = int 77; %2 = uniform 1 [33,1] %1; %3 = mul %0 %2; "
    "%4 = sum %3; out 0 f32 [0,1] %4",
    /* AdamW with scalars as operands */
    "map [1003]; %0 = in 0 f32 [1]; %1 = in 1 f32 [1]; %2 = in 2 f32 [1]; %3 = in 3 f32 [1]; "
    "%4 = in 4 f32 [0]; %5 = const 0.9; %6 = const 0.1; %7 = const 0.999; %8 = const 0.001; "
    "%9 = mul %2 %5; %10 = mul %1 %6; %11 = add %9 %10; %12 = square %3; %13 = mul %12 %7; "
    "%14 = square %1; %15 = mul %14 %8; %16 = add %13 %15; %17 = sqrt %16; %18 = const 1e-3; "
    "%19 = add %17 %18; %20 = div %11 %19; %21 = const 0.01; %22 = mul %0 %21; %23 = add %20 %22; "
    "%24 = mul %23 %4; %25 = sub %0 %24; out 0 f32 [1] %25; out 1 f32 [1] %11; out 2 f32 [1] %16",
    /* groups of vectors and what is left of them: all that they do, subnormals to bf16 */
    "map [901]; %0 = in 0 f32 [1]; %1 = in 1 bf16 [1]; %2 = exp %0; %3 = silu %1; %4 = gelu_tanh "
    "%0; %5 = tanh %0; %6 = sigmoid %1; %7 = recip %2; %8 = abs %1; %9 = neg %0; %10 = cast bf16 "
    "%9; %11 = add %10 %8; %12 = div %3 %2; %13 = mul %4 %5; %14 = sub %6 %7; out 0 bf16 [1] %0; "
    "out 1 f32 [1] %2; out 2 bf16 [1] %11; out 3 f32 [1] %12; out 4 f32 [1] %13; out 5 bf16 [1] "
    "%14",
    /* roundings in the middle, one after the other, and values from before them */
    "map [903]; %0 = in 0 f32 [1]; %1 = in 1 bf16 [1]; %2 = square %1; %3 = cast bf16 %0; %4 = mul "
    "%3 %1; %5 = cast bf16 %4; %6 = add %5 %2; %7 = neg %3; out 0 f32 [1] %7; out 1 bf16 [1] %6; "
    "out 2 f32 [1] %5",
    /* truth values, also of what is not a number and beyond a rounding */
    "map [905]; %0 = in 0 f32 [1]; %1 = abs %0; %2 = eq %0 %1; %3 = ne %0 %1; %4 = lt %0 %1; %5 = "
    "le %0 %1; %6 = gt %1 %0; %7 = ge %0 %1; %8 = const 1; %9 = const 0.125; %10 = select %2 %8 "
    "%9; "
    "%11 = select %3 %10 %0; %12 = cast bf16 %11; %13 = select %4 %12 %1; %14 = select %5 %13 %12; "
    "%15 = select %6 %10 %13; %16 = select %7 %9 %12; out 0 f32 [1] %14; out 1 bf16 [1] %15; out 2 "
    "f32 [1] %16",
    "row [5,700]; %0 = in 0 bf16 [700,1]; %1 = max %0; %2 = min %0; %3 = sub %0 %1; %4 = exp %3; "
    "%5 = sum %4; %6 = prod %4; %7 = div %4 %5; %8 = add %6 %2; out 0 bf16 [700,1] %7; out 1 f32 "
    "[1,0] %8",
    /* rows: softmax, rms_norm, log-sum-exp, several stages and outputs, odd lengths */
    "row [6,1]; %0 = in 0 f32 [1,1]; %1 = max %0; %2 = sub %0 %1; %3 = exp %2; %4 = sum %3; "
    "%5 = div %3 %4; out 0 f32 [1,1] %5",
    "row [5,17]; %0 = in 0 f32 [17,1]; %1 = max %0; %2 = sub %0 %1; %3 = exp %2; %4 = sum %3; "
    "%5 = div %3 %4; %6 = log %4; %7 = add %6 %1; out 0 f32 [17,1] %5; out 1 f32 [1,0] %7",
    "row [3,769]; %0 = in 0 bf16 [769,1]; %1 = in 1 f32 [0,1]; %2 = square %0; %3 = sum %2; "
    "%4 = const 0.00130039; %5 = mul %3 %4; %6 = const 1e-5; %7 = add %5 %6; %8 = rsqrt %7; "
    "%9 = mul %0 %8; %10 = mul %9 %1; out 0 bf16 [769,1] %10; out 1 f32 [1,0] %8",
    "row [2,3,4097]; %0 = in 0 f32 [4097,8194,1]; %1 = sum %0; %2 = min %0; %3 = max %0; %4 = sub "
    "%3 %2; out 0 f32 [3,1,0] %1; out 1 f32 [1,2,0] %4",
    "row [4,9]; %0 = in 0 i32 [9,1]; %1 = sum %0; %2 = max %0; %3 = min %0; %4 = sub %2 %3; "
    "%5 = eq %0 %2; %6 = sum %5; out 0 i64 [1,0] %1; out 1 i32 [1,0] %4; out 2 u8 [1,0] %6; "
    "out 3 bool [9,1] %5",
    "row [3,300]; %0 = in 0 bf16 [0,1]; %1 = const 0; %2 = mul %0 %1; %3 = in 1 u8 [300,1]; "
    "%4 = cast f32 %3; %5 = mul %4 %2; %6 = max %5; %7 = min %5; out 0 f32 [1,0] %6; "
    "out 1 f32 [1,0] %7",
    "row [2,0]; %0 = in 0 f32 [0,1]; %1 = sum %0; %2 = in 1 f32 [1,0]; %3 = add %1 %2; out 0 f32 "
    "[1,0] %3",
    "row [0,8]; %0 = in 0 f32 [8,1]; %1 = sum %0; out 0 f32 [1,0] %1",
    "row [3,40]; %0 = in 0 f32 [40,1]; %1 = iota 1; %2 = iota 0 +2; %3 = le %1 %2; %4 = const "
    "-inf; %5 = select %3 %0 %4; %6 = max %5; %7 = sub %5 %6; %8 = exp %7; %9 = sum %8; %10 = div "
    "%8 %9; out 0 f32 [40,1] %10",
    /* columns */
    "col [1,5]; %0 = in 0 f32 [5,1]; %1 = sum %0; out 0 f32 [0,1] %1",
    "col [131,67]; %0 = in 0 f32 [67,1]; %1 = in 1 f32 [67,1]; %2 = mul %0 %1; %3 = sum %2; "
    "%4 = sum %0; out 0 f32 [0,1] %3; out 1 f32 [0,1] %4",
    "col [70,3,300]; %0 = in 0 bf16 [900,300,1]; %1 = in 1 f32 [1,0,0]; %2 = in 2 f32 [0,1,0]; %3 "
    "= mul %0 %1; %4 = mul %3 %2; %5 = max %4; %6 = sub %4 %5; %7 = exp %6; %8 = sum %7; %9 = div "
    "%7 %8; out 0 f32 [900,300,1] %9; out 1 f32 [0,300,1] %8",
    "col [33,129]; %0 = in 0 i64 [129,1]; %1 = min %0; %2 = sum %0; %3 = iota 0; %4 = iota 1; "
    "%5 = mul %3 %4; %6 = sum %5; %7 = add %6 %2; out 0 i64 [0,1] %1; out 1 i64 [0,1] %7",
    "col [0,3]; %0 = in 0 f32 [3,1]; %1 = sum %0; out 0 f32 [0,1] %1",
    "col [9]; %0 = in 0 f32 [1]; %1 = prod %0; out 0 f32 [0] %1",
    "col [20,8]; %0 = in 0 f32 [1,20]; %1 = sum %0; %2 = in 1 f32 [0,1]; %3 = add %1 %2; %4 = mul "
    "%0 %3; out 0 f32 [1,20] %4; out 1 f32 [0,1] %3",
};
enum { KERNELS = sizeof kernels / sizeof *kernels };

TEST(interpreted_kernels_agree_with_double) {
  loop_module *m = loop_case_module(LOOP_ISA_BEST, true);
  for (int i = 0; i < KERNELS; i++) {
    loop l;
    loop_kernel *k;
    loop_case d;
    loop_case_parse(kernels[i], &l);
    CHECK_OK(loop_module_add(m, &l, &k));
    CHECK_OK(loop_module_build(m));
    loop_case_make(&l, (uint32_t)i, false, &d);
    loop_case_run(k, &d, NULL);
    loop_case_check(&l, &d, 2e-5);
    loop_case_free(&d);
    loop_free(&l);
  }
  CHECK_EQ(loop_module_report(m).interpreted, KERNELS);
  loop_module_free(m);
}

/* Kernels of up to eight rows of expr.def each: those that vectors have, those of floats that they
 * have not, and those of integers, so that no row keeps another from becoming vector code. */
enum { ROWS_AT_ONCE = 8, OPS_KERNELS = 24 };

static int group_of(const loop_expr *e, int row) {
  return loop_expr_is_wide(row) ? 0 : e->arg[0] == LOOP_FLOAT ? 1 : 2;
}

static int write_kernels_of_ops(str *text) {
  int n = 0;
  for (int group = 0; group < 3; group++)
    for (int row = 0, rows = 0; row < loop_expr_count(); row++) {
      const loop_expr *e = loop_expr_row(row);
      if (group_of(e, row) != group) continue;
      if (rows % ROWS_AT_ONCE == 0) {
        HP_ASSERT(n < OPS_KERNELS);
        str_add(&text[n++], "map [901]; %0 = in 0 f32 [1]; %1 = in 1 f32 [1]; %2 = in 2 i32 [1]; "
                            "%3 = in 3 i32 [1]; %4 = in 4 bool [1]");
      }
      str *t = &text[n - 1];
      int out = rows++ % ROWS_AT_ONCE;
      str_printf(t, "; %%%d = %s", 5 + out, e->name);
      for (int a = 0, floats = 0, ints = 0; a < e->n; a++) {
        bool truth = e->n == 3 && a == 0;
        str_printf(t, " %%%d", truth ? 4 : e->arg[a] == LOOP_FLOAT ? floats++ : 2 + ints++);
      }
      str_printf(t, "; out %d %s [1] %%%d", out, e->cls == LOOP_FLOAT ? "f32" : "i64", 5 + out);
    }
  return n;
}

static void check_isa(loop_isa isa) {
  str text[OPS_KERNELS] = {0};
  const char *ops[OPS_KERNELS];
  int n = write_kernels_of_ops(text);
  for (int i = 0; i < n; i++) {
    CHECK_OK(str_status(&text[i]));
    ops[i] = text[i].at;
  }
  loop_case_check_isa(isa, kernels, KERNELS, true);
  loop_case_check_isa(isa, ops, n, true);
  for (int i = 0; i < n; i++) str_free(&text[i]);
}

TEST(avx512bf16_code_gives_the_bits_of_the_interpreter) { check_isa(LOOP_ISA_AVX512_BF16); }
TEST(avx512_code_gives_the_bits_of_the_interpreter) { check_isa(LOOP_ISA_AVX512); }
TEST(avx2_code_gives_the_bits_of_the_interpreter) { check_isa(LOOP_ISA_AVX2); }
TEST(plain_code_gives_the_bits_of_the_interpreter) { check_isa(LOOP_ISA_PLAIN); }

/* --- parts, phases, threads ------------------------------------------------------------------- */

/* Few, long rows and columns: cut into segments, run in phases. */
static const char *const long_kernels[] = {
    "row [1,600001]; %0 = in 0 f32 [600001,1]; %1 = sum %0; out 0 f32 [1,0] %1",
    "row [3,300000]; %0 = in 0 f32 [300000,1]; %1 = in 1 f32 [0,1]; %2 = mul %0 %1; %3 = max %2; "
    "%4 = sub %2 %3; %5 = exp %4; %6 = sum %5; %7 = prod %1; %8 = div %5 %6; %9 = add %6 %7; out 0 "
    "f32 [300000,1] %8; out 1 f32 [1,0] %9",
    "row [2,270000]; %0 = in 0 u8 [270000,1]; %1 = sum %0; %2 = max %0; %3 = min %0; out 0 i64 "
    "[1,0] %1; out 1 i64 [1,0] %2; out 2 i64 [1,0] %3",
    "col [9001,3]; %0 = in 0 bf16 [3,1]; %1 = in 1 f32 [1,0]; %2 = mul %0 %1; %3 = sum %2; "
    "%4 = sub %2 %3; %5 = max %4; out 0 f32 [0,1] %3; out 1 f32 [0,1] %5",
    "col [8200,2,70]; %0 = in 0 f32 [140,70,1]; %1 = sum %0; %2 = mul %0 %1; out 0 f32 [140,70,1] "
    "%2; out 1 f32 [0,1,2] %1",
    "col [4200,1100]; %0 = in 0 bf16 [1100,1]; %1 = in 1 f32 [0,1]; %2 = mul %0 %1; %3 = sum %2; "
    "%4 = max %0; out 0 f32 [0,1] %3; out 1 f32 [0,1] %4",
    "col [70,3,2100]; %0 = in 0 f32 [6300,2100,1]; %1 = sum %0; %2 = max %0; %3 = min %0; %4 = "
    "prod "
    "%0; %5 = square %0; %6 = sum %5; %7 = max %5; %8 = exp %0; %9 = sum %8; out 0 f32 [0,2100,1] "
    "%1; "
    "out 1 f32 [0,2100,1] %2; out 2 f32 [0,2100,1] %3; out 3 f32 [0,2100,1] %4; out 4 f32 "
    "[0,2100,1] "
    "%6; out 5 f32 [0,2100,1] %7; out 6 f32 [0,2100,1] %9",
    "row [200,5000]; %0 = in 0 f32 [5000,1]; %1 = square %0; %2 = sum %1; %3 = rsqrt %2; %4 = mul "
    "%0 %3; out 0 f32 [5000,1] %4",
    "row [3,20003]; %0 = in 0 bf16 [20003,1]; %1 = max %0; %2 = sub %0 %1; %3 = exp %2; %4 = sum "
    "%3; %5 = div %3 %4; %6 = min %0; out 0 bf16 [20003,1] %5; out 1 f32 [1,0] %6",
    "map [300,700]; %0 = in 0 f32 [700,1]; %1 = in 1 f32 [1,0]; %2 = mul %0 %1; out 0 f32 [700,1] "
    "%2",
};
enum { LONG_KERNELS = sizeof long_kernels / sizeof *long_kernels };

TEST(long_reductions_run_in_phases_with_the_same_bits) {
  loop_case_check_isa(LOOP_ISA_BEST, long_kernels, LONG_KERNELS, false);
}

/* Outputs that go past the caches, at places that no vector is aligned to. */
TEST(large_outputs_have_the_bits_of_the_interpreter) {
  static const char *const large[] =
      {"map [8400001]; %0 = in 0 bf16 [1]; %1 = square %0; out 0 f32 [1] +1 %1; out 1 bf16 [1] +3 "
       "%1",
       "row [1100,4001]; %0 = in 0 f32 [4001,1]; %1 = max %0; %2 = sub %0 %1; out 0 f32 [4001,1] "
       "%2"};
  loop_case_check_isa(LOOP_ISA_BEST, large, 2, false);
  loop_case_check_isa(LOOP_ISA_PLAIN, large, 2, false);
}

static void check_splits(bool interpret) {
  loop_module *m = loop_case_module(LOOP_ISA_BEST, interpret);
  loop_kernel *k[LONG_KERNELS];
  loop l[LONG_KERNELS];
  pool *threads;
  CHECK_OK(pool_create(3, false, &threads));
  for (int i = 0; i < LONG_KERNELS; i++) {
    loop_case_parse(long_kernels[i], &l[i]);
    CHECK_OK(loop_module_add(m, &l[i], &k[i]));
  }
  CHECK_OK(loop_module_build(m));
  for (int i = 0; i < LONG_KERNELS; i++) {
    loop_case whole, cut, pooled;
    loop_case_make(&l[i], 5, false, &whole);
    loop_case_make(&l[i], 5, false, &cut);
    loop_case_make(&l[i], 5, false, &pooled);
    loop_case_run(k[i], &whole, NULL);
    loop_case_run(k[i], &pooled, threads);
    loop_case_run_chunks(k[i], &cut, (uint32_t)i);
    loop_case_same(long_kernels[i], &whole, &cut);
    loop_case_same(long_kernels[i], &whole, &pooled);
    if (i < 6 && !interpret && loop_module_report(m).interpreted == 0) {
      CHECK(loop_phases(k[i]) > 1);
      CHECK(loop_scratch(k[i]) > 0);
    } else {
      CHECK_EQ(loop_phases(k[i]), 1);
    }
    loop_case_free(&whole);
    loop_case_free(&cut);
    loop_case_free(&pooled);
    loop_free(&l[i]);
  }
  pool_free(threads);
  loop_module_free(m);
}

TEST(any_split_into_parts_gives_the_same_bits) { check_splits(false); }
TEST(any_split_of_interpreted_kernels_gives_the_same_bits) { check_splits(true); }

TEST(long_sums_are_accurate) {
  /* a million numbers near 0.1: one chain of f32 would be off by 1e-3 of the sum */
  static const char *const text[] =
      {"row [1,1000003]; %0 = in 0 f32 [0,1]; %1 = sum %0; out 0 f32 [1,0] %1",
       "col [1000003,1]; %0 = in 0 f32 [1,0]; %1 = sum %0; out 0 f32 [0,1] %1"};
  loop_module *m = loop_case_module(LOOP_ISA_BEST, false);
  for (int i = 0; i < 2; i++) {
    loop l;
    loop_kernel *k;
    loop_case d;
    double want = 0;
    loop_case_parse(text[i], &l);
    CHECK_OK(loop_module_add(m, &l, &k));
    CHECK_OK(loop_module_build(m));
    loop_case_make(&l, 1, false, &d);
    float *x = d.in[0];
    for (int j = 0; j < 1000003; j++) want += (double)(x[j] = 0.1f + 1e-4f * (float)(j % 7));
    loop_case_run(k, &d, NULL);
    CHECK_NEAR(((float *)d.out[0])[0] / want, 1, 3e-6);
    loop_case_free(&d);
    loop_free(&l);
  }
  loop_module_free(m);
}

/* --- in place --------------------------------------------------------------------------------- */

static void check_in_place(const char *text, bool interpret) {
  loop_module *m = loop_case_module(LOOP_ISA_BEST, interpret);
  loop l;
  loop_kernel *k;
  loop_case apart, same;
  loop_case_parse(text, &l);
  CHECK_OK(loop_module_add(m, &l, &k));
  CHECK_OK(loop_module_build(m));
  loop_case_make(&l, 3, false, &apart);
  loop_case_make(&l, 3, false, &same);
  loop_case_run(k, &apart, NULL);
  /* output i takes the memory of input i */
  for (int i = 0; i < loop_outputs(&l); i++) {
    memcpy(same.out[i], same.in[i], same.n_out[i] * 4);
    void *own = same.in[i];
    same.in[i] = same.out[i];
    same.out[i] = own;
  }
  void *out[LOOP_CASE_OPERANDS];
  memcpy(out, same.out, sizeof out);
  for (int i = 0; i < loop_outputs(&l); i++) same.out[i] = same.in[i];
  loop_case_run(k, &same, NULL);
  loop_case_same(text, &apart, &same);
  for (int i = 0; i < loop_outputs(&l); i++) same.in[i] = out[i];
  loop_case_free(&apart);
  loop_case_free(&same);
  loop_free(&l);
  loop_module_free(m);
}

TEST(an_output_may_be_the_buffer_of_an_input) {
  static const char *const text[] =
      {/* the sum of the residual goes over x, its norm over r, the row's scale over the old one */
       "row [9,700]; %0 = in 0 f32 [700,1]; %1 = in 1 f32 [700,1]; %2 = in 2 f32 [1,0]; %3 = add "
       "%0 %1; %4 = square %3; %5 = sum %4; %6 = rsqrt %5; %7 = mul %3 %6; %8 = mul %6 %2; out 0 "
       "f32 [700,1] %3; out 1 f32 [700,1] %7; out 2 f32 [1,0] %8",
       "row [4,999]; %0 = in 0 f32 [999,1]; %1 = max %0; %2 = sub %0 %1; %3 = exp %2; %4 = sum %3; "
       "%5 = div %3 %4; out 0 f32 [999,1] %5",
       "col [77,130]; %0 = in 0 f32 [130,1]; %1 = in 1 f32 [0,1]; %2 = sum %0; %3 = add %2 %1; %4 "
       "= mul %0 %3; out 0 f32 [130,1] %4; out 1 f32 [0,1] %3",
       "map [5001]; %0 = in 0 f32 [1]; %1 = in 1 f32 [1]; %2 = add %0 %1; %3 = sub %0 %1; out 0 "
       "f32 [1] %3; out 1 f32 [1] %2",
       "row [2,600000]; %0 = in 0 f32 [600000,1]; %1 = sum %0; %2 = in 1 f32 [1,0]; %3 = add %1 "
       "%2; %4 = add %0 %3; out 0 f32 [600000,1] %4; out 1 f32 [1,0] %3",
       /* all rows read the weight before the columns are stored over it */
       "row [130,70]; %0 = in 0 f32 [70,1]; %1 = in 1 f32 [0,1]; %2 = mul %0 %1; %3 = sum %2; %4 = "
       "sub %2 %3; out 0 f32 [70,1] %4; out 1 f32 [0,1] sum %2"};
  for (int i = 0; i < 6; i++) {
    check_in_place(text[i], false);
    check_in_place(text[i], true);
  }
}

/* --- structures ------------------------------------------------------------------------------- */

TEST(kernels_that_differ_in_sizes_share_code) {
  static const char *const text[] =
      {"map [10]; %0 = in 0 f32 [1]; %1 = exp %0; out 0 f32 [1] %1",
       "map [3,70]; %0 = in 0 f32 [70,1]; %1 = exp %0; out 0 f32 [70,1] %1", /* merges to one dim */
       "map [3,1,70]; %0 = in 0 f32 [70,7,1]; %1 = exp %0; out 0 f32 [70,1,1] %1",
       "map [9]; %0 = in 0 f32 [1]; %1 = in 0 f32 [1]; %2 = exp %0; %3 = exp %1; out 0 f32 [1] %3",
       "map [5000]; %0 = const 3; %1 = in 0 f32 [1] +9; %2 = exp %1; out 0 f32 [1] %2", /* unused
                                                                                            value */
       "map [10]; %0 = in 0 f32 [2]; %1 = exp %0; out 0 f32 [1] %1", /* not of step one: its own
                                                                        code */
       "map [10]; %0 = in 0 bf16 [1]; %1 = exp %0; out 0 f32 [1] %1",
       "map [10]; %0 = in 0 f32 [1]; %1 = log %0; out 0 f32 [1] %1"};
  loop_module *m = loop_case_module(LOOP_ISA_BEST, true);
  for (int i = 0; i < 8; i++) {
    loop l;
    loop_kernel *k;
    loop_case_parse(text[i], &l);
    CHECK_OK(loop_module_add(m, &l, &k));
    loop_free(&l);
  }
  CHECK_OK(loop_module_build(m));
  CHECK_EQ(loop_module_report(m).kernels, 8);
  CHECK_EQ(loop_module_report(m).structures, 4);
  loop_module_free(m);
}
