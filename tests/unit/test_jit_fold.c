/* Folds: sums over the rows of a row kernel, to the bit those of a col kernel that reads what a row
 * kernel has stored. */
#include "loop_case.h"

#include "base/dtype.h"

#include <stdlib.h>

static const char *const kernels[] = {
    /* rows: none, one, about a block, more than a segment of blocks */
    "row [0,5]; %0 = in 0 f32 [5,1]; out 0 f32 [0,1] sum %0; out 1 f32 [0,1] max %0; out 2 f32 "
    "[0,1] prod %0",
    "row [1,1]; %0 = in 0 f32 [1,1]; out 0 f32 [0,1] sum %0",
    "row [9]; %0 = in 0 f32 [1]; out 0 f32 [1] sum %0",
    "row [63,130]; %0 = in 0 f32 [130,1]; %1 = exp %0; out 0 f32 [130,1] %1; out 1 f32 [0,1] sum "
    "%1",
    "row [64,16]; %0 = in 0 f32 [16,1]; %1 = sum %0; %2 = mul %0 %1; out 0 f32 [0,1] sum %2",
    "row [65,700]; %0 = in 0 bf16 [700,1]; %1 = in 1 f32 [0,1]; %2 = mul %0 %1; out 0 bf16 [700,1] "
    "%2; out 1 bf16 [0,1] sum %2; out 2 f32 [0,1] min %2; out 3 f32 [0,1] max %2",
    "row [8300,37]; %0 = in 0 f32 [37,1]; %1 = max %0; %2 = sub %0 %1; %3 = exp %2; out 0 f32 "
    "[37,1] %2; out 1 f32 [0,1] sum %3; out 2 f32 [0,1] prod %3",
    /* a number of a row that is stored for each element, rounded as it is */
    "row [66,130]; %0 = in 0 f32 [130,1]; %1 = sum %0; %2 = cast bf16 %1; %3 = cast f16 %1; out 0 "
    "bf16 [130,1] %2; out 1 f16 [130,1] %3; out 2 f32 [0,1] sum %0",
    /* more columns than a group of rows takes at once, than the last phase does */
    "row [66,17001]; %0 = in 0 bf16 [17001,1]; %1 = max %0; %2 = sub %0 %1; %3 = exp %2; %4 = sum "
    "%3; %5 = div %3 %4; out 0 bf16 [17001,1] %5; out 1 f32 [0,1] sum %5; out 2 f32 [0,1] sum %3",
    /* gradients of a norm: of x and, over columns, of its weight and bias */
    "row [777,129]; %0 = in 0 bf16 [129,1]; %1 = in 1 bf16 [129,1]; %2 = in 2 f32 [0,1]; %3 = cast "
    "f32 %0; %4 = cast f32 %1; %5 = square %3; %6 = sum %5; %7 = const 0.007752; %8 = mul %6 %7; "
    "%9 = rsqrt %8; %10 = mul %3 %9; %11 = mul %4 %2; %12 = mul %10 %11; %13 = sum %12; %14 = mul "
    "%13 %7; %15 = mul %10 %14; %16 = sub %11 %15; %17 = mul %9 %16; %18 = cast bf16 %17; %19 = "
    "mul %4 %10; out 0 bf16 [129,1] %18; out 1 f32 [0,1] sum %19; out 2 f32 [0,1] sum %4; out 3 "
    "bf16 [0,1] sum %18",
    /* leading dims that no operand walks as one; results with steps, from the end, with a start */
    "row [7,3,29,40]; %0 = in 0 f32 [40,8120,280,1]; %1 = in 1 f32 [1,0,0,7]; %2 = mul %0 %1; %3 = "
    "sum %2; out 0 f32 [0,0,0,3] +2 sum %2; out 1 f32 [0,0,0,-1] +39 sum %1; out 2 f32 "
    "[87,29,1,0] %3",
    /* integers, truth values, numbers of rows, constants, random numbers */
    "row [130,50]; %0 = in 0 i32 [50,1]; %1 = in 1 u8 [50,1]; %2 = mul %0 %1; %3 = lt %0 %1; %4 = "
    "sum %2; out 0 i32 [0,1] sum %2; out 1 i64 [0,1] sum %2; out 2 i64 [0,1] max %0; out 3 u8 "
    "[0,1] sum %3; out 4 i64 [0,1] min %4; out 5 bool [0,1] prod %3",
    "row [200,150]; %0 = in 0 f32 [150,1]; %1 = sum %0; %2 = const 0.3; %3 = int 8; %4 = uniform "
    "4 [150,1] %3; %5 = iota 0; %6 = cast f32 %5; out 0 f32 [0,1] sum %1; out 1 f32 [0,1] sum %2; "
    "out 2 f32 [0,1] sum %4; out 3 f32 [0,1] sum %6",
};
enum { KERNELS = sizeof kernels / sizeof *kernels };

/* NaN hides the order of a sum, and without it nothing shows what becomes of it. */
static void check_isa(loop_isa isa) {
  loop_case_check_isa(isa, kernels, KERNELS, false);
  loop_case_check_isa(isa, kernels, KERNELS, true);
}

TEST(folds_of_avx512bf16_code_are_those_of_the_interpreter) { check_isa(LOOP_ISA_AVX512_BF16); }
TEST(folds_of_avx512_code_are_those_of_the_interpreter) { check_isa(LOOP_ISA_AVX512); }
TEST(folds_of_avx2_code_are_those_of_the_interpreter) { check_isa(LOOP_ISA_AVX2); }
TEST(torture_folds_of_plain_code_are_those_of_the_interpreter) { check_isa(LOOP_ISA_PLAIN); }

/* The row kernel that stores what store s of l folds, and the col kernel that reads it. */
static void write_two_loops(const loop *l, size_t s, loop *rows, loop *columns) {
  const loop_store *o = &l->store.at[s];
  const bool is_float = loop_class_of(o->type) == LOOP_FLOAT;
  const hp_dtype type = is_float ? HP_F32 : HP_I64;
  const int last = l->space.rank - 1;
  int64_t step = 1, n = 1, stride[HP_MAX_RANK];
  for (int d = last; d >= 0; step *= l->space.dim[d--]) stride[d] = step;
  for (int d = 0; d < last; d++) n *= l->space.dim[d];
  str text = {0};
  loop_print(l, ";", &text);
  CHECK_OK(str_status(&text));
  loop_case_parse(text.at, rows);
  str_free(&text);
  rows->store.len = 0;
  loop_out(rows, 0, type, stride, 0, o->value);
  CHECK_OK(loop_status(rows));
  loop_begin(columns, LOOP_COL, &(hp_shape){2, {n, l->space.dim[last]}});
  int x = loop_in(columns, 0, type, (const int64_t[]){l->space.dim[last], 1}, 0);
  x = loop_reduce(columns, (const char *const[]){"sum", "prod", "max", "min"}[o->reduce], x);
  loop_out(columns, (int)s, o->type, (const int64_t[]){0, o->at.stride[last]}, o->at.offset, x);
  CHECK_OK(loop_status(columns));
}

/* A kernel, and for each of its folds two loops. */
typedef struct {
  loop one, two[LOOP_CASE_OPERANDS][2];
  loop_kernel *k, *k2[LOOP_CASE_OPERANDS][2];
} folded;

static void add_folded(loop_module *m, const char *text, folded *f) {
  loop_case_parse(text, &f->one);
  CHECK_OK(loop_module_add(m, &f->one, &f->k));
  for (size_t s = 0; s < f->one.store.len; s++) {
    if (!f->one.store.at[s].fold) continue;
    write_two_loops(&f->one, s, &f->two[s][0], &f->two[s][1]);
    for (int i = 0; i < 2; i++) CHECK_OK(loop_module_add(m, &f->two[s][i], &f->k2[s][i]));
  }
}

static void free_folded(folded *f) {
  for (int s = 0; s < LOOP_CASE_OPERANDS; s++)
    for (int i = 0; i < 2; i++) loop_free(&f->two[s][i]);
  loop_free(&f->one);
}

/* Fills output s of d, which is a fold, by two loops. */
static void run_two_loops(const folded *f, size_t s, const loop_case *from, loop_case *d) {
  loop_case stored, reduced;
  loop_case_make(&f->two[s][0], 0, false, &stored);
  loop_case_make(&f->two[s][1], 0, false, &reduced);
  for (int i = 0; i < LOOP_CASE_OPERANDS; i++)
    if (stored.n_in[i])
      memcpy(stored.in[i], from->in[i], stored.n_in[i] * dtype_size(stored.in_type[i]));
  loop_case_run(f->k2[s][0], &stored, NULL);
  size_t bytes = stored.n_out[0] * dtype_size(stored.out_type[0]);
  if (bytes) memcpy(reduced.in[0], stored.out[0], bytes);
  loop_case_run(f->k2[s][1], &reduced, NULL);
  CHECK_EQ(d->n_out[s], reduced.n_out[s]);
  memcpy(d->out[s], reduced.out[s], d->n_out[s] * dtype_size(d->out_type[s]));
  loop_case_free(&stored);
  loop_case_free(&reduced);
}

static void check_two_loops(const folded *f, const char *text, bool wild) {
  loop_case one, two;
  loop_case_make(&f->one, 1, wild, &one);
  loop_case_make(&f->one, 1, wild, &two);
  loop_case_run(f->k, &one, NULL);
  loop_case_run(f->k, &two, NULL);
  for (size_t s = 0; s < f->one.store.len; s++)
    if (f->one.store.at[s].fold) run_two_loops(f, s, &one, &two);
  loop_case_same(text, &one, &two);
  loop_case_free(&one);
  loop_case_free(&two);
}

TEST(a_fold_is_the_sum_of_a_col_kernel) {
  loop_module *m = loop_case_module(LOOP_ISA_BEST, false);
  folded *f = calloc(KERNELS, sizeof *f);
  CHECK(f);
  for (int i = 0; i < KERNELS; i++) add_folded(m, kernels[i], &f[i]);
  CHECK_OK(loop_module_build(m));
  for (int i = 0; i < KERNELS; i++) {
    check_two_loops(&f[i], kernels[i], false);
    check_two_loops(&f[i], kernels[i], true);
    free_folded(&f[i]);
  }
  free(f);
  loop_module_free(m);
}

static void check_threads(bool interpret) {
  loop_module *m = loop_case_module(LOOP_ISA_BEST, interpret);
  pool *threads[8];
  loop l[KERNELS];
  loop_kernel *k[KERNELS];
  for (int n = 1; n < 8; n++) CHECK_OK(pool_create(n, false, &threads[n]));
  for (int i = 0; i < KERNELS; i++) {
    loop_case_parse(kernels[i], &l[i]);
    CHECK_OK(loop_module_add(m, &l[i], &k[i]));
  }
  CHECK_OK(loop_module_build(m));
  for (int i = 0; i < KERNELS; i++) {
    loop_case whole, other;
    CHECK_EQ(loop_phases(k[i]), 2);
    loop_case_make(&l[i], 3, false, &whole);
    loop_case_make(&l[i], 3, false, &other);
    loop_case_run(k[i], &whole, NULL);
    for (int n = 0; n < 8; n++) {
      for (size_t o = 0; o < l[i].store.len; o++)
        memset(other.out[o], 0x5a, other.n_out[o] * dtype_size(other.out_type[o]));
      if (n) loop_case_run(k[i], &other, threads[n]);
      else loop_case_run_chunks(k[i], &other, (uint32_t)i);
      loop_case_same(kernels[i], &whole, &other);
    }
    loop_case_free(&whole);
    loop_case_free(&other);
    loop_free(&l[i]);
  }
  for (int n = 1; n < 8; n++) pool_free(threads[n]);
  loop_module_free(m);
}

TEST(folds_do_not_depend_on_parts_and_threads) { check_threads(false); }
TEST(folds_of_interpreted_kernels_do_not_depend_on_parts_and_threads) { check_threads(true); }

TEST(what_is_no_fold_is_refused) {
  static const struct {
    const char *text, *says;
  } bad[] = {
      {"map [4,5]; %0 = in 0 f32 [5,1]; out 0 f32 [0,1] sum %0", "a fold is of a row kernel"},
      {"row [4,5]; %0 = in 0 f32 [5,1]; out 0 f32 [1,0] sum %0", "stride 0 on all dims but"},
      {"row [4,5]; %0 = in 0 f32 [5,1]; out 0 f32 [5,1] sum %0", "stride 0 on all dims but"},
      {"row [4,5]; %0 = in 0 f32 [5,1]; out 0 f32 [0,1] mean %0", "no reduction \"mean\""},
      {"row [4,5]; %0 = in 0 f32 [5,1]; out 0 i32 [0,1] sum %0", "add a cast"},
      {"row [4,5]; %0 = in 0 f32 [5,1]; out 0 f32 [0,1] %0", "several elements are stored"},
      {"row [1,2199023255552]; %0 = in 0 f32 [0,0]; out 0 f32 [0,1] sum %0", "2^40 columns"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    loop l;
    CHECK_FAILS(loop_parse(bad[i].text, strlen(bad[i].text), "kernel", &l), bad[i].says);
    err_clear();
  }
}
