/* How a node is computed where its operands lie in each other's way: what it costs decides, and
 * rows of an input stay where they are. */
#include "hyperparallel.h"
#include "test.h"

#include <string.h>

/* y = x w' on a mesh (4,4)(a,b), w [n,k] by "(b,a)" and x [m,k] by "(a,None)": what is moved. */
static char *plan(bool is_input, int64_t m, int64_t n, int64_t k) {
  const hp_layout_rule rules[] = {{"x", "(a,None)"}, {"w", "(b,a)"}};
  hp_device_options o = {.mesh = "(4,4)(a,b)", .layouts = rules, .n_layouts = 2, .plan_only = true};
  hp_graph *g;
  hp_device *d;
  char *text;
  hp_shape s = {2, {m, k}};
  CHECK_OK(hp_graph_create(&g));
  CHECK_OK(hp_device_open(&o, &d));
  hp_tensor x = is_input ? hp_input(g, "x", HP_F32, s) : hp_param(g, "x", HP_F32, s);
  hp_tensor w = hp_param(g, "w", HP_F32, (hp_shape){2, {n, k}});
  hp_output(g, "y", hp_einsum(g, "mk,nk->mn", x, w));
  CHECK_OK(hp_plan_explain(g, d, NULL, "comm", &text));
  hp_graph_free(g);
  hp_device_close(d);
  return text;
}

/* Operands cut by unlike axes share the work by both: 1/16 each way, so the bytes decide.  Counted
 * by the operand with fewest replicas, gathering w would leave 1/4. */
TEST(a_product_of_operands_cut_by_unlike_axes_is_shared_by_both) {
  char *text = plan(false, 1024, 512, 512);
  CHECK(strstr(text, "all_gather       a"));
  CHECK(!strstr(text, "all_to_all"));
  hp_free(text);
}

TEST(rows_of_params_go_where_that_is_cheaper) {
  char *text = plan(false, 256, 4096, 512);
  CHECK(strstr(text, "all_to_all       a"));
  hp_free(text);
}

/* Moving them would take half of the time here. */
TEST(rows_of_an_input_stay_where_they_are) {
  char *text = plan(true, 256, 4096, 512);
  CHECK(strstr(text, "all_gather       a"));
  CHECK(!strstr(text, "all_to_all"));
  hp_free(text);
}

TEST(a_few_rows_of_an_input_go_to_a_large_param_and_their_results_come_back) {
  char *text = plan(true, 8, 65536, 4096);
  CHECK(!strstr(text, "all_gather       a"));
  CHECK(strstr(text, "all_to_all       a"));
  CHECK(strstr(text, "reduce_scatter   a"));
  hp_free(text);
}

/* 64 rows of a table of 2 GiB that is cut by rows: the table stays where it is. */
TEST(a_table_cut_by_rows_is_not_gathered_for_a_few_ids) {
  const hp_layout_rule rules[] = {{"table", "(dp,None)"}, {"ids", "(dp)"}};
  hp_device_options o = {.mesh = "(8)(dp)", .layouts = rules, .n_layouts = 2, .plan_only = true};
  hp_graph *g;
  hp_device *d;
  hp_program_stats s;
  CHECK_OK(hp_graph_create(&g));
  CHECK_OK(hp_device_open(&o, &d));
  hp_tensor table = hp_param(g, "table", HP_F32, (hp_shape){2, {8 << 20, 64}});
  hp_tensor ids = hp_input(g, "ids", HP_I32, (hp_shape){1, {64}});
  hp_output(g, "rows", hp_embedding(g, table, ids, -1));
  CHECK_OK(hp_plan(g, d, NULL, &s));
  CHECK(s.received < 1e6);
  hp_graph_free(g);
  hp_device_close(d);
}

/* Work memory of the gradient of a table that is sharded by rows, when so many elementwise ops are
 * between it and the update of the table. */
static uint64_t gradient_bytes(int ops) {
  const hp_layout_rule rules[] = {{"table", "(dp,None)"}};
  hp_device_options o = {.mesh = "(8)(dp)",
                         .layouts = rules,
                         .n_layouts = 1,
                         .plan_only = true,
                         .interpret = true};
  hp_graph *g;
  hp_device *d;
  hp_program_stats s;
  CHECK_OK(hp_graph_create(&g));
  CHECK_OK(hp_device_open(&o, &d));
  hp_tensor table = hp_param(g, "table", HP_F32, (hp_shape){2, {4096, 64}});
  hp_tensor ids = hp_input(g, "ids", HP_I32, (hp_shape){1, {64}});
  hp_tensor rows = hp_embedding(g, table, ids, -1), grad;
  hp_tensor y = hp_map(g, "tanh", rows, HP_NONE, HP_NONE);
  hp_tensor loss = hp_sum(g, y, (const int64_t[]){0, 1}, 2, false);
  CHECK_OK(hp_grad(g, loss, &table, 1, &grad));
  for (int i = 0; i < ops; i++) grad = hp_map(g, "tanh", grad, HP_NONE, HP_NONE);
  hp_assign(g, table, hp_add(g, table, grad));
  CHECK_OK(hp_plan(g, d, NULL, &s));
  hp_graph_free(g);
  hp_device_close(d);
  return s.memory.work_bytes;
}

TEST(a_gradient_has_the_shards_that_an_update_needs_six_ops_later) {
  const uint64_t whole = 4096 * 64 * sizeof(float);
  CHECK(gradient_bytes(1) < whole / 4);
  CHECK(gradient_bytes(6) < whole / 4);
  CHECK(gradient_bytes(7) > whole); /* the search for the update has ended before */
}
