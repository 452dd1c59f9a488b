/* Pieces of a step (hp_piece_compile, hp_link): those that no row runs, and what a piece keeps of
 * its options. */
#include "test.h"

#include <unistd.h>

enum { SIZE = 64, BIG = 4096 };

static hp_program *link_pieces(hp_piece *const *piece, int n, const char *rows) {
  static const char *const name[] = {"a", "b"};
  hp_program *p;
  CHECK_OK(hp_link(piece, name, n, rows, &p));
  return p;
}

/* y = x times a param of n rows. */
static hp_piece *product(hp_device *d, const char *param, int64_t n) {
  hp_graph *g;
  hp_piece *p;
  CHECK_OK(hp_graph_create(&g));
  hp_tensor x = hp_input(g, "x", HP_F32, (hp_shape){2, {SIZE, SIZE}});
  hp_tensor w = hp_param(g, param, HP_F32, (hp_shape){2, {n, SIZE}});
  hp_output(g, "y", hp_einsum(g, "bi,oi->bo", x, w));
  CHECK_OK(hp_piece_compile(g, d, NULL, &p));
  hp_graph_free(g);
  return p;
}

TEST(params_of_a_piece_that_no_row_runs_take_no_memory) {
  hp_device *d;
  hp_program_stats s;
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 1, .interpret = true}, &d));
  hp_piece *piece[] = {product(d, "small", SIZE), product(d, "big", BIG)};
  CHECK_OK(hp_link_plan(piece, (const char *const[]){"a", "b"}, 2, "0 a 0", &s, NULL, NULL));
  CHECK_EQ(s.memory.model[HP_MEMORY_PARAMS], SIZE * SIZE * sizeof(float));
  hp_program_free(link_pieces(piece, 2, "0 a 0\n0 a 1"));
  CHECK_EQ(hp_param_count(d), 1);
  for (int k = 0; k < 2; k++) hp_piece_free(piece[k]);
  hp_device_close(d);
}

TEST(a_piece_keeps_its_own_copy_of_its_options) {
  char dir[512], graph[600];
  hp_device *d;
  hp_graph *g;
  hp_piece *p;
  snprintf(dir, sizeof dir, "%s", test_dir());
  snprintf(graph, sizeof graph, "%s/00_check.hp", dir);
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 1, .interpret = true}, &d));
  CHECK_OK(hp_graph_create(&g));
  hp_tensor w = hp_param(g, "w", HP_F32, (hp_shape){2, {SIZE, SIZE}});
  hp_output(g, "y", hp_mul(g, w, w));
  CHECK_OK(hp_piece_compile(g, d, &(hp_compile_options){.dump_dir = dir}, &p));
  CHECK_EQ(access(graph, R_OK), 0);
  memset(dir, '!', sizeof dir - 1);
  hp_program_free(link_pieces(&p, 1, "0 a 0"));
  hp_piece_free(p);
  hp_graph_free(g);
  hp_device_close(d);
}
