/* Communication that overlaps with computation: how much does and could, emulated links, the trace.
 */
#include "base/io.h"
#include "base/json.h"
#include "base/units.h"
#include "rt/explain_comm.h"
#include "step_case.h"
#include "test.h"

/* --- overlapped, and what could be, by hand --------------------------------------------------- */

enum { LINES = 8 };

/* A program of instructions on buffers of four floats, each writing the buffer of its number + 1;
 * b0 is the input. */
static program *make(const char *const *line, int n) {
  str text = {0};
  program *p;
  str_printf(&text, "arena device %d bound 0 at 0\n", (n + 1) * 64);
  for (int i = 0; i <= n; i++)
    str_printf(&text, "b%d = f32[4] device+%d%s\n", i, i * 64, i ? "" : " input \"x\"");
  for (int i = 0; i < n; i++) str_printf(&text, "%s\n", line[i]);
  CHECK_OK(program_parse(text.at, text.len, "text", &p));
  str_free(&text);
  return p;
}

#define REDUCE " {axes=[0], n=2, op=1}"

TEST(computation_during_a_collective_overlaps_with_it) {
  static const char *const line[] = {"compute: b1 = exp b0",
                                     "comm: b2 = all_reduce b1" REDUCE " wait=compute:0",
                                     "compute: b3 = neg b1", "compute: b4 = neg b2 wait=comm:0"};
  /* it begins at 1, the other device comes at 2, and it ends at 6; computed is from 1 to 4 */
  static const inst_times t[] = {{0, 0, 1, 0}, {1, 2, 6, 0}, {1, 1, 4, 0}, {6, 6, 7, 0}};
  program *p = make(line, 4);
  comm_time each[LINES], sum;
  CHECK_OK(comm_times(p, t, each, &sum));
  CHECK_NEAR(sum.comm_s, 4, 1e-12);
  CHECK_NEAR(sum.overlapped_s, 2, 1e-12);
  CHECK_NEAR(sum.can_overlap_s, 3, 1e-12); /* b3 alone neither needs it nor is needed */
  CHECK_NEAR(each[1].can_overlap_s, 3, 1e-12);
  CHECK_NEAR(each[0].comm_s + each[2].comm_s + each[3].comm_s, 0, 1e-12);
  program_free(p);
}

TEST(a_second_of_computation_hides_one_collective) {
  static const char *const line[] = {"compute: b1 = exp b0", "comm: b2 = all_reduce b0" REDUCE,
                                     "comm: b3 = all_reduce b0" REDUCE,
                                     "compute: b4 = add b2, b3 wait=comm:1"};
  static const inst_times t[] = {{0, 0, 2, 0}, {0, 0, 2, 0}, {2, 2, 4, 0}, {4, 4, 5, 0}};
  program *p = make(line, 4);
  comm_time each[LINES], sum;
  CHECK_OK(comm_times(p, t, each, &sum));
  CHECK_NEAR(each[1].can_overlap_s, 2, 1e-12);
  CHECK_NEAR(each[2].can_overlap_s, 2, 1e-12);
  CHECK_NEAR(sum.can_overlap_s, 2, 1e-12);
  CHECK_NEAR(sum.overlapped_s, 2, 1e-12);
  program_free(p);
}

TEST(a_collective_between_computations_hides_nothing) {
  static const char *const line[] = {"compute: b1 = exp b0", ("compute: b2 = all_reduce b1" REDUCE),
                                     "compute: b3 = neg b1", "compute: b4 = add b2, b3"};
  static const inst_times t[] = {{0, 0, 1, 0}, {1, 1, 2, 0}, {2, 2, 3, 0}, {3, 3, 4, 0}};
  program *p = make(line, 4);
  comm_time sum;
  CHECK_OK(comm_times(p, t, NULL, &sum));
  CHECK_NEAR(sum.comm_s, 1, 1e-12);
  CHECK_NEAR(sum.can_overlap_s, 1, 1e-12);
  CHECK_NEAR(sum.overlapped_s, 0, 1e-12);
  program_free(p);
}

/* --- runs ------------------------------------------------------------------------------------- */

static const hp_layout_rule tensor_parallel[] = {{"q.*", "(tp,None)"},  {"k.*", "(tp,None)"},
                                                 {"v.*", "(tp,None)"},  {"o.*", "(None,tp)"},
                                                 {"up.*", "(tp,None)"}, {"down.*", "(None,tp)"}};

/* On four emulated devices; `more` is lines of the cluster file. */
static void run_step(const char *links, const char *more, bool serial, step_case *s) {
  static char path[300];
  str text = {0};
  snprintf(path, sizeof path, "%s/cluster.yaml", test_dir());
  str_printf(&text, "device: {flops: 1e10, bandwidth_gb_s: 10}\nlinks: [{%s}]\nemulate: true\n%s",
             links, more);
  CHECK_OK(file_write(path, text.at, text.len));
  str_free(&text);
  hp_device_options o = {.mesh = "(4)(tp)",
                         .layouts = tensor_parallel,
                         .n_layouts = 6,
                         .threads = 4,
                         .interpret = true,
                         .cluster = path};
  step_open(&o, &(hp_compile_options){.serial = serial}, HP_F32, s);
  step_run(s);
}

TEST(an_emulated_link_takes_its_time) {
  step_case s;
  hp_program_stats stats;
  char *text;
  run_step("bandwidth_gb_s: 1000, latency_us: 1000", "", false, &s);
  CHECK_OK(hp_program_stats_get(s.p, &stats));
  CHECK_OK(hp_program_print(s.p, &text));
  int meetings = 0;
  for (const char *at = text; (at = strstr(at, "all_reduce")); at++) meetings++;
  CHECK(meetings > 4);
  CHECK(stats.comm_s >= meetings * 4e-3); /* two rounds of two steps */
  CHECK(stats.run_s >= stats.comm_s);
  hp_free(text);
  step_close(&s);
}

TEST(an_emulated_device_takes_its_time) {
  step_case s;
  hp_program_stats stats;
  run_step("bandwidth_gb_s: 1000, latency_us: 0", "emulate_compute: true\n", true, &s);
  CHECK_OK(hp_program_stats_get(s.p, &stats));
  CHECK(stats.run_s >= stats.flops / 1e10);
  step_close(&s);
}

TEST(losses_do_not_depend_on_what_overlaps) {
  step_case a, b;
  run_step("bandwidth_gb_s: 1000, latency_us: 0", "", true, &a);
  run_step("bandwidth_gb_s: 0.1, latency_us: 300", "", false, &b);
  CHECK(a.loss == b.loss);
  step_run(&a); /* with the params that the first has left */
  step_run(&b);
  CHECK(a.loss == b.loss);
  step_close(&a);
  step_close(&b);
}

/* --- the trace -------------------------------------------------------------------------------- */

static int64_t integer(const tree_node *m, const char *key) {
  int64_t x;
  CHECK_OK(tree_as_int(tree_get(m, key), &x));
  return x;
}
static double number(const tree_node *m, const char *key) {
  double x;
  CHECK_OK(tree_as_double(tree_get(m, key), &x));
  return x;
}

/* All devices come to collectives in one order; times and bytes sum up to what the program says of
 * itself. */
TEST(the_trace_shows_every_collective_of_every_device) {
  enum { DEVICES = 4, MEETINGS = 500 };
  static int64_t at[DEVICES][MEETINGS];
  int n[DEVICES] = {0};
  double seconds = 0;
  step_case s;
  hp_program_stats stats;
  char path[300], *text;
  tree t;
  run_step("bandwidth_gb_s: 1, latency_us: 50", "", false, &s);
  snprintf(path, sizeof path, "%s/trace.json", test_dir());
  CHECK_OK(hp_trace(s.p, path));
  CHECK_OK(json_load(path, 0, &t));
  CHECK_OK(hp_program_stats_get(s.p, &stats));
  const tree_node *events = tree_get(t.root, "traceEvents");
  for (uint32_t i = 0; i < events->len; i++) {
    const tree_node *e = events->child[i], *args = tree_get(e, "args");
    if (!tree_get(e, "dur") || integer(e, "tid") != STREAM_COMM) continue;
    int64_t of = integer(e, "pid");
    CHECK(of >= 0 && of < DEVICES && n[of] < MEETINGS);
    CHECK(number(args, "received_bytes") > 0);
    at[of][n[of]++] = integer(args, "instruction");
    if (!of) seconds += (number(e, "ts") + number(e, "dur") - number(args, "met_us")) * 1e-6;
  }
  for (int i = 0; i < DEVICES; i++) {
    CHECK(n[i] > 4);
    CHECK_EQ(n[i], n[0]);
    CHECK(!memcmp(at[i], at[0], (size_t)n[0] * sizeof **at));
  }
  CHECK_NEAR(seconds, stats.comm_s, 1e-5);
  CHECK(stats.overlapped_s <= stats.comm_s && stats.can_overlap_s <= stats.comm_s);
  CHECK_OK(hp_explain(s.p, "comm", &text));
  CHECK(strstr(text, "all_reduce       tp"));
  CHECK(strstr(text, "measured: "));
  hp_free(text);
  tree_free(&t);
  step_close(&s);
}

/* The JSON has the numbers of the statistics; the text the same, rounded. */
static void check_comm(const char *json, const char *text, const hp_program_stats *stats) {
  tree t;
  str line = {0};
  double bytes = 0, seconds = 0;
  CHECK_OK(json_parse(json, strlen(json), "comm.json", &t));
  CHECK_NEAR(number(t.root, "time_s"), stats->comm_s, 1e-12);
  CHECK_NEAR(number(t.root, "can_overlap_s"), stats->can_overlap_s, 1e-12);
  CHECK_NEAR(number(t.root, "overlapped_s"), stats->overlapped_s, 1e-12);
  CHECK_NEAR(number(t.root, "exposed_s"), stats->comm_s - stats->overlapped_s, 1e-12);
  CHECK_EQ(integer(t.root, "received_bytes"), (int64_t)stats->received);
  const tree_node *all = tree_get(t.root, "collectives");
  for (uint32_t i = 0; i < all->len; i++) {
    bytes += (double)integer(all->child[i], "received_bytes");
    seconds += number(all->child[i], "time_s");
  }
  CHECK_EQ((int64_t)bytes, (int64_t)stats->received);
  CHECK_NEAR(seconds, stats->comm_s, 1e-12);
  str_add(&line, "measured: ");
  units_add_seconds(&line, stats->comm_s);
  str_add_char(&line, ';');
  if (!strstr(text, line.at)) test_fail(__FILE__, __LINE__, "no \"%s\" in\n%s", line.at, text);
  str_free(&line);
  tree_free(&t);
}

TEST(what_goes_between_devices_is_told_alike_as_text_and_as_json) {
  step_case s;
  hp_program_stats stats;
  char *text, *json;
  hp_device_options o = {.mesh = "(4)(tp)",
                         .layouts = tensor_parallel,
                         .n_layouts = 6,
                         .threads = 4};
  step_open(&o, NULL, HP_F32, &s);
  step_run(&s); /* one run: the mean of runs is that of the last */
  CHECK_OK(hp_program_stats_get(s.p, &stats));
  CHECK_OK(hp_explain(s.p, "comm", &text));
  CHECK_OK(hp_explain(s.p, "comm.json", &json));
  check_comm(json, text, &stats);
  hp_free(text);
  hp_free(json);
  step_close(&s);
}

TEST(a_plan_predicts_what_goes_between_devices) {
  hp_device *d;
  char *text;
  hp_graph *g = step_graph(HP_F32);
  hp_device_options o = {.mesh = "(4)(tp)",
                         .layouts = tensor_parallel,
                         .n_layouts = 6,
                         .cluster = "dgx-h100",
                         .plan_only = true};
  CHECK_OK(hp_device_open(&o, &d));
  CHECK_OK(hp_plan_explain(g, d, NULL, "comm", &text));
  CHECK(strstr(text, "predicted: "));
  hp_free(text);
  hp_device_close(d);
  hp_graph_free(g);
}

/* Products whose partial sums take longer to reduce than to make, so that computation runs ahead.
 */
static uint64_t work_of_products(bool serial) {
  enum { PRODUCTS = 16, WIDTH = 1024, DEPTH = 32 };
  const hp_layout_rule rules[] = {{"x", "(None,tp)"}, {"w*", "(tp,None)"}};
  hp_device_options o = {.mesh = "(2)(tp)",
                         .layouts = rules,
                         .n_layouts = 2,
                         .plan_only = true,
                         .interpret = true};
  hp_program_stats s;
  hp_graph *g;
  hp_device *d;
  CHECK_OK(hp_graph_create(&g));
  CHECK_OK(hp_device_open(&o, &d));
  hp_tensor x = hp_input(g, "x", HP_F32, (hp_shape){2, {WIDTH, DEPTH}}), sum = HP_NONE;
  for (int i = 0; i < PRODUCTS; i++) {
    char name[8];
    snprintf(name, sizeof name, "w%d", i);
    hp_tensor w = hp_param(g, name, HP_F32, (hp_shape){2, {DEPTH, WIDTH}});
    hp_tensor y = hp_map(g, "tanh", hp_einsum(g, "mk,kn->mn", x, w), HP_NONE, HP_NONE);
    y = hp_sum(g, y, (const int64_t[]){0, 1}, 2, false);
    sum = sum ? hp_add(g, sum, y) : y;
  }
  hp_output(g, "sum", sum);
  CHECK_OK(hp_plan(g, d, &(hp_compile_options){.serial = serial}, &s));
  hp_graph_free(g);
  hp_device_close(d);
  return s.memory.work_bytes;
}

TEST(overlap_takes_half_as_much_memory_again_at_most) {
  uint64_t serial = work_of_products(true), overlapped = work_of_products(false);
  CHECK(overlapped > serial);
  CHECK(overlapped <= serial + serial / 2);
}
