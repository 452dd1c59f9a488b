/* hyperparallel.h: ids of tensors and the tags of their graphs, names of a parsed graph's tensors,
 * and what a plan that fails leaves behind. */
#include "test.h"

#include "hyperparallel.h"

#include <string.h>

enum { MOST = 1023 };

static const hp_shape three = {1, {3}};

static hp_graph *new_graph(void) {
  hp_graph *g = NULL;
  CHECK_OK(hp_graph_create(&g));
  return g;
}

TEST(a_graph_keeps_its_tag_as_long_as_it_is_alive) {
  hp_graph *old = new_graph(), *g = NULL;
  hp_tensor x = hp_input(old, "x", HP_F32, three);
  for (int i = 0; i < 2 * MOST + 3; i++) {
    g = new_graph();
    hp_tensor y = hp_input(g, "x", HP_F32, three);
    CHECK(x != y);
    CHECK_EQ(hp_add(g, y, x), HP_NONE);
    CHECK_FAILS(hp_graph_status(g), "hp_add: b is not a tensor of this graph, but of another one");
    hp_graph_free(g);
  }
  CHECK(hp_add(old, x, x) != HP_NONE);
  hp_graph_free(old);
}

TEST(more_graphs_than_have_tags_are_refused) {
  static hp_graph *g[MOST];
  hp_graph *more = NULL;
  for (int i = 0; i < MOST; i++) g[i] = new_graph();
  CHECK_FAILS(hp_graph_create(&more), "hp_graph_create: 1023 graphs are alive");
  CHECK_FAILS(hp_graph_parse("", "t", &more), "hp_graph_parse: 1023 graphs are alive");
  CHECK(!more);
  hp_graph_free(g[700]);
  g[700] = new_graph();
  CHECK(hp_input(g[700], "x", HP_F32, three) != HP_NONE);
  for (int i = 0; i < MOST; i++) hp_graph_free(g[i]);
}

TEST(an_id_that_no_graph_gave_is_not_said_to_be_of_another) {
  static const hp_tensor wrong[] = {5, 70000, 0xffffffffu};
  for (int i = 0; i < 3; i++) {
    hp_graph *g = new_graph(), *other = new_graph();
    char want[96];
    (void)hp_input(g, "x", HP_F32, three);
    (void)hp_shape_of(g, wrong[i]);
    snprintf(want, sizeof want, "hp_shape_of: x is %u, which is not a tensor of this graph",
             wrong[i]);
    CHECK_STR(strstr(hp_last_error(), want) ? "told" : hp_last_error(), "told");
    CHECK_EQ(hp_cast(g, wrong[i], HP_BF16), HP_NONE);
    snprintf(want, sizeof want, "hp_cast: x is %u, which is not a tensor of this graph", wrong[i]);
    CHECK_FAILS(hp_graph_status(g), want);
    hp_graph_free(g);
    hp_graph_free(other);
  }
}

/* A parsed graph is gone on with: its gradient, run. */
TEST(tensors_of_a_parsed_graph_are_found_by_name) {
  hp_graph *from = new_graph(), *g;
  char *printed;
  hp_tensor in = hp_input(from, "x", HP_F32, three), p = hp_param(from, "w", HP_F32, three);
  hp_output(from, "y", hp_mul(from, in, p));
  hp_output(from, "w", in);
  CHECK_OK(hp_graph_print(from, &printed));
  CHECK_OK(hp_graph_parse(printed, "printed", &g));
  hp_tensor x = hp_graph_find(g, "x"), w = hp_graph_find(g, "w"), y = hp_graph_find(g, "y"), d;
  CHECK(x && w && y && x != w);
  CHECK_EQ(hp_shape_of(g, y).dim[0], 3);
  hp_tensor loss = hp_sum(g, y, (int64_t[]){0}, 1, false);
  CHECK_OK(hp_grad(g, loss, &w, 1, &d)); /* a param is found before an output of its name */
  hp_output(g, "dw", d);
  hp_device *dev;
  hp_program *run;
  float data[3] = {1, 2, 3}, dw[3] = {0};
  CHECK_OK(hp_device_open(&(hp_device_options){.interpret = true}, &dev));
  CHECK_OK(hp_compile(g, dev, NULL, &run));
  hp_io io[] = {{"x", data, sizeof data}, {"dw", dw, sizeof dw}};
  CHECK_OK(hp_run(run, io, 2));
  CHECK(!memcmp(data, dw, sizeof dw));
  CHECK_EQ(hp_graph_find(g, "xx"), HP_NONE);
  CHECK_STR(hp_last_error(),
            "hp_graph_find: no input, param or output is named \"xx\", did you mean \"x\"?");
  CHECK_OK(hp_graph_status(g));
  hp_program_free(run);
  hp_device_close(dev);
  hp_free(printed);
  hp_graph_free(from);
  hp_graph_free(g);
}

/* A failure leaves outputs as they are; only of a limit that is too small the memory is told. */
TEST(a_plan_that_fails_leaves_its_output_alone) {
  hp_program_stats before, s;
  memset(&before, 0x5a, sizeof before);
  hp_graph *g = new_graph();
  hp_device *d;
  CHECK_OK(hp_device_open(&(hp_device_options){.interpret = true}, &d));
  (void)hp_add(g, HP_NONE, HP_NONE);
  s = before;
  CHECK(hp_plan(g, d, NULL, &s) != HP_OK);
  CHECK(!memcmp(&s, &before, sizeof s));
  hp_graph_free(g);

  g = new_graph();
  hp_tensor x = hp_input(g, "x", HP_F32, (hp_shape){1, {1 << 20}});
  hp_output(g, "y", hp_map(g, "relu", x, HP_NONE, HP_NONE));
  hp_device_set_memory_limit(d, 4096);
  CHECK_EQ(hp_plan(g, d, NULL, &s), HP_ERR_OOM);
  CHECK(s.memory.planned_bytes >= 4 << 20 && s.memory.limit_bytes == 4096);
  CHECK_EQ(s.instructions, before.instructions);
  CHECK(!memcmp(&s.flops, &before.flops, sizeof s.flops));
  hp_graph_free(g);
  hp_device_close(d);
}
