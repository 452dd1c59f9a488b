#include "test.h"

#include "codegen/loop.h"
#include "codegen/loop_expr.h"
#include "ir/op.h"

#include <stdlib.h>

static const char softmax_text[] = "row [6,50]\n"
                                   "%0 = in 0 f32 [50,1]\n"
                                   "%1 = max %0\n"
                                   "%2 = sub %0 %1\n"
                                   "%3 = exp %2\n"
                                   "%4 = sum %3\n"
                                   "%5 = div %3 %4\n"
                                   "out 0 bf16 [50,1] %5";

static char *print_of(const loop *l, const char *sep) {
  str s = {0};
  loop_print(l, sep, &s);
  char *text = str_take(&s);
  CHECK(text);
  return text;
}

static void check_round_trip(const char *text) {
  loop l = {0}, again = {0};
  CHECK_OK(loop_parse(text, strlen(text), "test", &l));
  CHECK_OK(loop_status(&l));
  char *lines = print_of(&l, "\n"), *one = print_of(&l, "; ");
  CHECK_STR(lines, text);
  CHECK_OK(loop_parse(one, strlen(one), "test", &again));
  char *third = print_of(&again, "\n");
  CHECK_STR(third, text);
  mem_free(lines);
  mem_free(one);
  mem_free(third);
  loop_free(&l);
  loop_free(&again);
}

TEST(a_loop_reads_back_as_it_was_printed) {
  check_round_trip(softmax_text);
  check_round_trip("map [3]\n%0 = const 0.1\nout 0 f32 [1] %0");
  check_round_trip(
      "map [2,3,4]\n%0 = in 2 i64 [0,-4,1] +8\n%1 = iota 1 -5\n%2 = int -9223372036854775808\n"
      "%3 = add %0 %1\n%4 = cast bf16 %3\n%5 = const -inf\n%6 = lt %4 %5\n"
      "%7 = select %6 %3 %2\nout 0 bool [12,4,1] +24 %6\nout 3 i32 [1,2,6] %7");
  check_round_trip("col [0,5]\n%0 = in 0 u8 [5,1]\n%1 = sum %0\n%2 = prod %0\n%3 = min %0\n"
                   "out 0 i64 [0,1] %1\nout 1 i64 [0,1] %2\nout 2 i64 [0,1] %3");
}

TEST(the_builder_makes_what_the_text_says) {
  loop l;
  loop_begin(&l, LOOP_ROW, &(hp_shape){2, {6, 50}});
  int64_t dense[] = {50, 1};
  int x = loop_in(&l, 0, HP_F32, dense, 0);
  int d = loop_op(&l, "sub", x, loop_reduce(&l, "max", x), -1);
  int e = loop_op(&l, "exp", d, -1, -1);
  loop_out(&l, 0, HP_BF16, dense, 0, loop_op(&l, "div", e, loop_reduce(&l, "sum", e), -1));
  CHECK_OK(loop_status(&l));
  char *text = print_of(&l, "\n");
  CHECK_STR(text, softmax_text);
  mem_free(text);

  hp_dtype type;
  int64_t low, high;
  CHECK_EQ(loop_inputs(&l), 1);
  CHECK_EQ(loop_outputs(&l), 1);
  CHECK(loop_extent(&l, true, 0, &type, &low, &high));
  CHECK_EQ(type, HP_BF16);
  CHECK_EQ(low, 0);
  CHECK_EQ(high, 299);
  CHECK(!loop_extent(&l, false, 1, &type, &low, &high));
  double flops, bytes;
  loop_cost(&l, &flops, &bytes);
  CHECK_EQ(flops, (1 + 1 + 24 + 1 + 4) * 300);
  CHECK_EQ(bytes, 300 * 6);
  loop_free(&l);
}

static void check_refused(const char *text, const char *part) {
  loop l = {0};
  CHECK_FAILS(loop_parse(text, strlen(text), "here", &l), part);
  CHECK(!l.value.at);
}

TEST(bad_loop_text_is_refused_with_its_place) {
  check_refused("", "here: loop, line 1: a kernel with at least one out line");
  check_refused("map [3]\n%0 = const 1", "at least one out line");
  check_refused("mop [3]", "map, row or col was expected, not \"mop [3]\"");
  check_refused("map 3", "'[' was expected");
  check_refused("map []", "a whole number was expected");
  check_refused("map [1,1,1,1,1,1,1]", "more than 6 numbers");
  check_refused("map [-1]", "must not be negative");
  check_refused("map [4294967296,4294967296]", "product at most 2^58");
  check_refused("map [0,9223372036854775807]", "product at most 2^58");
  check_refused("map [3]\n%1 = const 1", "line 2: %1: values are numbered in order, %0 was");
  check_refused("map [3]\n%0 = exp %0", "%0 does not exist yet");
  check_refused("map [3]\n%0 = const x", "a number was expected");
  check_refused("map [3]\n%0 = frob", "no elementwise op \"frob\"");
  check_refused("map [3]\n%0 = int 1\n%1 = exp %0", "takes (integer)");
  check_refused("map [3]\n%0 = const 1\n%1 = sum %0", "reductions need kind row or col");
  check_refused("map [3]\n%0 = in 0 f32 [1,1]", "2 strides, the kernel has 1 dims");
  check_refused("map [3]\n%0 = in 0 f64 [1]", "an element type was expected");
  check_refused("map [3]\n%0 = in 0 f32 [-1] +1", "below element 0");
  check_refused("map [3]\n%0 = in 0 f32 [1] -1", "is left over");
  check_refused("map [3]\n%0 = in 64 f32 [1]", "64 is not within 0 to 63");
  check_refused("map [3]\n%0 = in 0 f32 [9223372036854775807]", "a stride beyond");
  check_refused("map [3]\n%0 = in 0 f32 [99999999999999999999]", "a whole number was expected");
  check_refused("map [3]\n%0 = in 0 f32 [1]\n%1 = in 0 bf16 [1]", "read as f32 and as bf16");
  check_refused("map [3]\n%0 = const 1\nout 0 f32 [0] %0", "several elements are stored in one");
  check_refused("map [3,3]\n%0 = const 1\nout 0 f32 [1,1] %0", "several elements");
  check_refused("row [3,3]\n%0 = in 0 f32 [3,1]\nout 0 f32 [1,0] %0", "several elements");
  check_refused("map [3]\n%0 = const 1\nout 0 i32 [1] %0", "add a cast");
  check_refused("map [3]\n%0 = const 1\nout 0 f32 [1] %0 %0", "\"%0\" is left over");
  check_refused("map [3]\n%0 = iota 1", "the kernel has dims 0 to 0");
  check_refused("map [3]\n\x01\xff", "not \"??\"");
  str s = {0};
  str_add(&s, "map [3]");
  for (int i = 0; i < 300; i++) str_printf(&s, "\n%%%d = const 1", i);
  check_refused(s.at, "256 is not within 0 to 255");
  str_free(&s);
}

TEST(a_cut_loop_text_never_crashes) {
  for (size_t n = 0; n < strlen(softmax_text); n++) {
    loop l = {0};
    char *cut = malloc(n ? n : 1); /* of the exact size, so that sanitizers see a read past it */
    CHECK(cut);
    memcpy(cut, softmax_text, n);
    if (!loop_parse(cut, n, "cut", &l)) loop_free(&l);
    err_clear();
    free(cut);
  }
}

TEST(every_elementwise_row_of_the_op_table_has_a_loop_expression) {
  for (op_id op = 1; op < OP_COUNT; op++) {
    const op_row *row = &op_table[op];
    if (!(op_flags(op) & OPF_ELEMENTWISE) || op == OP_CAST) continue;
    uint8_t cls[3];
    bool found = false;
    for (int classes = 0; classes < 8; classes++) {
      for (int i = 0; i < 3; i++) cls[i] = classes >> i & 1 ? LOOP_INT : LOOP_FLOAT;
      found |= loop_expr_find(row->name, cls, row->in_max) >= 0;
    }
    if (!found) test_fail(__FILE__, __LINE__, "no loop expression for \"%s\"", row->name);
  }
}
