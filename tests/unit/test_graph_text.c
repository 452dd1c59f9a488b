/* Graph texts that nobody should have written: each is refused with its line, and what is there. */
#include "test.h"

#include "base/str.h"
#include "ir/print.h"
#include "ops/ops.h"

static hp_status read_text(const char *text) {
  hp_graph *g;
  hp_status st = graph_parse_checked(text, strlen(text), "g", ops_verify_at, &g);
  if (!st) graph_free(g);
  return st;
}

#define X "%1:f32[2,3] = input {name=\"x\", dtype=f32, shape=[2,3]}\n"

static const struct {
  const char *text, *line, *what;
} bad[] = {
    /* characters and words */
    {"%1:f32[2] =", "g:1:12: ", "expected a name, found the end of the line"},
    {X "%2:f32[2,3", "g:2:11: ", "expected ']', found the end of the line"},
    {X "%2:f32[2,3] = neg %1 {", "g:2:22: ", "expected the end of the line, found \"{\""},
    {X "%2:f32[2,3] = cast %1", "g:2:22: ", "expected '{', found the end of the line"},
    {X "%2:f32[2,3] = negate %1", "g:2:21: ", "\"negate\" is not an op"},
    {X "%2:f33[2,3] = neg %1", "g:2:7: ", "\"f33\" is not a dtype"},
    {X "%2:f32[2,x] = neg %1", "g:2:10: ", "expected a whole number, found \"x\""},
    {X "%2 = neg %1", "g:2:4: ", "expected ':', found \"=\""},
    {X "%2:f32[2,3] = neg %1 @\"la", "g:2:26: ", "the string does not end on its line"},
    {X "%2:f32[2,3] = neg %1 @\"a\\q\"", "g:2:27: ", "unknown escape"},
    {X "%2:f32[2,3] = neg %1 blok=1", "g:2:28: ", "\"blok\" is not known here"},
    {X "%2:f32[2,3] = neg %1 phase=late", "g:2:32: ", "phase is forward"},
    {X "%2:f32[2,3] = neg %1 \x01", "g:2:22: ", "found the byte 0x01"},
    {X "%2:f32[2,3] = neg %1, ", "g:2:23: ", "expected '%', found the end of the line"},
    /* numbers */
    {X "%99999999999:f32[] = neg %1", "g:2:13: ", "99999999999 is out of range"},
    {X "%2:f32[99999999999999999999] = neg %1", "g:2:27: ", "does not fit in 64 bits"},
    {X "%2:f32[-1] = neg %1", "g:2:10: ", "-1 is out of range"},
    {X "%2:f32[2,3] = neg %1 block=65536", "g:2:33: ", "65536 is out of range"},
    {X "%2:f32[2,3] = neg %1 group=256", "g:2:31: ", "256 is out of range"},
    {"%1:f32[] = const {value=1.2.3, dtype=f32, shape=[]}", "g:1:30: ", "found \"1.2.3\""},
    /* shapes too large: by product, and behind a dim of 0 */
    {"%1:f32[3037000500,3037000500] = const {value=0, dtype=f32, shape=[]}",
     "g:1:30: ", "more elements than memory can hold"},
    {"%1:f32[4294967296,4294967296,0] = const {value=0, dtype=f32, shape=[]}",
     "g:1:32: ", "more elements than memory can hold"},
    {X "%2:f32[2,3] = broadcast %1 {shape=[4611686018427387904,2,3]}",
     "g:2: ", "more elements than memory can hold"},
    {X "%2:f32[1,1,1,1,1,1,1] = neg %1", "g:2:21: ", "more than 6 dims"},
    /* arity, order, names */
    {X "%2:f32[2,3] = add %1", "g:2:21: ", "add has 1 operands, expects 2 to 2"},
    {X "%2:f32[2,3], %3:f32[2,3] = neg %1", "g:2:34: ", "neg has 2 results, makes 1"},
    {X "neg %1", "g:2:7: ", "neg has 0 results, makes 1"},
    {X "%2:f32[2,3] = add %1, %3\n%3:f32[2,3] = neg %1",
     "g:2:25: ", "%3 is used before it is made"},
    {X "%2:f32[2,3] = neg %2", "g:2:21: ", "%2 is used before it is made"},
    {X "%1:f32[2,3] = neg %1", "g:2:3: ", "%1 is made twice"},
    {X "%2:f32[2], %2:f32[2] = cross_entropy %1, %1 {ignore=0}", "g:2:14: ", "%2 is made twice"},
    {X "output %1 {name=\"y\"}\noutput %1 {name=\"y\"}", "g:3: ", "output \"y\" is given twice"},
    {X "output %1 {name=\"\"}", "g:2: ", "output has no name"},
    {X "%2:f32[2] = input {name=\"x\", dtype=f32, shape=[2]}",
     "g:2: ", "input \"x\" is declared twice, with different types"},
    /* attributes */
    {X "%2:f32[3] = sum %1 {axes=[0]}", "g:2:29: ", "expected ',', found \"}\""},
    {X "%2:f32[3] = sum %1 {keep=0, axes=[0]}", "g:2:25: ", "expected the attribute axes of sum"},
    {X "%2:f32[3] = sum %1 {axes=[0,1,2,3,4,5,6,7,8,9,10,11,12], keep=0}", "g:2:", "12 entries"},
    {X "%2:f32[3] = sum %1 {axes=[2], keep=0}", "g:2: ", "axis 2 is not a dim of f32[2,3]"},
    {X "%2:f32[3] = sum %1 {axes=[0,0], keep=0}", "g:2: ", "axis 0 is not a dim"},
    {X "%2:f32[2,3] = cast %1 {dtype=f99}", "g:2:33: ", "\"f99\" is not a dtype"},
    {X "%2:f32[3,2] = transpose %1 {perm=[1,1]}",
     "g:2: ", "perm has 1 at 1, each dim from 0 to 1 once"},
    {X "%2:f32[1,3] = slice %1 {start=[0,0], stop=[3,3], step=[1,1]}",
     "g:2: ", "of dim 0 start is 0, stop 3, step 1"},
    {"%1:f32[] = const {value=1, dtype=f32, shape=[]}\n%2:f32[] = softmax %1",
     "g:2: ", "softmax: x is f32[], expected a last dim"},
    {X "%2:f32[2,3] = offload %1 {tier=3}", "g:2: ", "tier 3 is not one of those"},
    {X "%2:f32[2,3] = fetch %1 {tier=-1}", "g:2: ", "tier -1 is not one of those"},
    {X "%2:f32[2,3] = concat %1 {axis=-1}", "g:2: ", "axis -1 is not a dim"},
    {X "%2:f32[2,3] = einsum %1, %1 {eq=\"ab\", dtype=f32}", "g:2: ", "\"ab\""},
    /* types that are not those of the rule */
    {X "%2:f32[3,2] = neg %1",
     "g:2: ", "neg: result 0 is said to be f32[3,2], its rule gives f32[2,3]"},
    {X "%2:i32[2,3] = neg %1", "g:2: ", "said to be i32[2,3]"},
    {X "%2:f32[2,3] = add %1, %1\n\n# a comment\n%3:f32[2,3] = and %1, %2",
     "g:5: ", "and: operand 0 is f32[2,3] (input \"x\"), bool was expected"},
    {X "%2:f32[5] = reshape %1 {shape=[5]}", "g:2: ", "has 6 elements, the new shape 5"},
    {X "assign %1, %1", "g:2: ", "assign: operand 0 is not a param"},
};

TEST(a_bad_graph_text_is_refused_with_its_line) {
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    if (!read_text(bad[i].text)) test_fail(__FILE__, __LINE__, "accepted:\n%s", bad[i].text);
    const char *said = err_message();
    if (strncmp(said, bad[i].line, strlen(bad[i].line)) || !strstr(said, bad[i].what))
      test_fail(__FILE__, __LINE__, "%s\n  says \"%s\", want \"%s...%s\"", bad[i].text, said,
                bad[i].line, bad[i].what);
    err_clear();
  }
}

/* Every beginning of a good text is read, or refused with a line. */
TEST(a_graph_text_cut_anywhere_never_crashes) {
  static const char text[] = X
      "%2:f32[] = const {value=0.5, dtype=f32, shape=[]} @\"a \\\"b\\\"\" block=3 phase=backward\n"
      "%3:f32[2,3] = mul %1, %2 stage=1 group=2 # scaled\n"
      "%4:f32[3] = sum %3 {axes=[0], keep=0}\noutput %4 {name=\"y\"}\n";
  CHECK_OK(read_text(text));
  for (size_t n = 0; n < sizeof text; n++) {
    hp_graph *g;
    if (!graph_parse_checked(text, n, "g", ops_verify_at, &g)) graph_free(g);
    else CHECK(!strncmp(err_message(), "g:", 2));
    err_clear();
  }
}

/* Nothing nests in the text, so depth is length: brackets and commas without end are refused at the
 * first that does not belong. */
TEST(a_million_brackets_are_refused_at_the_first) {
  str s = {0};
  str_add(&s, X "%2:f32[3] = sum %1 {axes=");
  for (int i = 0; i < 1000000; i++) str_add_char(&s, '[');
  CHECK_FAILS(read_text(s.at), "g:2:27: expected a whole number, found \"[\"");
  str_clear(&s);
  for (int i = 0; i < 1000000; i++) str_add_char(&s, '{');
  CHECK_FAILS(read_text(s.at), "g:1:1: expected a name, found \"{\"");
  str_clear(&s);
  str_add(&s, X "%2:f32[2,3] = concat %1");
  for (int i = 0; i < 1000000; i++) str_add(&s, ", %1");
  CHECK_FAILS(read_text(s.at), "more than 255 operands");
  str_free(&s);
}

TEST(a_name_that_is_given_twice_is_refused_by_the_compiler_too) {
  hp_graph *g;
  hp_device *d;
  hp_program *p;
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 1, .interpret = true}, &d));
  CHECK_OK(hp_graph_create(&g));
  hp_tensor x = hp_input(g, "x", HP_F32, (hp_shape){1, {2}});
  hp_output(g, "y", hp_add(g, x, x));
  hp_output(g, "y", hp_mul(g, x, x));
  CHECK_OK(hp_graph_status(g));
  CHECK_FAILS(hp_compile(g, d, NULL, &p), "output \"y\" is given twice");
  hp_graph_free(g);
  CHECK_OK(hp_graph_create(&g));
  x = hp_param(g, "w", HP_F32, (hp_shape){1, {2}});
  hp_output(g, "y", hp_add(g, x, hp_param(g, "w", HP_F32, (hp_shape){1, {2}})));
  CHECK_OK(hp_compile(g, d, NULL, &p)); /* one tensor, twice */
  hp_program_free(p);
  hp_graph_free(g);
  hp_device_close(d);
}

/* --- long graphs -------------------------------------------------------------------------- */

enum { LONG = 100000 };

static void compile_long(const str *text, bool remat) {
  hp_graph *g;
  hp_device *d;
  hp_program *p;
  hp_compile_options o = {.remat = remat};
  CHECK_OK(hp_graph_parse(text->at, "long", &g));
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 1, .interpret = true}, &d));
  CHECK_OK(hp_compile(g, d, &o, &p));
  hp_program_free(p);
  hp_device_close(d);
  hp_graph_free(g);
}

TEST(a_chain_as_long_as_a_graph_can_be_is_recomputed) {
  str s = {0};
  str_add(&s, "%1:f32[2] = input {name=\"x\", dtype=f32, shape=[2]}\n");
  for (int i = 2; i < LONG; i++) str_printf(&s, "%%%d:f32[2] = exp %%%d block=1\n", i, i - 1);
  str_printf(&s, "%%%d:f32[2] = mul %%%d, %%%d block=1 phase=backward\n", LONG, LONG - 1, LONG / 2);
  str_printf(&s, "output %%%d {name=\"y\"}\n", LONG);
  compile_long(&s, true);
  str_free(&s);
}

/* The users of one value cannot be merged with it: the pass must not look at all of them again for
 * each. */
TEST(a_value_with_as_many_users_as_a_graph_can_have_is_fused) {
  str s = {0};
  str_add(&s, "%1:f32[2] = input {name=\"x\", dtype=f32, shape=[2]}\n"
              "%2:f32[2] = exp %1\n"
              "%3:f32[2] = pad %2 {lo=[0], hi=[0], value=1}\n");
  for (int i = 4; i < LONG; i++) str_printf(&s, "%%%d:f32[2] = add %%2, %%%d\n", i, i - 1);
  str_printf(&s, "output %%%d {name=\"y\"}\n", LONG - 1);
  compile_long(&s, false);
  str_free(&s);
}
