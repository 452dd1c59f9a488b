/* hyperparallel.h used wrongly: every mistake is a message, none a crash. */
#include "test.h"

#include "base/mem.h"

#include "hyperparallel.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

static const hp_shape three = {1, {3}}, too_many = {99, {1}}, less_than_none = {-1, {1}};

static hp_graph *new_graph(void) {
  hp_graph *g = NULL;
  CHECK_OK(hp_graph_create(&g));
  return g;
}

/* The graph is poisoned with a message that holds `part`; frees it. */
static void check_poisoned(hp_graph *g, const char *part) {
  CHECK_FAILS(hp_graph_status(g), part);
  CHECK_EQ(hp_add(g, 1, 1), HP_NONE);
  hp_graph_free(g);
}

TEST(api_refuses_shapes_beyond_six_dims) {
  hp_graph *g = new_graph();
  CHECK_EQ(hp_input(g, "x", HP_F32, too_many), HP_NONE);
  check_poisoned(g, "hp_input: s has 99 dims; expected 0 to 6");
  g = new_graph();
  CHECK_EQ(hp_param(g, "x", HP_F32, less_than_none), HP_NONE);
  check_poisoned(g, "hp_param: s has -1 dims");
  g = new_graph();
  CHECK_EQ(hp_reshape(g, hp_input(g, "x", HP_F32, three), too_many), HP_NONE);
  check_poisoned(g, "reshape");
  g = new_graph();
  CHECK_EQ(hp_normal(g, hp_const(g, HP_I64, 1), 0, HP_F32, too_many), HP_NONE);
  check_poisoned(g, "normal");
  g = new_graph();
  CHECK_EQ(hp_sum(g, hp_input(g, "x", HP_F32, three), (int64_t[50]){0}, 50, false), HP_NONE);
  check_poisoned(g, "sum");
}

TEST(api_refuses_tensors_that_do_not_exist) {
  hp_tensor d;
  for (hp_tensor x = 0; x < 70000; x += 69999) {
    hp_graph *g = new_graph();
    CHECK_EQ(hp_scale(g, x, 2), HP_NONE);
    check_poisoned(g, "not a tensor");
    g = new_graph();
    CHECK_EQ(hp_cast(g, x, HP_BF16), HP_NONE);
    check_poisoned(g, "not a tensor");
    g = new_graph();
    CHECK_EQ(hp_transpose(g, x, (int64_t[]){0}), HP_NONE);
    check_poisoned(g, "not a tensor");
    g = new_graph();
    CHECK_EQ(hp_slice(g, x, 0, 0, 1), HP_NONE);
    check_poisoned(g, "not a tensor");
    g = new_graph();
    CHECK_EQ(hp_attention(g, x, x, x, NULL), HP_NONE);
    check_poisoned(g, "not a tensor");
    g = new_graph();
    CHECK_FAILS(hp_grad(g, x, NULL, 0, NULL), "not a tensor");
    hp_graph_free(g);
    g = new_graph();
    CHECK_FAILS(hp_grad(g, hp_const(g, HP_F32, 1), &x, 1, &d), "not a tensor");
    hp_graph_free(g);
  }
}

TEST(api_refuses_axes_names_and_counts_that_make_no_sense) {
  hp_graph *g = new_graph();
  CHECK_EQ(hp_slice(g, hp_input(g, "x", HP_F32, three), 1, 0, 1), HP_NONE);
  check_poisoned(g, "; axis is 1, 0 to 0 was expected");
  g = new_graph();
  CHECK_EQ(hp_input(g, NULL, HP_F32, three), HP_NONE);
  check_poisoned(g, "hp_input: name is NULL");
  g = new_graph();
  hp_output(g, "", hp_input(g, "x", HP_F32, three));
  check_poisoned(g, "hp_output: the name is missing");
  g = new_graph();
  hp_tensor many[300];
  for (int i = 0; i < 300; i++) many[i] = hp_const(g, HP_F32, i);
  CHECK_EQ(hp_concat(g, many, 300, 0), HP_NONE);
  check_poisoned(g, "hp_concat: n is 300; expected 1 to 255");
  g = new_graph();
  CHECK_EQ(hp_map(g, "matmul", 1, 0, 0), HP_NONE);
  check_poisoned(g, "\"matmul\" is not an elementwise op");
  g = new_graph();
  hp_block(g, -1);
  check_poisoned(g, "hp_block: block is -1; expected 1 to 65535");
  g = new_graph();
  hp_stage(g, 65535);
  check_poisoned(g, "hp_stage: stage is 65535; expected 0 to 65534");
  g = new_graph();
  CHECK_EQ(hp_cast(g, hp_input(g, "x", HP_F32, three), (hp_dtype)99), HP_NONE);
  check_poisoned(g, "hp_cast: t is 99; expected a dtype");
  g = new_graph();
  CHECK_FAILS(hp_grad(g, hp_const(g, HP_F32, 1), NULL, 1 << 30, NULL), "n is 1073741824");
  hp_graph_free(g);
}

/* Each graph's ids are its own. */
TEST(api_refuses_a_tensor_of_another_graph) {
  hp_graph *g = new_graph(), *other = new_graph();
  hp_tensor x = hp_input(g, "x", HP_F32, three), y = hp_input(other, "y", HP_F32, three);
  hp_tensor all[2] = {x, y}, d;
  CHECK(x != y);
  CHECK_EQ(hp_shape_of(g, y).rank, 0);
  CHECK_STR(hp_last_error(), "hp_shape_of: x is not a tensor of this graph, but of another one");
  CHECK_EQ(hp_add(g, x, y), HP_NONE);
  check_poisoned(g, "hp_add: b is not a tensor of this graph, but of another one");
  g = new_graph();
  all[0] = hp_input(g, "x", HP_F32, three);
  CHECK_EQ(hp_concat(g, all, 2, 0), HP_NONE);
  check_poisoned(g, "hp_concat: x[1] is not a tensor of this graph, but of another one");
  g = new_graph();
  CHECK_FAILS(hp_grad(g, hp_sum_sq(g, hp_param(g, "p", HP_F32, three)), &y, 1, &d), "another one");
  hp_graph_free(g);
  g = new_graph();
  x = hp_input(g, "q", HP_F32, (hp_shape){4, {1, 1, 1, 1}});
  CHECK_EQ(hp_attention(g, x, x, x, &(hp_attention_options){.span = y}), HP_NONE);
  check_poisoned(g, "hp_attention: o->span is not a tensor of this graph, but of another one");
  hp_graph_free(other);
}

/* No two graphs that are alive share ids, also where a model keeps many for long. */
TEST(a_thousand_graphs_have_ids_of_their_own) {
  enum { GRAPHS = 1000 };
  static hp_tensor id[GRAPHS];
  for (int i = 0; i < GRAPHS; i++) {
    hp_graph *g = new_graph();
    id[i] = hp_const(g, HP_F32, 1);
    for (int k = 0; k < i; k++) CHECK(id[k] != id[i]);
    hp_graph_free(g);
  }
}

TEST(api_refuses_numbers_that_an_integer_tensor_cannot_hold) {
  static const struct {
    hp_dtype t;
    double x;
  } bad[] = {{HP_I32, 0.5}, {HP_I64, 1e-9}, {HP_I32, 0x1p31}, {HP_U8, 256},
             {HP_U8, -1},   {HP_BOOL, 2},   {HP_I64, 0x1p63}, {HP_I32, 1.0 / 0.0}};
  static const double good[] = {-3, 0, 2147483647, -2147483648.0};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    hp_graph *g = new_graph();
    CHECK_EQ(hp_scale(g, hp_input(g, "x", bad[i].t, three), bad[i].x), HP_NONE);
    check_poisoned(g, "hp_scale: factor is");
    g = new_graph();
    CHECK_EQ(hp_const(g, bad[i].t, bad[i].x), HP_NONE);
    check_poisoned(g, "hp_const: value is");
  }
  hp_graph *g = new_graph();
  for (int i = 0; i < 4; i++)
    CHECK(hp_scale(g, hp_input(g, "x", HP_I32, three), good[i]) != HP_NONE);
  CHECK_OK(hp_graph_status(g));
  hp_graph_free(g);
}

TEST(api_refuses_numbers_that_would_be_rounded_or_infinite) {
  static const struct {
    hp_dtype t;
    double x;
  } bad[] = {{HP_F16, 70000}, {HP_F16, -65505}, {HP_BF16, 3.4e38}, {HP_F32, 1e300}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    hp_graph *g = new_graph();
    CHECK_EQ(hp_const(g, bad[i].t, bad[i].x), HP_NONE);
    check_poisoned(g, "beyond the range of");
  }
  static const double pad[] = {0.5, -1e30};
  for (int i = 0; i < 2; i++) {
    hp_graph *g = new_graph();
    hp_pad(g, hp_input(g, "x", HP_I32, three), (int64_t[]){1}, (int64_t[]){1}, pad[i]);
    check_poisoned(g, "hp_pad: value is");
  }
  static const struct {
    hp_dtype t;
    int64_t most;
  } iota[] = {{HP_U8, 256},   {HP_BOOL, 2},       {HP_BF16, 257},
              {HP_F16, 2049}, {HP_F32, 16777217}, {HP_I32, 2147483648}};
  for (size_t i = 0; i < sizeof iota / sizeof *iota; i++) {
    hp_graph *g = new_graph();
    CHECK(hp_iota(g, iota[i].t, (hp_shape){1, {iota[i].most}}, 0) != HP_NONE);
    CHECK_EQ(hp_iota(g, iota[i].t, (hp_shape){1, {iota[i].most + 1}}, 0), HP_NONE);
    check_poisoned(g, "hp_iota: dim 0 of s is");
  }
  hp_graph *g = new_graph();
  CHECK(hp_const(g, HP_F16, 65504) && hp_const(g, HP_F32, 1.0 / 0.0) &&
        hp_const(g, HP_BF16, -1.0 / 0.0) && hp_const(g, HP_F16, 1e-30) &&
        hp_pad(g, hp_input(g, "x", HP_F32, three), (int64_t[]){1}, (int64_t[]){1}, -1.0 / 0.0));
  CHECK_OK(hp_graph_status(g));
  hp_graph_free(g);
}

TEST(hp_map_refuses_operands_that_the_op_does_not_have) {
  hp_graph *g = new_graph();
  hp_tensor x = hp_input(g, "x", HP_F32, three);
  CHECK_EQ(hp_map(g, "relu", x, x, HP_NONE), HP_NONE);
  check_poisoned(g, "hp_map (relu): has 1 operand; expected HP_NONE for b");
  g = new_graph();
  x = hp_input(g, "x", HP_F32, three);
  CHECK_EQ(hp_map(g, "max", x, x, x), HP_NONE);
  check_poisoned(g, "hp_map (max): has 2 operands; expected HP_NONE for c");
  g = new_graph();
  x = hp_input(g, "x", HP_F32, three);
  CHECK_EQ(hp_map(g, "max", x, HP_NONE, HP_NONE), HP_NONE);
  check_poisoned(g, "hp_map: b is HP_NONE");
}

/* The words of the header: the function, its arguments, the names of inputs; and the place. */
TEST(messages_of_builders_speak_of_what_was_called) {
  hp_graph *g = new_graph();
  hp_at(g, "layers.3");
  hp_tensor x = hp_input(g, "pixels", HP_F32, three);
  hp_add(g, x, hp_param(g, "bias", HP_F32, (hp_shape){1, {4}}));
  check_poisoned(g, "hp_add \"layers.3\": a is f32[3] (input \"pixels\"), b is f32[4] (param "
                    "\"bias\"); they do not broadcast: 3 != 4 in dim 1 from the right");
  g = new_graph();
  hp_tensor all[2] = {hp_input(g, "u", HP_F32, three), hp_input(g, "v", HP_I32, three)};
  hp_concat(g, all, 2, 0);
  check_poisoned(g, "hp_concat: x[1] is i32[3] (input \"v\"), x[0] is f32[3] (input \"u\")");
  g = new_graph();
  hp_map(g, "tanh", hp_input(g, "labels", HP_I32, three), HP_NONE, HP_NONE);
  check_poisoned(g, "hp_map (tanh): a is i32[3] (input \"labels\"), a float dtype was expected");
}

/* --- gradients ------------------------------------------------------------------------------ */

static const hp_shape two_three = {2, {2, 3}};

/* The gradient of sum of y, made of param w, is refused with `part`. */
static void check_no_grad(hp_graph *g, hp_tensor w, hp_tensor y, const char *part) {
  hp_tensor d = 77;
  CHECK_OK(hp_graph_status(g));
  CHECK_FAILS(hp_grad(g, hp_sum_sq(g, y), &w, 1, &d), part);
  CHECK_EQ(d, 77);
  hp_graph_free(g);
}

TEST(a_gradient_that_only_argmax_or_a_comparison_could_give_is_refused) {
  hp_graph *g = new_graph();
  hp_tensor w = hp_param(g, "w", HP_F32, two_three), index;
  check_no_grad(g, w, hp_cast(g, hp_argmax(g, w), HP_F32),
                "hp_grad (argmax): no gradient of it is "
                "known, and only through it does the loss depend on wrt[0] (\"w\")");
  g = new_graph();
  w = hp_param(g, "w", HP_F32, two_three);
  hp_tensor x = hp_input(g, "x", HP_F32, two_three);
  hp_tensor above = hp_map(g, "gt", w, x, HP_NONE);
  check_no_grad(g, w, hp_map(g, "select", above, x, hp_scale(g, x, 2)), "hp_grad (gt)");
  g = new_graph();
  w = hp_param(g, "w", HP_F32, two_three);
  check_no_grad(g, w, hp_cast(g, hp_cast(g, w, HP_I32), HP_F32), "hp_grad (cast)");
  g = new_graph();
  w = hp_param(g, "w", HP_F32, two_three);
  (void)hp_topk(g, w, 1, &index);
  check_no_grad(g, w, hp_cast(g, index, HP_F32), "hp_grad (topk)");
  g = new_graph();
  hp_tensor i = hp_input(g, "i", HP_I32, two_three);
  check_no_grad(g, i, hp_cast(g, i, HP_F32),
                "wrt[0] is i32[2,3] (input \"i\"); only tensors of a float dtype");
}

/* Where a gradient comes by another way, or the loss does not depend on the tensor, all is well. */
TEST(a_gradient_beside_argmax_is_given) {
  hp_graph *g = new_graph();
  hp_tensor w = hp_param(g, "w", HP_F32, two_three), other = hp_param(g, "u", HP_F32, three);
  hp_tensor wrt[2] = {w, other}, d[2], index;
  hp_tensor best = hp_topk(g, w, 2, &index);
  hp_tensor y = hp_mul(g, hp_gather(g, w, index), best);
  CHECK_OK(hp_grad(g, hp_sum_sq(g, y), wrt, 2, d));
  CHECK(d[0] && d[1]);
  hp_graph_free(g);
}

/* --- the last error --------------------------------------------------------------------------- */

TEST(the_last_error_is_that_of_the_last_call) {
  hp_graph *g = new_graph(), *bad = new_graph();
  hp_device *d = NULL;
  CHECK_STR(hp_last_error(), "");
  CHECK_EQ(hp_add(bad, 0, 0), HP_NONE);
  CHECK_STR(hp_last_error(), "hp_add: a is HP_NONE, which is not a tensor");
  CHECK_EQ(hp_device_open(&(hp_device_options){.threads = -3}, &d), HP_ERR_ARG);
  CHECK_STR(hp_last_error(), "hp_device_open: threads is -3; expected 1 or more, or 0 for all");
  CHECK_EQ(strncmp(hp_error_trace(), hp_last_error(), strlen(hp_last_error())), 0);
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 1, .interpret = true}, &d));
  CHECK_STR(hp_last_error(), "");
  CHECK_STR(hp_error_trace(), "");
  CHECK_EQ(hp_write(d, "none", "", 0), HP_ERR_ARG);
  CHECK_STR(hp_last_error(), "the device has no param \"none\"");
  CHECK_EQ(hp_param_count(d), 0); /* any other call */
  CHECK_STR(hp_last_error(), "");
  CHECK_EQ(hp_graph_status(bad), HP_ERR_ARG);
  CHECK_STR(hp_last_error(), "hp_add: a is HP_NONE, which is not a tensor");
  CHECK(hp_input(g, "x", HP_F32, three) != HP_NONE);
  CHECK_STR(hp_last_error(), "");
  CHECK_EQ(hp_mul(bad, 0, 0), HP_NONE); /* poisoned: the failure is still the first */
  CHECK_STR(hp_last_error(), "hp_add: a is HP_NONE, which is not a tensor");
  hp_graph_free(bad);
  hp_graph_free(g);
  hp_device_close(d); /* what frees leaves it alone */
  CHECK_STR(hp_last_error(), "hp_add: a is HP_NONE, which is not a tensor");
  err_clear();
}

/* Code of ours that is about to return its own failure may call the API to clean up, or to tell
 * others. */
TEST(a_call_leaves_the_failure_of_its_caller_alone) {
  int64_t max;
  (void)err_set(HP_ERR_IO, "here", 1, "disk full");
  CHECK_OK(hp_world_max(1, &max));
  CHECK_STR(err_message(), "disk full");
  CHECK_EQ(hp_world_max(1, NULL), HP_ERR_ARG);
  CHECK_STR(hp_last_error(), "hp_world_max: max is NULL; expected an address");
  CHECK_STR(err_message(), "disk full");
  CHECK(strstr(err_trace(), "then hp_world_max"));
  err_clear();
}

/* --- devices -----------------------------------------------------------------------------------
 */

TEST(a_rule_of_the_wrong_rank_is_refused_with_and_without_partial_sums) {
  const hp_layout_rule rule[] = {{"x", "(dp,None,None)"}};
  for (int whole = 0; whole < 2; whole++) {
    hp_device *d = NULL;
    hp_program *p = NULL;
    hp_program_stats stats;
    char *text;
    hp_graph *g = new_graph();
    hp_device_options o = {.mesh = "(2)(dp)",
                           .layouts = rule,
                           .n_layouts = 1,
                           .threads = 2,
                           .interpret = true,
                           .no_partial_sums = whole};
    hp_output(g, "y", hp_sum_sq(g, hp_input(g, "x", HP_F32, two_three)));
    CHECK_OK(hp_device_open(&o, &d));
    CHECK_FAILS(hp_compile(g, d, NULL, &p), "\"x\"");
    CHECK_FAILS(hp_plan(g, d, NULL, &stats), "\"x\"");
    CHECK_FAILS(hp_plan_explain(g, d, NULL, "layouts", &text), "\"x\"");
    hp_graph_free(g);
    hp_device_close(d);
  }
}

/* What compiling y = x on this mesh says on stderr, with this rule: of the options, or of a call.
 */
static const char *said_on(const char *on, const char *pattern, bool call, bool may_miss) {
  static char words[1024];
  const hp_layout_rule rule[] = {{pattern, "(dp)"}};
  hp_device_options o = {.mesh = on,
                         .layouts = rule,
                         .n_layouts = call ? 0 : 1,
                         .may_miss = may_miss,
                         .threads = 2,
                         .interpret = true};
  FILE *f = tmpfile();
  int old = dup(2);
  CHECK(f && old >= 0 && dup2(fileno(f), 2) == 2);
  hp_graph *g = new_graph();
  hp_device *d = NULL;
  hp_program *p = NULL, *again = NULL;
  hp_tensor x = hp_input(g, "tokens", HP_F32, three);
  hp_output(g, "y", hp_mul(g, x, hp_param(g, "blk.0.q_proj.weight", HP_F32, three)));
  CHECK_OK(hp_device_open(&o, &d));
  if (call) CHECK_OK(hp_device_layout(d, pattern, "(dp)", false));
  CHECK_OK(hp_compile(g, d, NULL, &p));
  CHECK_OK(hp_compile(g, d, NULL, &again));
  hp_program_free(p);
  hp_program_free(again);
  hp_graph_free(g);
  hp_device_close(d);
  CHECK_EQ(dup2(old, 2), 2);
  rewind(f);
  words[fread(words, 1, sizeof words - 1, f)] = 0;
  fclose(f);
  return words;
}
static const char *said(const char *pattern, bool call, bool may_miss) {
  return said_on("(2)(dp)", pattern, call, may_miss);
}
static const char *said_of(const char *pattern) { return said(pattern, false, false); }

TEST(a_layout_rule_that_matches_nothing_is_told_once) {
  CHECK_STR(said_of("tokens"), "");
  CHECK_STR(said_of("*.q_proj.weight"), "");
  CHECK_STR(
      said_of("*.q_prj.weight"),
      "warning: layout of \"*.q_prj.weight\": no input, param or annotated tensor of the program "
      "has such a name, so that it cuts nothing; did you mean \"blk.0.q_proj.weight\"?\n");
  CHECK_STR(said_of("router"),
            "warning: layout of \"router\": no input, param or annotated tensor of "
            "the program has such a name, so that it cuts nothing\n");
}

/* One that matches a name of any stage is used. */
TEST(a_layout_rule_that_matches_nothing_of_a_pipeline_is_told_once) {
  static const char *const on[] = {"(2)(dp);(2)(dp)", "(1)(dp);(2)(dp)"};
  for (int i = 0; i < 2; i++) {
    CHECK_STR(said_on(on[i], "tokens", true, false), "");
    CHECK_STR(
        said_on(on[i], "router", true, false),
        "warning: layout of \"router\": no input, param or annotated tensor of the program has "
        "such a name, so that it cuts nothing\n");
    CHECK(strstr(said_on(on[i], "*.q_prj.weight", false, false), "did you mean \"blk.0.q_proj"));
    CHECK_STR(said_on(on[i], "router", true, true), "");
  }
}

TEST(a_layout_rule_of_a_call_that_matches_nothing_is_told_unless_it_may_miss) {
  CHECK_STR(said("*.q_proj.weight", true, false), "");
  CHECK(strstr(said("router", true, false), "layout of \"router\": no input"));
  for (int call = 0; call < 2; call++) CHECK_STR(said("router", call, true), "");
}

TEST(a_kernel_that_fails_names_its_input_and_the_place) {
  hp_graph *g = new_graph();
  hp_device *d = NULL;
  hp_program *p = NULL;
  float x[6] = {0}, loss[2];
  int32_t labels[2] = {1, 7};
  hp_tensor logits = hp_input(g, "scores", HP_F32, two_three);
  hp_at(g, "loss");
  hp_tensor y =
      hp_cross_entropy(g, logits, hp_input(g, "classes", HP_I32, (hp_shape){1, {2}}), -100);
  hp_output(g, "loss", y);
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 1, .interpret = true}, &d));
  CHECK_OK(hp_compile(g, d, NULL, &p));
  hp_io io[] = {{"scores", x, sizeof x}, {"classes", labels, sizeof labels}, {"loss", loss, 8}};
  CHECK_EQ(hp_run(p, io, 3), HP_ERR_INPUT);
  CHECK_STR(hp_last_error(), "cross_entropy \"loss\": cross-entropy: label 7 of row 1 is not one "
                             "of 3 classes; expected 0..2, or -100 to leave "
                             "the row out (input \"scores\", input \"classes\")");
  labels[1] = 2;
  CHECK_EQ(hp_run(p, io, 3), HP_OK);
  CHECK_STR(hp_last_error(), "");
  err_clear();
  hp_program_free(p);
  hp_graph_free(g);
  hp_device_close(d);
}

TEST(api_refuses_counts_that_make_no_sense) {
  hp_device *d = NULL;
  hp_layout *l = NULL;
  const char *name[] = {"dp"};
  const int64_t size[] = {2};
  CHECK_FAILS(hp_device_open(&(hp_device_options){.n_layouts = -1}, &d), "n_layouts is -1");
  CHECK_FAILS(hp_device_open(&(hp_device_options){.n_layouts = 1}, &d), "layouts is NULL");
  CHECK_FAILS(hp_layout_create(size, name, 1 << 30, NULL, 0, &l), "1073741824");
  CHECK_FAILS(hp_layout_create(size, name, -1, NULL, 0, &l), "-1");
  CHECK_FAILS(hp_layout_create(size, name, 1, size, INT64_MAX, &l), "rank");
  CHECK_OK(hp_layout_create(size, name, 1, NULL, 0, &l));
  hp_layout *called;
  CHECK_FAILS(hp_layout_place(l, name, 1 << 30, 2, &called), "1073741824 placements");
  hp_layout_free(l);
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 1, .interpret = true}, &d));
  CHECK_OK(hp_param_create(d, "w", HP_F32, three));
  for (int n = -1; n < 1 << 30; n += 1 << 29) {
    CHECK_FAILS(hp_params_save(d, "nowhere", name, n ? n : 2), "the device has 1 params");
    CHECK_FAILS(hp_params_load(d, "nowhere", name, n ? n : 2), "the device has 1 params");
  }
  const char *const none[] = {NULL};
  CHECK_FAILS(hp_params_save(d, "nowhere", none, 1), "name[0] is NULL");
  hp_device_close(d);
}

/* y = x + x over three numbers. */
static hp_program *new_program(hp_device *d) {
  hp_program *p = NULL;
  hp_graph *g = new_graph();
  hp_tensor x = hp_input(g, "x", HP_F32, three);
  hp_output(g, "y", hp_add(g, x, x));
  CHECK_OK(hp_compile(g, d, NULL, &p));
  hp_graph_free(g);
  return p;
}

TEST(api_refuses_io_that_does_not_fit) {
  hp_device *d = NULL;
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 1, .interpret = true}, &d));
  hp_program *p = new_program(d);
  float x[3] = {1, 2, 3}, y[3];
  CHECK_FAILS(hp_run(p, NULL, 0), "input \"x\" of the program is not given");
  CHECK_FAILS(hp_run(p, (hp_io[]){{"z", x, sizeof x}}, 1), "no input or output \"z\"");
  CHECK_FAILS(hp_run(p, (hp_io[]){{"x", x, 8}}, 1), "has 12 bytes");
  CHECK_FAILS(hp_run(p, (hp_io[]){{"x", NULL, sizeof x}}, 1), "NULL");
  CHECK_FAILS(hp_run(p, (hp_io[]){{NULL, x, sizeof x}}, 1), "NULL");
  CHECK_FAILS(hp_run(p, (hp_io[]){{"x", x, sizeof x}}, -1), "n is -1");
  CHECK_FAILS(hp_run(p, (hp_io[]){{"x", x, sizeof x}}, 1 << 30), "the program has 2");
  uint64_t live[3] = {7, 7, 7};
  hp_program_timeline(p, live, -1);
  CHECK_STR(hp_last_error(), "hp_program_timeline: n is -1; expected 0 or more");
  hp_program_timeline(p, live, 0);
  CHECK_EQ(live[0], 7);
  CHECK_OK(hp_run(p, (hp_io[]){{"x", x, sizeof x}, {"y", y, sizeof y}}, 2));
  CHECK_EQ(y[2], 6);
  hp_program_free(p);
  hp_device_close(d);
}

/* On one device as on several: which of the two would be taken is nobody's to know. */
TEST(an_input_or_output_that_is_given_twice_is_refused) {
  static const char *const mesh[] = {NULL, "(2)(dp)"};
  for (int i = 0; i < 2; i++) {
    hp_device *d = NULL;
    CHECK_OK(
        hp_device_open(&(hp_device_options){.threads = 1, .interpret = true, .mesh = mesh[i]}, &d));
    hp_program *p = new_program(d);
    float x[3] = {1, 2, 3}, other[3] = {4, 5, 6}, y[3] = {7, 8, 9};
    CHECK_FAILS(hp_run(p, (hp_io[]){{"x", x, sizeof x}, {"x", other, sizeof other}}, 2),
                "io 0 and io 1 of the run are both \"x\"; give it once");
    CHECK_FAILS(hp_run(p, (hp_io[]){{"y", y, sizeof y}, {"y", other, sizeof other}}, 2),
                "both \"y\"");
    CHECK_FAILS(hp_run(p, (hp_io[]){{NULL, x, sizeof x}}, 1),
                "io 0 of the run: its name or data is");
    CHECK_NEAR(y[0], 7, 0);
    hp_program_free(p);
    hp_device_close(d);
  }
}

/* A run would write the result where the caller has the input. */
TEST(an_output_with_the_name_of_an_input_is_refused) {
  for (int late = 0; late < 2; late++) {
    hp_device *d = NULL;
    hp_program *p = NULL;
    hp_graph *g = new_graph();
    CHECK_OK(hp_device_open(&(hp_device_options){.threads = 1, .interpret = true}, &d));
    hp_tensor x = hp_input(g, late ? "y" : "x", HP_F32, three);
    hp_output(g, "x", hp_add(g, x, x));
    if (late) (void)hp_input(g, "x", HP_F32, three);
    CHECK_FAILS(hp_compile(g, d, NULL, &p), "output \"x\" has the name of an input");
    hp_graph_free(g);
    hp_device_close(d);
  }
}

TEST(options_of_an_optimizer_are_in_pytorchs_ranges) {
  static const struct {
    hp_adamw_options o;
    const char *part;
  } adamw[] = {{{1, 0.9, 1e-8, 0}, "hp_adamw: beta1 is 1; 0 or more and below 1 was expected"},
               {{-0.1, 0.9, 1e-8, 0}, "hp_adamw: beta1 is -0.1"},
               {{0.9, 2, 1e-8, 0}, "hp_adamw: beta2 is 2"},
               {{0.9, NAN, 1e-8, 0}, "hp_adamw: beta2 is nan"},
               {{0.9, 0.9, -1, 0}, "hp_adamw: eps is -1; a finite number of 0 or more"},
               {{0.9, 0.9, 0, INFINITY}, "hp_adamw: decay is inf"},
               {{0, 0, 0, 0}, NULL}};
  for (size_t i = 0; i < sizeof adamw / sizeof *adamw; i++) {
    hp_graph *g = new_graph();
    hp_tensor p = hp_param(g, "p", HP_F32, three), m = hp_param(g, "m", HP_F32, three);
    hp_tensor v = hp_param(g, "v", HP_F32, three), one = hp_const(g, HP_F32, 1);
    hp_adamw(g, p, p, m, v, one, one, one, one, &adamw[i].o);
    if (adamw[i].part) CHECK_FAILS(hp_graph_status(g), adamw[i].part);
    else CHECK_OK(hp_graph_status(g));
    hp_graph_free(g);
  }
  for (int i = 0; i < 3; i++) {
    hp_graph *g = new_graph();
    hp_tensor p = hp_param(g, "p", HP_F32, three), one = hp_const(g, HP_F32, 1);
    hp_sgd(g, p, p, hp_param(g, "m", HP_F32, three), one, one, i == 0 ? -1 : 0, i == 1 ? NAN : 0);
    if (i == 2) CHECK_OK(hp_graph_status(g));
    else CHECK_FAILS(hp_graph_status(g), i ? "hp_sgd: decay is nan" : "hp_sgd: momentum is -1");
    hp_graph_free(g);
  }
}

TEST(messages_name_the_argument_that_is_wrong) {
  hp_device *d = NULL;
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 1, .interpret = true}, &d));
  CHECK_FAILS(hp_param_create(d, "w", (hp_dtype)77, three),
              "param \"w\": t is 77; expected a dtype");
  CHECK_FAILS(hp_param_create(d, "w", HP_F32, (hp_shape){9, {1}}), "param \"w\": s has 9 dims");
  hp_device_close(d);
  const hp_layout_rule rule[] = {{"x", "(dp)"}, {NULL, "(dp)"}};
  hp_device_options o = {.mesh = "(2)(dp)", .layouts = rule, .n_layouts = 2};
  CHECK_FAILS(hp_device_open(&o, &d), "pattern of layout rule 1 is NULL; expected text");
  for (int i = 0; i < 2; i++) {
    hp_graph *g = new_graph();
    hp_tensor x = hp_input(g, "x", HP_F32, three), of = hp_input(g, "i", HP_I32, three), grad;
    hp_tensor sum = hp_sum(g, x, (int64_t[]){0}, 1, false);
    CHECK_FAILS(hp_grad(g, i ? sum : x, &of, 1, &grad),
                i ? "wrt[0] is i32[3] (input \"i\"); only tensors of a float dtype"
                  : "the loss is f32[3] (input \"x\"); one element of a float dtype was expected");
    hp_graph_free(g);
  }
}

/* A fused node as the dump of a compilation has it, with another loop body. */
static void check_fused(const char *body, const char *part) {
  char text[512];
  hp_graph *g = NULL;
  hp_device *d = NULL;
  hp_program *p = NULL;
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 1, .interpret = true}, &d));
  snprintf(text, sizeof text,
           "%%1:f32[3] = input {name=\"x\", dtype=f32, shape=[3]}\n"
           "%%2:f32[3] = fused %%1 {body=\"%s\"}\n"
           "output %%2 {name=\"y\"}\n",
           body);
  CHECK_OK(hp_graph_parse(text, "here", &g));
  hp_status st = hp_compile(g, d, NULL, &p);
  if (part) CHECK_FAILS(st, part);
  else CHECK_OK(st);
  hp_program_free(p);
  hp_graph_free(g);
  hp_device_close(d);
}

TEST(api_refuses_loops_that_reach_out_of_their_tensors) {
  check_fused("map [3]; %0 = in 0 f32 [1]; out 0 f32 [1] %0", NULL);
  check_fused("map [4]; %0 = in 0 f32 [1]; out 0 f32 [1] %0", "touches elements 0 to 3");
  check_fused("map [3]; %0 = in 0 f32 [1] +1; out 0 f32 [1] %0", "touches elements 1 to 3");
  check_fused("map [3]; %0 = in 0 f32 [1]; out 0 f32 [1000000] %0", "out 0 touches");
  check_fused("map [3]; %0 = in 0 bf16 [1]; out 0 f32 [1] %0", "its tensor is f32");
  check_fused("map [3]; %0 = in 1 f32 [1]; out 0 f32 [1] %0", "uses 2 inputs");
  check_fused("nonsense", "loop kernel");
}

TEST(api_refuses_tensors_that_the_machine_has_no_memory_for) {
  hp_device *d = NULL;
  hp_graph *g = NULL;
  hp_program *p = NULL;
  hp_shape half = {1, {(int64_t)(mem_physical() / 8) * 5 / 4}}; /* f32: five eighths of it */
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 1, .interpret = true}, &d));
  CHECK_OK(hp_param_create(d, "a", HP_F32, half));
  CHECK_FAILS(hp_param_create(d, "b", HP_F32, half), "the machine has");
  CHECK_OK(hp_graph_create(&g));
  hp_output(g, "y", hp_add(g, hp_input(g, "x", HP_F32, half), hp_const(g, HP_F32, 1)));
  CHECK_FAILS(hp_compile(g, d, NULL, &p), "the machine has");
  hp_graph_free(g);
  hp_device_close(d);
}

/* In the words of this header: the command line adds its own. */
static void check_words_of_header(void) {
  static const char *const of_command[] = {"--", "cutoff_len", "recompute:", "batch"};
  for (size_t i = 0; i < sizeof of_command / sizeof *of_command; i++)
    if (strstr(hp_last_error(), of_command[i]))
      test_fail(__FILE__, __LINE__, "\"%s\" is in \"%s\"", of_command[i], hp_last_error());
}

/* y = relu(x), of 4 MiB. */
static hp_graph *large_graph(void) {
  hp_graph *g = new_graph();
  hp_tensor x = hp_input(g, "x", HP_F32, (hp_shape){1, {1 << 20}});
  hp_output(g, "y", hp_map(g, "relu", x, HP_NONE, HP_NONE));
  return g;
}

TEST(messages_about_memory_and_threads_speak_of_the_options_of_the_header) {
  hp_device *d = NULL;
  hp_program *p = NULL;
  CHECK_FAILS(hp_device_open(&(hp_device_options){.threads = 1 << 20}, &d),
              "threads is 1048576; expected 1 to ");
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 1, .interpret = true}, &d));
  CHECK_FAILS(hp_param_create(d, "w", HP_F32, (hp_shape){2, {1 << 24, 1 << 24}}), "HP_BF16");
  CHECK_EQ(hp_param_create(d, "w", HP_F32, (hp_shape){2, {1 << 24, 1 << 24}}), HP_ERR_OOM);
  check_words_of_header();
  hp_graph *g = large_graph();
  hp_device_set_memory_limit(d, 4096);
  CHECK_EQ(hp_compile(g, d, NULL, &p), HP_ERR_OOM);
  CHECK(strstr(hp_last_error(), "; set memory_limit to ") && strstr(hp_last_error(), "remat"));
  check_words_of_header();
  hp_graph_free(g);
  hp_device_close(d);
}

TEST(bytes_that_are_reserved_are_added_without_a_wrap) {
  static const uint64_t limits[] = {1 << 20, UINT64_MAX / 2, UINT64_MAX};
  hp_graph *g = large_graph();
  hp_device *d = NULL;
  hp_program *p = NULL;
  const hp_compile_options o = {.reserve_bytes = UINT64_MAX};
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 1, .interpret = true}, &d));
  for (int i = 0; i < 3; i++) {
    hp_device_set_memory_limit(d, limits[i]);
    CHECK_EQ(hp_compile(g, d, &o, &p), HP_ERR_OOM);
    CHECK(strstr(hp_last_error(), "reserve_bytes is 18446744073709551615"));
  }
  hp_device_set_memory_limit(d, UINT64_MAX);
  CHECK_OK(hp_compile(g, d, &(hp_compile_options){.reserve_bytes = UINT64_MAX / 2}, &p));
  hp_program_free(p);
  hp_graph_free(g);
  hp_device_close(d);
}

TEST(what_cannot_be_explained_is_answered_with_all_that_can) {
  static const char list[] =
      "what is \"memroy\"; expected memory, memory.totals, memory.json, memory.svg, schedule, "
      "schedule.json, "
      "ops, ops.json, comm, comm.json, timeline.svg or mesh.svg";
  static const char *const what[] = {"memory",        "memory.totals", "memory.json", "schedule",
                                     "schedule.json", "ops",           "ops.json",    "comm",
                                     "comm.json",     "timeline.svg",  "mesh.svg",    "layouts",
                                     "layouts.json",  "layouts.svg"};
  hp_graph *g = large_graph();
  hp_device *d = NULL;
  hp_program *p = NULL;
  char *text = NULL;
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 1, .interpret = true}, &d));
  CHECK_OK(hp_compile(g, d, NULL, &p));
  CHECK_FAILS(hp_explain(p, "memroy", &text), list);
  CHECK(!strstr(hp_last_error(), "layouts"));
  CHECK_FAILS(hp_plan_explain(g, d, NULL, "memroy", &text), list);
  CHECK(strstr(hp_last_error(), ", or of a plan layouts, layouts.json or layouts.svg"));
  for (size_t i = 0; i < sizeof what / sizeof *what; i++) {
    CHECK_OK(hp_plan_explain(g, d, NULL, what[i], &text));
    hp_free(text);
    if (i >= 11) continue;
    CHECK_OK(hp_explain(p, what[i], &text));
    hp_free(text);
  }
  hp_program_free(p);
  hp_graph_free(g);
  hp_device_close(d);
}

/* Neither a name that is none nor tuning that are none leave anything behind. */
TEST(an_engine_that_is_refused_leaves_engine_and_tuning_as_they_were) {
  static const char good[] = "packed f32 8x8x8 = packed\n";
  hp_device *d = NULL;
  char *before = NULL, *after = NULL;
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 1, .interpret = true}, &d));
  CHECK_OK(hp_device_tuning(d, &before));
  CHECK_FAILS(hp_device_set_engine(d, "none", good), "none");
  CHECK_OK(hp_device_tuning(d, &after));
  CHECK_STR(after, before);
  CHECK_STR(hp_device_engine(d), "packed");
  CHECK(hp_device_set_engine(d, "fastest", "x = mkl\n") != HP_OK);
  CHECK_STR(hp_device_engine(d), "packed");
  CHECK_OK(hp_device_set_engine(d, "fastest", good)); /* it is a text of tuning */
  CHECK_STR(hp_device_engine(d), "fastest");
  hp_free(before);
  hp_free(after);
  hp_device_close(d);
}
