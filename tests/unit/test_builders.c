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
  int64_t all[] = {0, 1, 2, 3};
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

TEST(builder_slice_step_takes_every_step_th_element) {
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
  check_poisoned(g, hp_clamp(g, x, 2, 1), "hp_clamp: low is 2, high 1; low <= high");
  g = new_graph();
  x = hp_input(g, "x", HP_F32, two_by_six);
  check_poisoned(g, hp_clamp(g, x, NAN, 1), "hp_clamp: low is nan");
  g = new_graph();
  x = hp_input(g, "x", HP_I32, two_by_six);
  check_poisoned(g, hp_clamp(g, x, 0.5, 1), "hp_clamp: low is 0.5, which is no number of");
  g = new_graph();
  x = hp_input(g, "x", HP_U8, two_by_six);
  check_poisoned(g, hp_clamp(g, x, 0, 256), "hp_clamp: high is 256, which is no number of");
  g = new_graph();
  x = hp_input(g, "x", HP_I32, two_by_six);
  check_poisoned(g, hp_mean(g, x, (int64_t[]){0}, 1, false), "cast it to a float dtype");
  g = new_graph();
  x = hp_input(g, "x", HP_F32, two_by_six);
  check_poisoned(g, hp_mean(g, x, (int64_t[]){2}, 1, false), "axis 2");
  g = new_graph();
  x = hp_input(g, "x", HP_F32, two_by_six);
  check_poisoned(g, hp_amax(g, x, NULL, 1, false), "hp_amax: axes is NULL");
  g = new_graph();
  x = hp_input(g, "x", HP_F32, two_by_six);
  check_poisoned(g, hp_pad(g, x, NULL, (int64_t[]){0, 0}, 0), "hp_pad: low is NULL");
  g = new_graph();
  x = hp_input(g, "x", HP_F32, two_by_six);
  check_poisoned(g, hp_slice_step(g, x, 1, 0, 6, 0), "start is 0, stop 6, step 0");
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

/* --- convolution and pooling -------------------------------------------------------------- */

static const hp_shape image = {4, {1, 1, 3, 4}};

TEST(builder_conv_adds_its_bias_and_has_a_gradient) {
  float y[12], dx[12];
  hp_graph *g = new_graph();
  hp_tensor x = hp_input(g, "x", HP_F32, image);
  hp_tensor one = hp_broadcast(g, hp_const(g, HP_F32, 1), (hp_shape){4, {1, 1, 3, 3}});
  hp_tensor b = hp_broadcast(g, hp_const(g, HP_F32, 100), (hp_shape){1, {1}});
  give(g, x, hp_conv(g, x, one, b, &(hp_conv_options){.pad = {1, 1}}));
  run(g, numbers, sizeof numbers, y, sizeof y, dx, sizeof dx);
  CHECK(y[0] == 100 + 3 - 1 - 5 + 9 && dx[0] == 4 && dx[1] == 6 && dx[5] == 9);
}

TEST(builder_pools_step_by_their_kernel_unless_told) {
  float y[2], dx[12];
  hp_graph *g = new_graph();
  hp_tensor x = hp_input(g, "x", HP_F32, image);
  give(g, x, hp_max_pool(g, x, &(hp_pool_options){.kernel = {2, 2}}));
  run(g, numbers, sizeof numbers, y, sizeof y, dx, sizeof dx);
  CHECK(y[0] == 9 && y[1] == 6 && dx[5] == 1 && dx[7] == 1 && dx[0] == 0);
  g = new_graph();
  x = hp_input(g, "x", HP_F32, image);
  hp_tensor mean = hp_avg_pool(g, x, &(hp_pool_options){.kernel = {2, 2}, .stride = {1, 1}});
  CHECK(hp_shape_of(g, mean).dim[2] == 2 && hp_shape_of(g, mean).dim[3] == 3);
  hp_graph_free(g);
}

TEST(builder_avg_pool_counts_the_padding_or_not) {
  float y[2][4], x[4] = {4, 8, 12, 16};
  for (int i = 0; i < 2; i++) {
    hp_graph *g = new_graph();
    hp_tensor in = hp_input(g, "x", HP_F32, (hp_shape){3, {1, 1, 4}});
    const hp_pool_options o = {.kernel = {2}, .stride = {2}, .pad = {1}, .exclude_pad = i};
    hp_output(g, "y", hp_avg_pool(g, in, &o));
    run(g, x, sizeof x, y[i], 3 * sizeof(float), NULL, 0);
  }
  CHECK(y[0][0] == 2 && y[0][1] == 10 && y[0][2] == 8);
  CHECK(y[1][0] == 4 && y[1][1] == 10 && y[1][2] == 16);
}

/* The message that a convolution of `x` with `w` is refused with. */
static void check_conv(hp_shape x, hp_shape w, hp_conv_options o, const char *part) {
  hp_graph *g = new_graph();
  hp_tensor a = hp_input(g, "x", HP_F32, x), b = hp_input(g, "w", HP_F32, w);
  check_poisoned(g, hp_conv(g, a, b, HP_NONE, &o), part);
}

TEST(builder_conv_names_what_does_not_fit) {
  const hp_shape x = {4, {2, 6, 5, 5}}, w = {4, {8, 6, 3, 3}};
  check_conv((hp_shape){2, {5, 5}}, w, (hp_conv_options){0},
             "hp_conv: x is f32[5,5] (input \"x\"); [N,C,L] or [N,C,H,W]");
  check_conv(x, (hp_shape){3, {8, 6, 3}}, (hp_conv_options){0},
             "w is f32[8,6,3] (input \"w\"); two of one dtype and rank");
  check_conv(x, (hp_shape){4, {8, 5, 3, 3}}, (hp_conv_options){0}, "weights of 6 channels");
  check_conv(x, w, (hp_conv_options){.groups = 4}, "6 channels become 8 in 4 groups");
  check_conv(x, w, (hp_conv_options){.stride = {-1, 1}}, "stride is -1 along spatial dim 0");
  check_conv(x, w, (hp_conv_options){.pad = {0, -2}}, "pad is -2 along spatial dim 1");
  check_conv(x, w, (hp_conv_options){.dilation = {1, 3}},
             "the kernel covers 7 along spatial dim 1, x has 5 with its padding");
  check_conv(x, w, (hp_conv_options){.pad = {INT64_MAX, 0}}, "pad is 9223372036854775807");
  check_conv(x, w, (hp_conv_options){.pad = {1 << 30, 1 << 30}},
             "x has 4611686039902224384 places with its padding; 1099511627776 at most");
  check_conv(x, w, (hp_conv_options){.groups = INT64_MIN}, "groups");
  check_conv(x, (hp_shape){4, {8, 6, 0, 3}}, (hp_conv_options){0},
             "w is f32[8,6,0,3] (input \"w\"), a kernel of 0 along spatial dim 0");
  check_conv((hp_shape){4, {2, 0, 5, 5}}, (hp_shape){4, {8, 0, 3, 3}}, (hp_conv_options){0},
             "0 channels");
}

/* Up front, by its own name. */
TEST(builder_conv_names_a_bias_that_does_not_fit) {
  static const struct {
    hp_dtype t;
    hp_shape s;
    const char *part;
  } row[] = {{HP_F32,
              {1, {7}},
              "hp_conv \"stem\": b is f32[7] (param \"bias\"); f32[8] was expected"},
             {HP_F32, {2, {8, 1}}, "hp_conv \"stem\": b is f32[8,1] (param \"bias\"); f32[8] was"},
             {HP_F32, {0, {0}}, "b is f32[] (param \"bias\"); f32[8] was expected"},
             {HP_BF16, {1, {8}}, "b is bf16[8] (param \"bias\"); f32[8] was expected"}};
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    hp_graph *g = new_graph();
    hp_at(g, "stem");
    hp_tensor x = hp_input(g, "x", HP_F32, (hp_shape){4, {2, 6, 5, 5}});
    hp_tensor w = hp_param(g, "w", HP_F32, (hp_shape){4, {8, 6, 3, 3}});
    hp_tensor b = hp_param(g, "bias", row[i].t, row[i].s);
    check_poisoned(g, hp_conv(g, x, w, b, NULL), row[i].part);
  }
}

TEST(builders_name_the_tensor_whose_range_is_left_and_the_range) {
  const int64_t twice[] = {1, 1}, none[] = {0, 0}, less[] = {0, -3};
  for (int i = 0; i < 5; i++) {
    hp_graph *g = new_graph();
    hp_tensor x = hp_input(g, "u", HP_F32, two_by_six), y = HP_NONE;
    const char *part = "";
    if (i == 0) {
      y = hp_slice(g, x, 1, 2, 9);
      part =
          "hp_slice: x is f32[2,6] (input \"u\"); of dim 1 start is 2, stop 9, step 1: 0 <= start "
          "<= stop <= 6";
    } else if (i == 1) {
      y = hp_slice_step(g, x, 0, 0, 2, 0);
      part =
          "hp_slice_step (slice): x is f32[2,6] (input \"u\"); of dim 0 start is 0, stop 2, step 0";
    } else if (i == 2) {
      y = hp_slice(g, x, 2, 0, 1);
      part = "hp_slice: x is f32[2,6] (input \"u\"); axis is 2, 0 to 1 was expected";
    } else if (i == 3) {
      y = hp_transpose(g, x, twice);
      part =
          "hp_transpose: x is f32[2,6] (input \"u\"); perm has 1 at 1, each dim from 0 to 1 once";
    } else {
      y = hp_pad(g, x, less, none, 0);
      part = "hp_pad: x is f32[2,6] (input \"u\"); of dim 1 low is -3, high 0: 0 or more";
    }
    check_poisoned(g, y, part);
  }
}

TEST(the_gradient_of_abs_is_zero_at_zero) {
  const float x[4] = {-2, 0, -0.0f, 3}, want[4] = {-1, 0, 0, 1};
  float y[4], dx[4];
  hp_graph *g = new_graph();
  hp_tensor in = hp_input(g, "x", HP_F32, (hp_shape){1, {4}});
  give(g, in, hp_map(g, "abs", in, HP_NONE, HP_NONE));
  run(g, x, sizeof x, y, sizeof y, dx, sizeof dx);
  for (int k = 0; k < 4; k++) CHECK_NEAR(dx[k], want[k], 0);
}

/* As PyTorch 2.15 has it: each window's last NaN, however the windows lie. */
TEST(the_gradient_of_a_maximum_goes_to_the_last_nan) {
  float x[16], y[16], dx[16];
  static const struct {
    int64_t kernel, stride;
    float dx[16];
  } row[] = {
      {2, 2, {0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 1}},
      {3, 1, {0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1}},
      {4, 4, {0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
  };
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    for (int k = 0; k < 16; k++) x[k] = k < 2 ? NAN : (float)k;
    hp_graph *g = new_graph();
    hp_tensor in = hp_input(g, "x", HP_F32, (hp_shape){4, {1, 1, 4, 4}});
    const hp_pool_options o = {.kernel = {row[i].kernel, row[i].kernel},
                               .stride = {row[i].stride, row[i].stride}};
    hp_tensor out = hp_max_pool(g, in, &o);
    hp_shape s = hp_shape_of(g, out);
    give(g, in, out);
    run(g, x, sizeof x, y, (size_t)(s.dim[2] * s.dim[3]) * sizeof *y, dx, sizeof dx);
    CHECK(isnan(y[0]));
    for (int k = 0; k < 16; k++) CHECK_NEAR(dx[k], row[i].dx[k], 0);
  }
}

TEST(builders_of_windows_refuse_an_empty_image) {
  for (int d = 2; d < 4; d++)
    for (int kind = 0; kind < 3; kind++) {
      hp_shape empty = {4, {1, 1, 4, 4}};
      empty.dim[d] = 0;
      hp_graph *g = new_graph();
      hp_tensor x = hp_input(g, "x", HP_F32, empty);
      hp_tensor w = hp_input(g, "w", HP_F32, (hp_shape){4, {1, 1, 2, 2}});
      const hp_pool_options o = {.kernel = {2, 2}, .pad = {1, 1}};
      const hp_conv_options c = {.pad = {1, 1}};
      check_poisoned(g,
                     kind == 0   ? hp_conv(g, x, w, HP_NONE, &c)
                     : kind == 1 ? hp_avg_pool(g, x, &o)
                                 : hp_max_pool(g, x, &o),
                     d == 2 ? ": x is empty along spatial dim 0"
                            : ": x is empty along spatial dim 1");
    }
}

TEST(builders_of_windows_refuse_a_second_number_for_one_spatial_dim) {
  static const char *const part[] = {"hp_conv: o->stride has a second number, 5, x one spatial dim",
                                     "hp_conv: o->pad has a second",
                                     "hp_conv: o->dilation has a",
                                     "hp_avg_pool: o->kernel has a second number, 2",
                                     "hp_max_pool: o->stride has a second",
                                     "hp_max_pool: o->pad has a second"};
  for (int i = 0; i < 6; i++) {
    hp_graph *g = new_graph();
    hp_tensor x = hp_input(g, "x", HP_F32, (hp_shape){3, {1, 1, 9}});
    hp_tensor w = hp_input(g, "w", HP_F32, (hp_shape){3, {1, 1, 2}});
    hp_conv_options c = {.stride = {1, i == 0 ? 5 : 0}};
    c.pad[1] = i == 1;
    c.dilation[1] = i == 2;
    hp_pool_options o = {.kernel = {2, i == 3 ? 2 : 0}};
    o.stride[1] = i == 4;
    o.pad[1] = i == 5;
    check_poisoned(g,
                   i < 3    ? hp_conv(g, x, w, HP_NONE, &c)
                   : i == 3 ? hp_avg_pool(g, x, &o)
                            : hp_max_pool(g, x, &o),
                   part[i]);
  }
}

TEST(builder_conv_tells_no_channels_and_too_large_a_kernel_as_what_they_are) {
  static const struct {
    hp_shape x, w;
    const char *part;
  } row[] = {{{3, {1, 0, 5}}, {3, {2, 0, 3}}, "hp_conv: 0 channels become 2; 1 or more of both"},
             {{3, {1, 2, 5}}, {3, {0, 2, 3}}, "hp_conv: 2 channels become 0; 1 or more of both"},
             {{3, {1, 1, 5}},
              {3, {1, 1, (int64_t)1 << 31}},
              "a kernel of 2147483648 along spatial dim 0; 1 to 1073741824 was expected"},
             {{3, {1, 1, 5}}, {3, {1, 1, 0}}, "a kernel of 0 along spatial dim 0; 1 to"}};
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    hp_graph *g = new_graph();
    hp_tensor x = hp_input(g, "x", HP_F32, row[i].x), w = hp_input(g, "w", HP_F32, row[i].w);
    check_poisoned(g, hp_conv(g, x, w, HP_NONE, NULL), row[i].part);
  }
}

TEST(builders_of_pools_name_what_does_not_fit) {
  hp_graph *g = new_graph();
  check_poisoned(g, hp_max_pool(g, hp_input(g, "x", HP_F32, image), NULL),
                 "hp_max_pool: o is NULL");
  g = new_graph();
  check_poisoned(g, hp_max_pool(g, hp_input(g, "x", HP_F32, image), &(hp_pool_options){0}),
                 "kernel is 0");
  g = new_graph();
  check_poisoned(g,
                 hp_avg_pool(g, hp_input(g, "x", HP_F32, image),
                             &(hp_pool_options){.kernel = {2, 2}, .pad = {2, 0}}),
                 "at most half of the kernel");
  g = new_graph();
  check_poisoned(g,
                 hp_avg_pool(g, hp_input(g, "x", HP_F32, image),
                             &(hp_pool_options){.kernel = {4, 2}}),
                 "the kernel covers 4 along spatial dim 0");
}
