/* Memory of a device: who owns what outlives runs, what is live when, and that all who tell of it
 * tell the same. */
#include "base/json.h"
#include "base/units.h"
#include "compile/lower.h"
#include "pass/pass.h"
#include "compile/state_class.h"
#include "rt/explain_memory.h"
#include "step_case.h"
#include "test.h"

/* --- classes ---------------------------------------------------------------------------------- */

static void check_class(const hp_graph *g, const uint8_t *class, const char *name, mem_class want) {
  for (uint32_t i = 0; i < g->nodes.len; i++) {
    const ir_node *n = graph_node(g, i);
    if (n->op != OP_PARAM || strcmp(attr_str(g, n, "name"), name)) continue;
    if (class[n->out0] != want)
      test_fail(__FILE__, __LINE__, "%s is %s, want %s", name,
                mem_class_name((mem_class) class[n->out0]), mem_class_name(want));
    return;
  }
  test_fail(__FILE__, __LINE__, "no param %s", name);
}

/* A step as programs of users build it: names tell nothing, tensors are made in any order. */
static hp_graph *training(bool says_update, bool sums) {
  hp_graph *g;
  hp_tensor grad, scalar[4];
  CHECK_OK(hp_graph_create(&g));
  hp_shape s = {2, {4, 8}};
  hp_tensor sum = hp_param(g, "z", HP_F32, s), first = hp_param(g, "grad.w", HP_F32, s);
  hp_tensor w = hp_param(g, "m.v", HP_F32, s), second = hp_param(g, "weight", HP_F32, s);
  hp_tensor cache = hp_param(g, "optimizer.k", HP_F32, (hp_shape){1, {4}});
  hp_tensor x = hp_input(g, "x", HP_F32, (hp_shape){1, {8}});
  hp_tensor y = hp_einsum(g, "nk,k->n", w, x);
  y = hp_add(g, y, cache);
  hp_assign(g, cache, y);
  hp_tensor loss = hp_sum(g, y, (int64_t[]){0}, 1, false);
  CHECK_OK(hp_grad(g, loss, &w, 1, &grad));
  if (sums) {
    grad = hp_add(g, sum, grad);
    hp_assign(g, sum, grad);
  }
  if (says_update) hp_update_phase(g);
  for (int i = 0; i < 4; i++) scalar[i] = hp_const(g, HP_F32, 0.5);
  hp_adamw(g, w, grad, first, second, scalar[0], scalar[1], scalar[2], scalar[3],
           &(hp_adamw_options){0.9, 0.99, 1e-8, 0.1});
  CHECK_OK(hp_graph_status(g));
  return g;
}

TEST(a_tensor_belongs_to_what_uses_it_whatever_its_name) {
  for (int says = 0; says < 2; says++) {
    hp_graph *g = training(says, true);
    uint8_t class[256];
    CHECK(g->values.len < sizeof class);
    CHECK_OK(state_classes(g, class));
    check_class(g, class, "m.v", MEM_PARAM);
    check_class(g, class, "z", MEM_GRAD);
    check_class(g, class, "grad.w", MEM_OPTIMIZER);
    check_class(g, class, "weight", MEM_OPTIMIZER);
    check_class(g, class, "optimizer.k", MEM_OTHER); /* read and written in the forward: a cache */
    hp_graph_free(g);
  }
}

TEST(tables_are_not_of_the_model) {
  hp_graph *g;
  hp_tensor grad;
  CHECK_OK(hp_graph_create(&g));
  hp_tensor x = hp_param(g, "x", HP_F32, (hp_shape){4, {1, 4, 2, 8}});
  hp_tensor at = hp_input(g, "at", HP_I32, (hp_shape){2, {1, 4}});
  hp_tensor cos = hp_param(g, "a", HP_F32, (hp_shape){2, {16, 4}});
  hp_tensor sin = hp_param(g, "b", HP_F32, (hp_shape){2, {16, 4}});
  hp_tensor both = hp_param(g, "c", HP_F32, (hp_shape){2, {16, 4}});
  hp_tensor y = hp_rope(g, hp_rope(g, x, cos, sin, at, false), cos, both, at, false);
  y = hp_sum(g, y, (int64_t[]){0, 1, 2, 3}, 4, false);
  y = hp_add(g, y, hp_sum(g, both, (int64_t[]){0, 1}, 2, false));
  CHECK_OK(hp_grad(g, y, &x, 1, &grad));
  hp_output(g, "dx", grad);
  uint8_t class[256];
  CHECK_OK(state_classes(g, class));
  check_class(g, class, "x", MEM_PARAM);
  check_class(g, class, "a", MEM_OTHER);
  check_class(g, class, "b", MEM_OTHER);
  check_class(g, class, "c", MEM_PARAM); /* which is read as a value, too */
  hp_graph_free(g);
}

/* Bytes by class of what the backward makes. */
static void count_backward(const hp_graph *g, uint64_t bytes[MEM_CLASS_COUNT]) {
  program *p;
  CHECK_OK(lower_graph(g, &p));
  memset(bytes, 0, MEM_CLASS_COUNT * sizeof *bytes);
  for (size_t i = 0; i < p->insts.len; i++) {
    const prog_inst *n = program_inst(p, i);
    for (int k = 0; k < n->n_out && n->phase == PHASE_BACKWARD; k++) {
      const prog_buffer *b = program_arg(p, n, n->n_in + k);
      bytes[b->class] += b->bytes;
    }
  }
  program_free(p);
}

TEST(what_the_backward_computes_again_is_an_activation) {
  enum { T = 32, C = 8, F = 16, BIG = T * F * sizeof(float) };
  hp_graph *g, *clones, *kept, *fused;
  hp_tensor w[2], grad[2];
  uint64_t bytes[MEM_CLASS_COUNT], gradients;
  CHECK_OK(hp_graph_create(&g));
  hp_block(g, 1);
  hp_tensor x = hp_input(g, "x", HP_F32, (hp_shape){2, {T, C}});
  w[0] = hp_param(g, "up", HP_F32, (hp_shape){2, {F, C}});
  w[1] = hp_param(g, "down", HP_F32, (hp_shape){2, {C, F}});
  hp_tensor up = hp_einsum(g, "tc,fc->tf", x, w[0]);
  hp_tensor y = hp_einsum(g, "tf,cf->tc", hp_map(g, "gelu", up, HP_NONE, HP_NONE), w[1]);
  hp_tensor loss = hp_sum(g, hp_mul(g, y, y), (int64_t[]){0, 1}, 2, false);
  CHECK_OK(hp_grad(g, loss, w, 2, grad));
  for (int i = 0; i < 2; i++) hp_output(g, i ? "d1" : "d0", grad[i]);
  CHECK_OK(hp_graph_status(g));
  count_backward(g, bytes);
  gradients = bytes[MEM_GRAD];
  CHECK_EQ(bytes[MEM_ACTIVATION], 0);
  capabilities can = capabilities_usual();
  pass_options recompute = {.options = &(hp_compile_options){.remat = true}, .can = &can};
  CHECK_OK(pass_remat(g, &recompute, &clones));
  count_backward(clones, bytes);
  CHECK(bytes[MEM_GRAD] && bytes[MEM_GRAD] <= gradients);
  CHECK(bytes[MEM_ACTIVATION] >= 2 * BIG); /* up and gelu; also y, which its square needs */
  /* in loops, too, which make both */
  CHECK_OK(pass_fuse(clones, &recompute, &fused));
  count_backward(fused, bytes);
  CHECK(bytes[MEM_ACTIVATION] >= 2 * BIG);
  CHECK(bytes[MEM_GRAD] && bytes[MEM_GRAD] <= gradients);
  CHECK_OK(pass_fuse(g, &recompute, &kept));
  count_backward(kept, bytes);
  CHECK_EQ(bytes[MEM_ACTIVATION], 0);
  hp_graph *all[] = {g, clones, kept, fused};
  for (int i = 0; i < 4; i++) hp_graph_free(all[i]);
}

/* --- figures ---------------------------------------------------------------------------------- */

static uint64_t sum_of(const uint64_t *bytes) {
  uint64_t sum = 0;
  for (int i = 0; i < HP_MEMORY_CLASSES; i++) sum += bytes[i];
  return sum;
}

static void check_sums(const hp_memory *m) {
  CHECK_EQ(sum_of(m->state), m->state_bytes);
  CHECK_EQ(sum_of(m->live), m->live_bytes);
  CHECK(m->live_bytes <= m->work_bound); /* what is live fits any plan */
  CHECK(m->work_bound <= m->work_bytes);
  CHECK_EQ(m->planned_bytes, m->state_bytes + m->work_bytes);
  CHECK_EQ(m->tier[0].planned_bytes, m->planned_bytes);
  CHECK(m->state[MEM_PARAM] && m->state[MEM_OPTIMIZER]);
}

/* Where most is live over time, and what is live there by class. */
static void check_over_time(const hp_program *p, const hp_memory *m, int n) {
  uint64_t bytes[HP_MEMORY_CLASSES][64], most = 0, work[64], most_work = 0;
  CHECK(n <= 64);
  for (int c = 0; c < HP_MEMORY_CLASSES; c++)
    CHECK_OK(hp_program_memory_over_time(p, c, bytes[c], n));
  hp_program_timeline(p, work, n);
  for (int i = 0; i < n; i++) {
    uint64_t sum = 0;
    for (int c = 0; c < HP_MEMORY_CLASSES; c++) sum += bytes[c][i];
    CHECK_EQ(sum, m->state_bytes + work[i]);
    if (sum > most) most = sum;
    if (work[i] > most_work) most_work = work[i];
  }
  CHECK_EQ(most_work, m->live_bytes); /* however few the points */
  CHECK(most <= m->planned_bytes);
}

/* Does the text have so many bytes, as people read them? */
static void check_bytes(const char *text, const char *fmt, int width, uint64_t x) {
  char line[128];
  str bytes = {0};
  units_put_bytes(&bytes, width, (double)x);
  snprintf(line, sizeof line, fmt, bytes.at);
  if (!strstr(text, line)) test_fail(__FILE__, __LINE__, "no \"%s\" in\n%s", line, text);
  str_free(&bytes);
}

static void check_json(const char *json, const hp_memory *m) {
  tree t;
  hp_memory back;
  CHECK_OK(json_parse(json, strlen(json), "ops.json", &t));
  const tree_node *its = tree_get(t.root, "memory");
  CHECK_OK(memory_read(its, &back));
  CHECK_EQ(back.planned_bytes, m->planned_bytes);
  CHECK_EQ(back.work_bytes, m->work_bytes);
  CHECK_EQ(back.devices, m->devices);
  CHECK(!memcmp(back.state, m->state, sizeof m->state));
  CHECK(!memcmp(back.model, m->model, sizeof m->model));
  for (int k = 0; k < HP_TIERS; k++) {
    CHECK_EQ(back.tier[k].planned_bytes, m->tier[k].planned_bytes);
    CHECK_EQ(back.tier[k].moved_bytes, m->tier[k].moved_bytes);
  }
  CHECK_EQ(tree_get(its, "work_live_bytes")->integer, m->live_bytes);
  CHECK_EQ(tree_get(its, "lower_bound_bytes")->integer, m->state_bytes + m->work_bound);
  tree_free(&t);
}

static void check_all(const hp_device_options *o, hp_program_stats *out) {
  step_case s;
  char *text, *json;
  hp_program_stats plan;
  step_open(o, NULL, HP_F32, &s);
  CHECK_OK(hp_plan(s.g, s.d, NULL, &plan));
  CHECK_OK(hp_program_stats_get(s.p, out));
  const hp_memory *m = &out->memory;
  check_sums(m);
  check_sums(&plan.memory);
  CHECK(!memcmp(&plan.memory, m, sizeof *m));
  CHECK_EQ(hp_device_param_bytes(s.d), m->state_bytes);
  for (int n = 1; n <= 64; n *= 4) check_over_time(s.p, m, n);
  CHECK_OK(hp_explain(s.p, "memory", &text));
  check_bytes(text, "work memory: planned %s, lower bound", 0, m->work_bytes);
  check_bytes(text, ": %s live, by class", 0, m->live_bytes);
  check_bytes(text, "\n  workspace     %s\n", 10, m->live[MEM_WORKSPACE]);
  CHECK_OK(hp_explain(s.p, "ops.json", &json));
  check_json(json, m);
  hp_free(text);
  hp_free(json);
  step_close(&s);
}

TEST(explain_and_statistics_tell_one_memory) {
  hp_program_stats one, four;
  check_all(&(hp_device_options){.threads = 1, .interpret = true}, &one);
  CHECK_EQ(one.memory.state[MEM_OPTIMIZER], 2 * one.memory.state[MEM_PARAM]);
  CHECK(!memcmp(one.memory.state, one.memory.model, sizeof one.memory.state)); /* padded: 256 */
  const hp_layout_rule rules[] = {{"*up*", "(d,None)"}, {"*down*", "(None,d)"}, {"*", "None"}};
  check_all(&(hp_device_options){.threads = 1,
                                 .interpret = true,
                                 .mesh = "(4)(d)",
                                 .layouts = rules,
                                 .n_layouts = 2},
            &four);
  CHECK_EQ(four.memory.devices, 4);
  CHECK_EQ(four.memory.model[MEM_PARAM], one.memory.model[MEM_PARAM]);
  CHECK_EQ(four.memory.model[MEM_OPTIMIZER], one.memory.model[MEM_OPTIMIZER]);
  CHECK(four.memory.state[MEM_PARAM] < one.memory.state[MEM_PARAM]);
}

/* What goes on in place is there once, in the instruction that writes it too. */
TEST(a_result_over_its_operand_is_counted_once) {
  enum { K = 64, N = 4096 };
  hp_graph *g;
  hp_device *d;
  hp_program_stats s;
  CHECK_OK(hp_graph_create(&g));
  hp_tensor x = hp_input(g, "x", HP_F32, (hp_shape){1, {K}});
  hp_tensor w = hp_param(g, "w", HP_F32, (hp_shape){2, {K, N}});
  hp_output(g, "y", hp_map(g, "exp", hp_einsum(g, "k,kn->n", x, w), HP_NONE, HP_NONE));
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 1, .interpret = true}, &d));
  CHECK_OK(hp_plan(g, d, NULL, &s));
  CHECK_EQ(s.instructions, 2);
  CHECK_EQ(s.memory.live[MEM_ACTIVATION], (K + N) * sizeof(float));
  CHECK(s.memory.live_bytes <= s.memory.work_bound);
  hp_device_close(d);
  hp_graph_free(g);
}

/* A device that has less than the plan takes, by its cluster. */
TEST(what_a_device_has_comes_from_the_cluster) {
  hp_device *d;
  hp_program_stats s;
  str text = {0};
  hp_graph *g = step_graph(HP_F32);
  hp_device_options o = {.plan_only = true, .cluster = "dgx-h100"};
  CHECK_OK(hp_device_open(&o, &d));
  CHECK_OK(hp_plan(g, d, NULL, &s));
  CHECK_EQ(s.memory.device_bytes, 80000000000);
  memory_print(&s.memory, 0, &text);
  CHECK(strstr(text.at, "fits: a device has 74.5 GiB"));
  s.memory.device_bytes = s.memory.planned_bytes - 1;
  text.len = 0;
  memory_print(&s.memory, 0, &text);
  CHECK(strstr(text.at, "DOES NOT FIT"));
  s.memory.device_bytes = 0;
  text.len = 0;
  memory_print(&s.memory, 0, &text);
  CHECK(strstr(text.at, "not known"));
  str_free(&text);
  hp_device_close(d);
  hp_graph_free(g);
}

TEST(no_class_and_no_room_are_refused) {
  step_case s;
  uint64_t one;
  step_open(&(hp_device_options){.threads = 1, .interpret = true}, NULL, HP_F32, &s);
  CHECK_EQ(hp_program_memory_over_time(s.p, -1, &one, 1), HP_ERR_ARG);
  err_clear();
  CHECK_EQ(hp_program_memory_over_time(s.p, HP_MEMORY_CLASSES, &one, 1), HP_ERR_ARG);
  err_clear();
  CHECK_EQ(hp_program_memory_over_time(s.p, 0, &one, 0), HP_ERR_ARG);
  err_clear();
  step_close(&s);
}
