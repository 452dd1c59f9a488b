/* A process of a job of four: ranks 0 and 1 are a mesh, ranks 2 and 3 another, with unlike
 * programs.
 *
 *   two_meshes run DIR     each mesh compiles, runs and saves; its rank 0 prints what it computed
 *   two_meshes differ DIR  rank 1 runs another program than rank 0: both print why that fails */
#include <hyperparallel.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 24 };

static int rank, size;

static void check(hp_status s) {
  if (s == HP_OK) return;
  printf("rank %d: %s\n", rank, hp_last_error());
  fflush(stdout);
  exit(1);
}

/* Adds the sum, or the maximum, of x times w to w, `times` over. */
static hp_program *compile(hp_device *d, int times, int is_max) {
  hp_graph *g;
  hp_program *p;
  int64_t axis = 0;
  check(hp_graph_create(&g));
  hp_tensor x = hp_input(g, "x", HP_F32, (hp_shape){1, {N}});
  hp_tensor w = hp_param(g, "w", HP_F32, (hp_shape){1, {N}}), one = HP_NONE, next = w;
  hp_at(g, is_max ? "the maximum" : "the sum");
  for (int k = 0; k < times; k++) {
    hp_tensor product = hp_mul(g, x, next);
    one = is_max ? hp_amax(g, product, &axis, 1, false) : hp_sum(g, product, &axis, 1, false);
    next = hp_add(g, next, hp_scale(g, one, 0.125));
  }
  hp_assign(g, w, next);
  hp_output(g, "out", one);
  check(hp_compile(g, d, NULL, &p));
  hp_graph_free(g);
  return p;
}

/* Messages between processes have buffers of the host, in both directions: they are counted. */
static void check_buffers(const hp_program *p) {
  hp_program_stats s;
  check(hp_program_stats_get(p, &s));
  if (s.memory.tier[1].planned_bytes >= 2 * N * sizeof(float)) return;
  printf("rank %d: %llu bytes of the host are counted\n", rank,
         (unsigned long long)s.memory.tier[1].planned_bytes);
  exit(1);
}

int main(int argc, char **argv) {
  hp_device *d;
  char path[1000];
  float x[N] = {0}, w[N], out = 0;
  if (argc != 3) return 2;
  check(hp_world(&rank, &size));
  const int low = rank < 2, differs = !strcmp(argv[1], "differ");
  if (differs && !low) return 0; /* not needed, and gone */
  hp_layout_rule rule = {"w", "(x)"};
  hp_device_options o = {.mesh = low ? "(2)(x)@0,1" : "(2)(x)@3,2",
                         .layouts = &rule,
                         .n_layouts = 1,
                         .threads = 1,
                         .interpret = true};
  check(hp_device_open(&o, &d));
  hp_program *p = compile(d, low ? 3 : 1, differs && rank == 1);
  check_buffers(p);
  for (int i = 0; i < N; i++) w[i] = (float)(i % 3);
  x[1] = x[N - 2] = 1;
  check(hp_write(d, "w", w, sizeof w));
  for (int k = 0; k < (low ? 9 : 2); k++)
    check(hp_run(p, (hp_io[]){{"x", x, sizeof x}, {"out", &out, sizeof out}}, 2));
  snprintf(path, sizeof path, "%s/%s", argv[2], low ? "low" : "high");
  check(hp_params_save(d, path, NULL, 0));
  check(hp_read(d, "w", w, sizeof w)); /* both have saved then */
  check(hp_params_load(d, path, NULL, 0));
  if (rank == 0 || rank == 3) printf("%s: %a\n", low ? "low" : "high", (double)out);
  hp_program_free(p);
  hp_device_close(d);
  return 0;
}
