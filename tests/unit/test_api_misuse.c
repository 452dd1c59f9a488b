/* hyperparallel.h used wrongly: every mistake is a message, none a crash. */
#include "test.h"

#include "base/mem.h"

#include "hyperparallel.h"

#include <string.h>

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
  check_poisoned(g, "more dims");
  g = new_graph();
  CHECK_EQ(hp_param(g, "x", HP_F32, less_than_none), HP_NONE);
  check_poisoned(g, "less than none");
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
  check_poisoned(g, "axis 1 of a tensor of 1 dims");
  g = new_graph();
  CHECK_EQ(hp_input(g, NULL, HP_F32, three), HP_NONE);
  check_poisoned(g, "no name");
  g = new_graph();
  hp_output(g, "", hp_input(g, "x", HP_F32, three));
  check_poisoned(g, "no name");
  g = new_graph();
  hp_tensor many[300];
  for (int i = 0; i < 300; i++) many[i] = hp_const(g, HP_F32, i);
  CHECK_EQ(hp_concat(g, many, 300, 0), HP_NONE);
  check_poisoned(g, "number of operands");
  g = new_graph();
  CHECK_EQ(hp_map(g, NULL, 1, 0, 0), HP_NONE);
  check_poisoned(g, "not an elementwise op");
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
  CHECK_OK(hp_run(p, (hp_io[]){{"x", x, sizeof x}, {"y", y, sizeof y}}, 2));
  CHECK_EQ(y[2], 6);
  hp_program_free(p);
  hp_device_close(d);
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
