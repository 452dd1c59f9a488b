/* The noise of NEFTune: how large, how it is spread, what it depends on. */
#include "test.h"

#include "model/family.h"

#include <math.h>
#include <string.h>

enum { B = 4, T = 32, C = 128, N = B * T * C, VOCAB = 8 };

/* Embeddings of zeros: what is added to them. */
static void draw(double alpha, int64_t seed, float *out) {
  static float table[VOCAB * C];
  static int32_t ids[B * T];
  model_config c = {.hidden = C};
  model_build b = {.c = &c, .B = B, .T = T, .noise = alpha};
  hp_device_options o = {.threads = 1};
  hp_device *d;
  hp_program *p;
  CHECK_OK(hp_graph_create(&b.g));
  b.ids = hp_input(b.g, "ids", HP_I32, (hp_shape){2, {B, T}});
  hp_tensor rows = hp_input(b.g, "table", HP_F32, (hp_shape){2, {VOCAB, C}});
  if (alpha > 0) b.noise_seed = hp_input(b.g, "seed", HP_I64, (hp_shape){0});
  hp_output(b.g, "h", build_embedding(&b, rows, -1));
  CHECK_OK(hp_device_open(&o, &d));
  CHECK_OK(hp_compile(b.g, d, &(hp_compile_options){0}, &p));
  hp_io io[] = {{"ids", ids, sizeof ids},
                {"table", table, sizeof table},
                {"h", out, N * sizeof *out},
                {"seed", &seed, sizeof seed}};
  CHECK_OK(hp_run(p, io, alpha > 0 ? 4 : 3));
  hp_program_free(p);
  hp_device_close(d);
  hp_graph_free(b.g);
}

static float one[N], other[N];

/* Uniform in (-a, a), a = alpha / sqrt(T C): mean 0, variance a^2 / 3; within 5 standard
 * deviations. */
TEST(noise_is_uniform_within_alpha_over_the_root_of_the_elements_of_a_row) {
  for (int k = 0; k < 2; k++) {
    double alpha = k ? 15 : 5, most = alpha / sqrt((double)T * C), sum = 0, squares = 0,
           largest = 0;
    draw(alpha, 42, one);
    for (int i = 0; i < N; i++) {
      sum += (double)one[i];
      squares += (double)one[i] * (double)one[i];
      if (fabs((double)one[i]) > largest) largest = fabs((double)one[i]);
    }
    CHECK(largest <= most && largest > 0.99 * most);
    CHECK(fabs(sum / N) < 5 * most / sqrt(3.0 * N));
    CHECK(fabs(squares / N - most * most / 3) < 5 * most * most * sqrt(4.0 / 45 / N));
  }
}

TEST(noise_of_another_seed_is_independent_and_without_alpha_there_is_none) {
  double both = 0, most = 5 / sqrt((double)T * C);
  draw(5, 1, one);
  draw(5, 2, other);
  for (int i = 0; i < N; i++) both += (double)one[i] * (double)other[i];
  CHECK(fabs(both / N) < 5 * most * most / 3 / sqrt(N));
  draw(5, 1, other);
  CHECK(!memcmp(one, other, sizeof one));
  draw(0, 1, one);
  for (int i = 0; i < N; i++) CHECK(one[i] == 0);
}
