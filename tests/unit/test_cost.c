/* What work costs: the table of a cluster file, and the classes and sizes of instructions. */
#include "compile/lower.h"
#include "ops/ops.h"
#include "sim/cost.h"
#include "sim/predict.h"
#include "test.h"

static const char machine[] = "name: machine\n"
                              "device: {flops: 1e12, bandwidth_gb_s: 100}\n"
                              "costs:\n"
                              "  flops_bf16: 4e12\n"
                              "  launch_us: 2\n"
                              "  cache_mb: 1\n"
                              "  cache_bandwidth_gb_s: 400\n"
                              "  efficiency:\n"
                              "  - {op: product, dtype: f32, of_limit: 0.5}\n"
                              "  - {op: product, dtype: f32, below: 64, of_limit: 0.25}\n"
                              "  - {op: loop_row, dtype: bf16, below: 1000, of_limit: 0.1}\n"
                              "links: [{name: net, bandwidth_gb_s: 1, latency_us: 1}]\n"
                              "tiers: [{name: host, read_gb_s: 10, write_gb_s: 5}]\n";

static cluster parse(const char *text) {
  cluster c;
  CHECK_OK(cluster_parse(text, strlen(text), "c.yaml", &c));
  return c;
}

static double seconds(const cluster *c, cost_class op, bool bf16, double flops, double bytes,
                      double size) {
  const cost_work w = {.op = op, .bf16 = bf16, .flops = flops, .bytes = bytes, .size = size};
  return cluster_work_s(c, &w) - c->costs.launch_us * 1e-6;
}

TEST(work_takes_the_launch_and_the_limit_at_its_share) {
  cluster c = parse(machine);
  const cost_work none = {.op = COST_OTHER};
  CHECK_NEAR(cluster_work_s(&c, &none), 2e-6, 1e-15);
  CHECK_NEAR(seconds(&c, COST_OTHER, false, 1e12, 1e9, 1e9), 1, 1e-12);
  CHECK_NEAR(seconds(&c, COST_OTHER, true, 1e12, 1e9, 1e9), 0.25, 1e-12);
  CHECK_NEAR(seconds(&c, COST_OTHER, false, 0, 1e11, 1e11), 1, 1e-12);
  CHECK_NEAR(seconds(&c, COST_OTHER, false, 0, 4e5, 4e5), 1e-6, 1e-15); /* in the cache */
  CHECK_NEAR(seconds(&c, COST_PRODUCT, false, 1e12, 0, 63), 4, 1e-12);
  CHECK_NEAR(seconds(&c, COST_PRODUCT, false, 1e12, 0, 64), 2, 1e-12);
  CHECK_NEAR(seconds(&c, COST_PRODUCT, true, 1e12, 0, 64), 0.25, 1e-12);
  /* Loops are computed in f32, an operation at a time; above the last row that row counts. */
  CHECK_NEAR(seconds(&c, COST_LOOP_MAP, true, 1e12, 0, 64), 2, 1e-12);
  CHECK_NEAR(seconds(&c, COST_LOOP_ROW, true, 1e12, 0, 1e6), 20, 1e-12);
}

TEST(a_copy_between_tiers_takes_the_time_of_its_link_at_its_share) {
  cluster c = parse(machine);
  cost_work in = {.op = COST_TRANSFER, .bytes = 4e5, .size = 4e5, .from = TIER_HOST};
  cost_work out = {.op = COST_FLASH, .bytes = 4e5, .size = 4e5, .to = TIER_FLASH, .devices = 9};
  CHECK_NEAR(cluster_limit_s(&c, &in), 4e-5, 1e-15);
  CHECK_NEAR(cluster_work_s(&c, &in), 4.2e-5, 1e-15);
  CHECK_NEAR(cluster_limit_s(&c, &out), 4e-4, 1e-15);
  CHECK(cost_table_set(&c.costs, (cost_entry){COST_TRANSFER, false, 1e9, 0.5}));
  CHECK_NEAR(cluster_work_s(&c, &in), 8.2e-5, 1e-15);
  CHECK_NEAR(cluster_work_s(&c, &out), 4.02e-4, 1e-15); /* learned apart */
}

TEST(costs_print_as_they_are_read) {
  cluster c = parse(machine);
  str one = {0}, two = {0};
  cluster_print(&c, &one);
  CHECK(strstr(one.at, "  - {op: product, dtype: f32, below: 64.0, of_limit: 0.25}\n"
                       "  - {op: product, dtype: f32, of_limit: 0.5}\n"));
  c = parse(one.at);
  CHECK_EQ(c.costs.rows, 3);
  cluster_print(&c, &two);
  CHECK_STR(two.at, one.at);
  str_free(&one);
  str_free(&two);
}

TEST(a_bad_table_of_costs_is_refused) {
  static const struct {
    const char *costs, *why;
  } bad[] =
      {{"{launch_ms: 3}", "costs.launch_ms: unknown key"},
       {"{host_bandwidth_gb_s: 3}", "costs.host_bandwidth_gb_s: unknown key"},
       {"{launch_us: -1}", "expected a number above 0"},
       {"{flops_bf16: .nan}", "c.yaml:3:"},
       {"{cache_mb: 3}", "go together"},
       {"[]", "c.yaml:3:"},
       {"{efficiency: 3}", "c.yaml:3:"},
       {"{efficiency: [{op: produkt, dtype: f32, of_limit: 1}]}", "did you mean \"product\"?"},
       {"{efficiency: [{op: product, dtype: f16, of_limit: 1}]}", "expected f32 or bf16"},
       {"{efficiency: [{op: product, dtype: f32}]}", "of_limit"},
       {"{efficiency: [{op: product, dtype: f32, of_limit: 0}]}", "expected a number above 0"},
       {"{efficiency: [{op: product, dtype: f32, of_limit: 1e10}]}", "expected at most"},
       {"{efficiency: [{op: product, dtype: f32, below: 0, of_limit: 1}]}", "above 0"},
       {"{efficiency: [{op: copy, dtype: f32, of_limit: 1}, {op: copy, dtype: f32, of_limit: 2}]}",
        "there is a row of this op"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    char text[512];
    cluster c;
    snprintf(text, sizeof text,
             "name: m\ndevice: {flops: 1, bandwidth_gb_s: 1}\ncosts: %s\n"
             "links: [{bandwidth_gb_s: 1, latency_us: 1}]\n",
             bad[i].costs);
    CHECK_FAILS(cluster_parse(text, strlen(text), "c.yaml", &c), bad[i].why);
  }
}

TEST(a_table_takes_no_more_rows_than_it_has_room_for) {
  static cost_table t;
  for (int i = 0; i < COST_ROWS; i++)
    CHECK(cost_table_set(&t, (cost_entry){COST_COPY, false, COST_ROWS - i, 1}));
  CHECK(!cost_table_set(&t, (cost_entry){COST_COPY, true, 1, 1}));
  CHECK(cost_table_set(&t, (cost_entry){COST_COPY, false, 3, 0.5}));
  CHECK_NEAR(cost_table_row(&t, COST_COPY, false, 3)->of_limit, 0.5, 0);
  for (int i = 1; i < t.rows; i++) CHECK(t.row[i - 1].below < t.row[i].below);
}

static cost_work work_of(program *p, size_t i) { return cost_work_of(p, program_inst(p, i)); }

TEST(instructions_have_a_class_a_dtype_and_a_size) {
  hp_graph *g;
  program *p;
  CHECK_OK(hp_graph_create(&g));
  hp_tensor a = hp_input(g, "a", HP_BF16, (hp_shape){2, {32, 100}});
  hp_tensor b = hp_input(g, "b", HP_BF16, (hp_shape){2, {100, 7}});
  hp_tensor y = hp_einsum(g, "mk,kn->mn", a, b);
  hp_output(g, "y", y);
  CHECK_OK(hp_graph_status(g));
  CHECK_OK(lower_graph(g, &p));
  cost_work w = work_of(p, 0);
  CHECK_EQ(w.op, COST_PRODUCT);
  CHECK(w.bf16);
  CHECK_NEAR(w.size, 7, 1e-9);
  CHECK_NEAR(w.flops, 2.0 * 32 * 100 * 7, 0);
  CHECK_NEAR(w.bytes, 2.0 * (3200 + 700 + 224), 0);
  program_free(p);
  hp_graph_free(g);
}

/* Two fetches at a time: the second one ends before the first, and neither behind a computation. */
TEST(what_two_copies_expose_at_a_time_counts_once) {
  const char *text = "arena device 768 bound 768 at 0\n"
                     "b0 = f32[2] state host \"a\"\nb1 = f32[2] state flash \"b\"\n"
                     "b2 = f32[2] device+0\nb3 = f32[2] device+256\nb4 = f32[2] device+512\n"
                     "copy_in: b2 = fetch b0 {tier=1}\nflash_in: b3 = fetch b1 {tier=2}\n"
                     "compute: b4 = add b2, b3 wait=copy_in:0 wait=flash_in:0\n";
  const inst_times t[3] = {{1, 1, 4, 0}, {2, 2, 3, 0}, {3.5, 3.5, 6, 0}};
  double by_inst[3], all;
  program *p;
  CHECK_OK(program_parse(text, strlen(text), "copies", &p));
  CHECK_OK(exposed_copies(p, t, by_inst, &all));
  CHECK_NEAR(all, 2.5, 1e-12);
  CHECK_NEAR(by_inst[0], 2.5, 1e-12);
  CHECK_NEAR(by_inst[1], 0, 1e-12);
  CHECK_NEAR(by_inst[2], 0, 1e-12);
  CHECK_OK(exposed_copies(p, t, NULL, &all));
  CHECK_NEAR(all, 2.5, 1e-12);
  program_free(p);
}

TEST(a_fetch_and_an_offload_cost_by_the_tiers_of_their_buffers) {
  static const char text[] = "arena device 512 bound 512 at 0\n"
                             "arena host 256 bound 256 at 0\n"
                             "arena flash 256 bound 256 at 0\n"
                             "b0 = f32[64] device+0 input \"x\"\n"
                             "b1 = f32[64] host+0\n"
                             "b2 = f32[64] flash+0\n"
                             "b3 = f32[64] device+256 output \"y\"\n"
                             "copy_out: b1 = offload b0 {tier=1}\n"
                             "copy_out: b2 = offload b1 {tier=2}\n"
                             "copy_in: b3 = fetch b1 {tier=1}\n"
                             "copy_in: b3 = fetch b2 {tier=2}\n";
  static const double seconds[] = {10e-6 + 2 * 256e-9, 100e-6 + 256e-9, 10e-6 + 2 * 64e-9,
                                   100e-6 + 128e-9};
  static const char file[] =
      "device: {flops: 1, bandwidth_gb_s: 100}\n"
      "links: [{bandwidth_gb_s: 1, latency_us: 1}]\n"
      "devices_per_node: 2\n"
      "tiers:\n"
      "- {name: host, read_gb_s: 4, write_gb_s: 1, latency_us: 10, shared_by: 2}\n"
      "- {name: flash, read_gb_s: 2, write_gb_s: 1, latency_us: 100}\n";
  cluster c = parse(file);
  const char *axis = "dp";
  program *p;
  mesh m;
  CHECK_OK(program_parse(text, strlen(text), "text", &p));
  CHECK_OK(mesh_init(&(int64_t){2}, &axis, 1, NULL, 2, &m));
  for (size_t i = 0; i < 4; i++)
    CHECK_NEAR(cost_inst(&c, &m, p, program_inst(p, i)), seconds[i], 1e-12);
  CHECK_EQ(work_of(p, 0).op, COST_TRANSFER);
  CHECK_EQ(work_of(p, 1).op, COST_FLASH);
  CHECK_NEAR(work_of(p, 3).size, 256, 0);
  mesh_free(&m);
  program_free(p);
}
