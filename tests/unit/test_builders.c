/* Builders of hyperparallel.h that are made of several ops, by what they compute. */
#include "test.h"

#include "hyperparallel.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static hp_graph *new_graph(void) {
  hp_graph *g = NULL;
  CHECK_OK(hp_graph_create(&g));
  return g;
}

/* Runs g, which has the input x and the outputs y and, where n_dx is not 0, dx; frees it. */
static void run(hp_graph *g, const void *x, size_t x_bytes, void *y, size_t y_bytes, void *dx,
                size_t dx_bytes) {
  hp_device *d = NULL;
  hp_program *p = NULL;
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 1, .interpret = true}, &d));
  CHECK_OK(hp_compile(g, d, NULL, &p));
  hp_io io[] = {{"x", (void *)(uintptr_t)x, x_bytes}, {"y", y, y_bytes}, {"dx", dx, dx_bytes}};
  CHECK_OK(hp_run(p, io, dx ? 3 : 2));
  hp_program_free(p);
  hp_device_close(d);
  hp_graph_free(g);
}

static const hp_shape two_by_six = {2, {2, 6}};
static const float numbers[12] = {3, -1, 4, 1, -5, 9, 2, 6, 5, 3, 5, -8};

/* y = f(x), and the gradient of the sum of y. */
static void give(hp_graph *g, hp_tensor x, hp_tensor y) {
  hp_tensor dx = HP_NONE;
  int64_t all[] = {0, 1, 2};
  hp_output(g, "y", y);
  CHECK_OK(hp_grad(g, hp_sum(g, y, all, hp_shape_of(g, y).rank, false), &x, 1, &dx));
  hp_output(g, "dx", dx);
}

TEST(builder_amax_takes_the_largest_over_dims) {
  float y[2], dx[12];
  hp_graph *g = new_graph();
  hp_tensor x = hp_input(g, "x", HP_F32, two_by_six);
  give(g, x, hp_amax(g, x, (int64_t[]){1}, 1, false));
  run(g, numbers, sizeof numbers, y, sizeof y, dx, sizeof dx);
  CHECK(y[0] == 9 && y[1] == 6 && dx[5] == 1 && dx[7] == 1 && dx[0] == 0);
}

TEST(builder_mean_divides_the_sum_by_the_count) {
  float y[2], dx[12];
  hp_graph *g = new_graph();
  hp_tensor x = hp_input(g, "x", HP_F32, two_by_six);
  hp_tensor mean = hp_mean(g, x, (int64_t[]){1}, 1, true);
  CHECK_EQ(hp_shape_of(g, mean).rank, 2);
  give(g, x, mean);
  run(g, numbers, sizeof numbers, y, sizeof y, dx, sizeof dx);
  CHECK(y[0] == 11.0f / 6 && y[1] == 13.0f / 6 && dx[3] == 1.0f / 6);
}

/* 257 ones in bf16: the sum alone would be rounded to 256 or 258. */
TEST(builder_mean_of_16_bits_is_rounded_once) {
  uint16_t x[257], y[1];
  hp_graph *g = new_graph();
  for (int i = 0; i < 257; i++) x[i] = 0x3f80;
  hp_output(g, "y",
            hp_mean(g, hp_input(g, "x", HP_BF16, (hp_shape){1, {257}}), (int64_t[]){0}, 1, false));
  run(g, x, sizeof x, y, sizeof y, NULL, 0);
  CHECK_EQ(y[0], 0x3f80);
}

TEST(builder_clamp_keeps_numbers_within_bounds_and_passes_the_gradient_there) {
  float y[12], dx[12];
  hp_graph *g = new_graph();
  hp_tensor x = hp_input(g, "x", HP_F32, two_by_six);
  give(g, x, hp_clamp(g, x, -1, 4));
  run(g, numbers, sizeof numbers, y, sizeof y, dx, sizeof dx);
  for (int i = 0; i < 12; i++) {
    CHECK_EQ(y[i], fminf(fmaxf(numbers[i], -1), 4));
    CHECK_EQ(dx[i], numbers[i] >= -1 && numbers[i] <= 4);
  }
}

TEST(builder_clamp_without_a_bound_leaves_that_side) {
  int32_t x[3] = {-7, 0, 7}, y[3];
  hp_graph *g = new_graph();
  hp_tensor in = hp_input(g, "x", HP_I32, (hp_shape){1, {3}});
  hp_output(g, "y", hp_clamp(g, in, -INFINITY, 5));
  run(g, x, sizeof x, y, sizeof y, NULL, 0);
  CHECK(y[0] == -7 && y[1] == 0 && y[2] == 5);
}

TEST(builder_pad_adds_elements_around_dims) {
  float x[2] = {1, 2}, y[8], dx[2];
  hp_graph *g = new_graph();
  hp_tensor in = hp_input(g, "x", HP_F32, (hp_shape){2, {1, 2}});
  give(g, in, hp_pad(g, in, (int64_t[]){1, 2}, (int64_t[]){0, 0}, 7));
  run(g, x, sizeof x, y, sizeof y, dx, sizeof dx);
  CHECK(!memcmp(y, (float[]){7, 7, 7, 7, 7, 7, 1, 2}, sizeof y) && dx[0] == 1 && dx[1] == 1);
}

TEST(builder_iota_counts_along_a_dim) {
  int32_t x[1] = {0}, y[6];
  hp_graph *g = new_graph();
  hp_tensor in = hp_input(g, "x", HP_I32, (hp_shape){1, {1}});
  hp_output(g, "y", hp_add(g, in, hp_iota(g, HP_I32, (hp_shape){2, {2, 3}}, 1)));
  run(g, x, sizeof x, y, sizeof y, NULL, 0);
  CHECK(!memcmp(y, (int32_t[]){0, 1, 2, 0, 1, 2}, sizeof y));
}

TEST(builder_slice_step_takes_every_so_manieth_element) {
  float y[4], dx[12];
  hp_graph *g = new_graph();
  hp_tensor x = hp_input(g, "x", HP_F32, two_by_six);
  give(g, x, hp_slice_step(g, x, 1, 1, 6, 3));
  run(g, numbers, sizeof numbers, y, sizeof y, dx, sizeof dx);
  CHECK(y[0] == -1 && y[1] == -5 && y[2] == 6 && y[3] == 5);
  CHECK(dx[0] == 0 && dx[1] == 1 && dx[4] == 1 && dx[2] == 0);
}

static void check_poisoned(hp_graph *g, hp_tensor y, const char *part) {
  CHECK_EQ(y, HP_NONE);
  CHECK_FAILS(hp_graph_status(g), part);
  hp_graph_free(g);
}

TEST(builders_refuse_what_makes_no_sense) {
  hp_graph *g = new_graph();
  hp_tensor x = hp_input(g, "x", HP_F32, two_by_six);
  check_poisoned(g, hp_clamp(g, x, 2, 1), "the lower bound 2 is above the upper, 1");
  g = new_graph();
  x = hp_input(g, "x", HP_F32, two_by_six);
  check_poisoned(g, hp_clamp(g, x, NAN, 1), "lower bound");
  g = new_graph();
  x = hp_input(g, "x", HP_I32, two_by_six);
  check_poisoned(g, hp_clamp(g, x, 0.5, 1), "numbers of it");
  g = new_graph();
  x = hp_input(g, "x", HP_U8, two_by_six);
  check_poisoned(g, hp_clamp(g, x, 0, 256), "numbers of it");
  g = new_graph();
  x = hp_input(g, "x", HP_I32, two_by_six);
  check_poisoned(g, hp_mean(g, x, (int64_t[]){0}, 1, false), "cast it to a float dtype");
  g = new_graph();
  x = hp_input(g, "x", HP_F32, two_by_six);
  check_poisoned(g, hp_mean(g, x, (int64_t[]){2}, 1, false), "axis 2");
  g = new_graph();
  x = hp_input(g, "x", HP_F32, two_by_six);
  check_poisoned(g, hp_amax(g, x, NULL, 1, false), "`axes` is NULL");
  g = new_graph();
  x = hp_input(g, "x", HP_F32, two_by_six);
  check_poisoned(g, hp_pad(g, x, NULL, (int64_t[]){0, 0}, 0), "`low` is NULL");
  g = new_graph();
  x = hp_input(g, "x", HP_F32, two_by_six);
  check_poisoned(g, hp_slice_step(g, x, 1, 0, 6, 0), "0:6:0");
  g = new_graph();
  check_poisoned(g, hp_iota(g, HP_I32, two_by_six, 2), "axis 2");
}

TEST(names_of_elementwise_ops_can_be_listed_and_all_work) {
  int operands, n = 0;
  const char *name, *meaning;
  for (; (name = hp_map_name(n, &operands, &meaning)); n++) {
    bool logical = !strcmp(name, "not") || !strcmp(name, "and") || !strcmp(name, "or");
    hp_graph *g = new_graph();
    hp_tensor x = hp_input(g, "x", logical ? HP_BOOL : HP_F32, two_by_six);
    hp_tensor first = strcmp(name, "select") ? x : hp_map(g, "lt", x, x, HP_NONE);
    if (!hp_map(g, name, first, operands > 1 ? x : HP_NONE, operands > 2 ? x : HP_NONE))
      test_fail(__FILE__, __LINE__, "%s of %d: %s", name, operands, hp_last_error());
    CHECK(strlen(meaning) > 0);
    hp_graph_free(g);
  }
  CHECK(n > 30 && !hp_map_name(-1, NULL, NULL) && !hp_map_name(n + 5, NULL, NULL));
}

TEST(a_misspelt_elementwise_op_is_answered_with_the_nearest_name) {
  hp_graph *g = new_graph();
  hp_tensor x = hp_input(g, "x", HP_F32, two_by_six);
  check_poisoned(g, hp_map(g, "sofplus", x, HP_NONE, HP_NONE), "did you mean \"softplus\"?");
}
