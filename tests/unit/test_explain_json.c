/* explain as JSON: the layer of instructions and buffers, and the same program as the text. */
#include "base/json.h"
#include "test.h"

typedef struct {
  hp_graph *g;
  hp_device *d;
  tree t;
} explained;

/* A product and what follows it, at the place and in the block that the caller has set. */
static hp_tensor layer(hp_graph *g, hp_tensor x, const char *weight) {
  hp_tensor w = hp_param(g, weight, HP_F32, (hp_shape){2, {8, 8}});
  return hp_map(g, "relu", hp_einsum(g, "mk,nk->mn", x, w), HP_NONE, HP_NONE);
}

static void explain_as(const char *what, explained *out) {
  char *text;
  CHECK_OK(hp_graph_create(&out->g));
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 1, .interpret = true}, &out->d));
  hp_tensor x = hp_input(out->g, "x", HP_F32, (hp_shape){2, {4, 8}});
  hp_at(out->g, "transformer.h.3.mlp");
  x = layer(out->g, x, "transformer.h.3.mlp.weight");
  hp_at(out->g, "tower");
  hp_block(out->g, 2);
  x = layer(out->g, x, "tower.weight");
  hp_at(out->g, "head");
  hp_block(out->g, 0);
  hp_output(out->g, "y", layer(out->g, x, "head.weight"));
  CHECK_OK(hp_plan_explain(out->g, out->d, NULL, what, &text));
  CHECK_OK(json_parse(text, strlen(text), what, &out->t));
  hp_free(text);
}

static void explain_end(explained *e) {
  tree_free(&e->t);
  hp_device_close(e->d);
  hp_graph_free(e->g);
}

static const char *string_of(const tree_node *m, const char *key) {
  const char *s;
  CHECK_OK(tree_need_string(m, key, &s));
  return s;
}

/* The first of a list whose key is that string. */
static const tree_node *find(const tree_node *list, const char *key, const char *value) {
  for (uint32_t i = 0; i < list->len; i++)
    if (!strcmp(string_of(list->child[i], key), value)) return list->child[i];
  test_fail(__FILE__, __LINE__, "nothing has %s \"%s\"", key, value);
  return NULL;
}

TEST(layers_are_told_by_the_place_or_the_declared_block) {
  explained e;
  explain_as("schedule.json", &e);
  const tree_node *insts = tree_get(e.t.root, "instructions");
  const tree_node *buffers = tree_get(e.t.root, "buffers");
  CHECK_STR(string_of(find(insts, "at", "transformer.h.3.mlp"), "layer"), "h.3");
  CHECK_STR(string_of(find(insts, "at", "tower"), "layer"), "block 2");
  CHECK_STR(string_of(find(insts, "at", "head"), "layer"), "");
  CHECK_STR(string_of(find(buffers, "name", "transformer.h.3.mlp.weight"), "layer"), "h.3");
  CHECK_STR(string_of(find(buffers, "name", "einsum forward tower"), "layer"), "block 2");
  CHECK_STR(string_of(find(buffers, "name", "x"), "layer"), "");
  explain_end(&e);
}

TEST(the_schedule_has_the_instructions_and_buffers_of_the_program) {
  explained e;
  hp_program_stats s;
  int64_t planned;
  explain_as("schedule.json", &e);
  CHECK_OK(hp_plan(e.g, e.d, NULL, &s));
  const tree_node *insts = tree_get(e.t.root, "instructions");
  const tree_node *buffers = tree_get(e.t.root, "buffers");
  CHECK_EQ(insts->len, s.instructions);
  CHECK_OK(
      tree_need_int(tree_get(tree_get(e.t.root, "arenas"), "device"), "planned_bytes", &planned));
  CHECK_EQ(planned, s.memory.work_bytes);
  double flops = 0, end_s = 0;
  for (uint32_t i = 0; i < insts->len; i++) {
    double work;
    CHECK_OK(tree_need_double(insts->child[i], "work_flop", &work));
    CHECK_OK(tree_need_double(insts->child[i], "end_s", &end_s));
    flops += work;
    const tree_node *out = tree_get(insts->child[i], "outputs");
    for (uint32_t k = 0; k < out->len; k++) CHECK((uint64_t)out->child[k]->integer < buffers->len);
  }
  CHECK_NEAR(flops, s.flops, 1e-6);
  CHECK_NEAR(end_s, s.predicted_s, 1e-12);
  explain_end(&e);
}

TEST(live_memory_of_layers_is_that_of_the_plan) {
  explained e;
  hp_program_stats s;
  uint64_t sum = 0;
  explain_as("memory.json", &e);
  CHECK_OK(hp_plan(e.g, e.d, NULL, &s));
  const tree_node *by = tree_get(e.t.root, "live_by_layer");
  for (uint32_t i = 0; i < by->len; i++) {
    int64_t bytes;
    CHECK_OK(tree_need_int(by->child[i], "live_bytes", &bytes));
    sum += (uint64_t)bytes;
  }
  CHECK_EQ(sum, s.memory.live_bytes);
  int64_t planned;
  CHECK_OK(tree_need_int(e.t.root, "planned_bytes", &planned));
  CHECK_EQ(planned, s.memory.planned_bytes);
  explain_end(&e);
}

static void check_json(const char *text, const char *name) {
  tree t;
  CHECK_OK(json_parse(text, strlen(text), name, &t));
  tree_free(&t);
}

/* Every view that is JSON, for two devices: out of memory is told, and nothing is left behind. */
TEST(views_fail_cleanly_at_every_allocation) {
  static const char *const what[] = {"comm.json", "layouts.json", "schedule.json", "memory.json"};
  static const hp_layout_rule rule[] = {{"x", "(d,None)"}};
  hp_device_options o = {.threads = 1,
                         .interpret = true,
                         .mesh = "(2)(d)",
                         .layouts = rule,
                         .n_layouts = 1};
  hp_graph *g;
  hp_device *d;
  CHECK_OK(hp_graph_create(&g));
  hp_output(g, "y", layer(g, hp_input(g, "x", HP_F32, (hp_shape){2, {4, 8}}), "w"));
  CHECK_OK(hp_device_open(&o, &d));
  for (size_t i = 0; i < sizeof what / sizeof *what; i++) {
    bool failed = true; /* an allocation, whether that was told or done without */
    for (uint64_t n = 1; failed; n++) {
      char *text = NULL;
      uint64_t before = mem_count();
      mem_fail_at(n);
      hp_status st = hp_plan_explain(g, d, NULL, what[i], &text);
      mem_fail_at(0);
      failed = mem_count() - before >= n;
      CHECK(st == HP_ERR_OOM ? !text : !st && text);
      if (!st) check_json(text, what[i]);
      hp_free(text);
    }
  }
  hp_device_close(d);
  hp_graph_free(g);
}
