/* The trace is JSON, however many instructions there are. */
#include "test.h"

#include "base/io.h"
#include "base/json.h"
#include "step_case.h"

/* A program of n additions: its trace, read back; returns the number of instructions in it. */
static int64_t traced(int n) {
  hp_graph *g;
  hp_device *d;
  hp_program *p;
  tree t;
  char path[300];
  float data[2] = {1, 2};
  int64_t run = 0;
  snprintf(path, sizeof path, "%s/trace.json", test_dir());
  CHECK_OK(hp_graph_create(&g));
  hp_tensor x = hp_input(g, "x", HP_F32, (hp_shape){1, {2}});
  for (int i = 0; i < n; i++) {
    char name[16];
    snprintf(name, sizeof name, "y%d", i);
    x = hp_concat(g, &x, 1, 0);
    hp_output(g, name, x);
  }
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 1, .interpret = true}, &d));
  CHECK_OK(hp_compile(g, d, NULL, &p));
  CHECK_OK(hp_run(p, &(hp_io){"x", data, sizeof data}, 1));
  CHECK_OK(hp_trace(p, path));
  CHECK_OK(json_load(path, 0, &t));
  const tree_node *events = tree_get(t.root, "traceEvents");
  CHECK(events && events->kind == TREE_LIST);
  for (uint32_t i = 0; i < events->len; i++) run += tree_get(events->child[i], "dur") != NULL;
  CHECK(events->len > run);
  tree_free(&t);
  hp_program_free(p);
  hp_device_close(d);
  hp_graph_free(g);
  return run;
}

TEST(the_trace_of_any_program_is_json) {
  CHECK_EQ(traced(0), 0);
  CHECK_EQ(traced(1), 1);
  CHECK_EQ(traced(3), 3);
}

TEST(events_are_called_by_what_they_do_and_where) {
  step_case s;
  tree t;
  char path[300];
  int loops = 0, products = 0, layers = 0;
  snprintf(path, sizeof path, "%s/trace.json", test_dir());
  step_open(&(hp_device_options){.threads = 1, .interpret = true}, NULL, HP_F32, &s);
  step_run(&s);
  CHECK_OK(hp_trace(s.p, path));
  CHECK_OK(json_load(path, 0, &t));
  const tree_node *events = tree_get(t.root, "traceEvents");
  for (uint32_t i = 0; i < events->len; i++) {
    const tree_node *args = tree_get(events->child[i], "args");
    if (!tree_get(events->child[i], "dur")) continue;
    const char *name = tree_get(events->child[i], "name")->string;
    const char *kind = tree_get(args, "kind")->string, *at = tree_get(args, "at")->string;
    CHECK(strncmp(name, "fused", 5) && strncmp(kind, "fused", 5));
    CHECK(!strncmp(name, kind, strlen(kind)));
    CHECK(!*at || strstr(name, at));
    const tree_node *layer = tree_get(args, "layer"); /* of the two */
    if (layer) layers |= 1 << layer->integer;
    loops += !strncmp(kind, "loop ", 5);
    products += !strcmp(kind, "einsum forward");
  }
  CHECK(loops > 5 && products > 5);
  CHECK_EQ(layers, 3);
  tree_free(&t);
  step_close(&s);
}
