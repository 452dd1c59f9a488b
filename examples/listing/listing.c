/* The listing of the HyperParallel paper: eight devices as a mesh of "x" and "y", and a tensor
 * whose dims come to be cut one after the other by tensor_map alone.
 *
 *   layout = Layout(device_matrix=(2, 4), alias_name=("x", "y"))
 *   strategy = layout("x", "y")
 *
 * After `make install`: cc -o listing listing.c $(pkg-config --cflags --libs hyperparallel) */
#include "hyperparallel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICES = 8, ROWS = 8, COLS = 8 };

static void must(hp_status s) {
  if (!s) return;
  fprintf(stderr, "%s\n", hp_last_error());
  exit(1);
}

/* What each device holds; nothing is cut yet when there is one logical device. */
static void print_stage(const char *title, const hp_layout *l, int devices) {
  const hp_shape global = {2, {ROWS, COLS}};
  printf("%s\n", title);
  for (int64_t rank = 0; rank < devices; rank++) {
    int64_t from[2], to[2];
    must(hp_layout_slice(l, global, rank, from, to));
    printf("  rank %lld  [%lld:%lld, %lld:%lld]  ", (long long)rank, (long long)from[0],
           (long long)to[0], (long long)from[1], (long long)to[1]);
    for (int64_t row = 0; row < ROWS; row++) {
      if (row) putchar('|');
      for (int64_t col = 0; col < COLS; col++)
        putchar(row >= from[0] && row < to[0] && col >= from[1] && col < to[1] ? '#' : '.');
    }
    putchar('\n');
  }
}

/* y = x w, with x as the strategy says: the program knows nothing of devices. */
static void multiply(const char *mesh, const char *entries, float y[ROWS * COLS]) {
  const hp_layout_rule rule = {"x", entries};
  const hp_device_options o = {.mesh = mesh, .layouts = &rule, .n_layouts = mesh != NULL};
  const hp_shape s = {2, {ROWS, COLS}};
  float x[ROWS * COLS], w[ROWS * COLS];
  for (int i = 0; i < ROWS * COLS; i++) {
    x[i] = (float)(i % 7);
    w[i] = (float)(i % 5);
  }
  hp_graph *g;
  hp_device *d;
  hp_program *p;
  must(hp_graph_create(&g));
  hp_output(g, "y",
            hp_einsum(g, "mk,kn->mn", hp_input(g, "x", HP_F32, s), hp_input(g, "w", HP_F32, s)));
  must(hp_device_open(&o, &d));
  must(hp_compile(g, d, NULL, &p));
  const hp_io io[] = {{"x", x, sizeof x}, {"w", w, sizeof w}, {"y", y, sizeof x}};
  must(hp_run(p, io, 3));
  hp_program_free(p);
  hp_device_close(d);
  hp_graph_free(g);
}

int main(void) {
  const char *const alias_name[] = {"x", "y"};
  hp_layout *layout, *replicated, *rows, *both;
  char *text;
  float one[ROWS * COLS], eight[ROWS * COLS];
  must(hp_layout_create((int64_t[]){2, 4}, alias_name, 2, NULL, 0, &layout));
  must(hp_layout_call(layout, "(None,None)", &replicated));
  must(hp_layout_call(layout, "(x,None)", &rows));
  must(hp_layout_call(layout, "(x,y)", &both));

  print_stage("(a) one logical device", replicated, 1);
  print_stage("(b) tensor_map[0] = \"x\"", rows, DEVICES);
  print_stage("(c) tensor_map[1] = \"y\"", both, DEVICES);

  must(hp_layout_print(both, &text));
  multiply(NULL, NULL, one);
  multiply("(2,4)(x,y)", "(x,y)", eight);
  printf("strategy %s: the product on %d devices is %s one device\n", text, DEVICES,
         memcmp(one, eight, sizeof one) ? "not that of" : "that of");
  hp_free(text);
  hp_layout_free(both);
  hp_layout_free(rows);
  hp_layout_free(replicated);
  hp_layout_free(layout);
  return 0;
}
