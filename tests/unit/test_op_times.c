/* Where time goes: what work is called, what its limit is, and the order of the gaps. */
#include "base/json.h"
#include "codegen/loop.h"
#include "compile/lower.h"
#include "rt/op_times.h"
#include "sim/cost.h"
#include "step_case.h"
#include "test.h"

#include <math.h>

/* --- by hand ---------------------------------------------------------------------------------- */

static const char text[] =
    "%1:f32[2,4,8] = input {name=\"x\", dtype=f32, shape=[2,4,8]}\n"
    "%2:f32[16,8] = param {name=\"w\", dtype=f32, shape=[16,8]}\n"
    "%3:bf16[16,8] = param {name=\"h\", dtype=bf16, shape=[16,8]}\n"
    "%4:f32[2,4,16] = einsum %1, %2 {eq=\"btc,nc->btn\", dtype=f32} @\"layers.0.up\" block=1\n"
    "%5:f32[2,4,16] = einsum %1, %2 {eq=\"btc,nc->btn\", dtype=f32} @\"layers.1.up\" block=2\n"
    "%6:f32[2,4,8] = einsum %4, %2 {eq=\"btn,nc->btc\", dtype=f32} @\"layers.1.up\" "
    "phase=backward\n"
    "%7:f32[16,8] = einsum %5, %1 {eq=\"btn,btc->nc\", dtype=f32} @\"layers.1.up\" phase=backward\n"
    "%8:bf16[16,16] = einsum %3, %3 {eq=\"nc,mc->nm\", dtype=bf16} @\"head\"\n"
    "%9:f32[2,4,8] = fused %6 {body=\"map [64]; %0 = in 0 f32 [1]; %1 = exp %0; out 0 f32 [1] "
    "%1\"} @\"loss\"\n"
    "output %9 {name=\"y\"}\noutput %7 {name=\"dw\"}\noutput %8 {name=\"z\"}\n";

static const device alone = {.limits = {1e9, 4e9, 1e9}};

static program *lowered(void) {
  hp_graph *g;
  program *p;
  CHECK_OK(hp_graph_parse(text, "text", &g));
  CHECK_OK(lower_graph(g, &p));
  hp_graph_free(g);
  return p;
}

static const hp_op_time *find(const op_times *t, const char *kind, const char *shape) {
  for (size_t i = 0; i < t->len; i++)
    if (!strcmp(t->at[i].kind, kind) && (!shape || !strcmp(t->at[i].shape, shape)))
      return &t->at[i];
  test_fail(__FILE__, __LINE__, "no row \"%s\"", kind);
}

TEST(calls_of_the_same_work_are_one_row_with_its_own_limit) {
  program *p = lowered();
  op_times t;
  CHECK_OK(op_times_make(p, &alone, NULL, NULL, &t));
  CHECK_EQ(t.len, 5);
  const hp_op_time *r = find(&t, "einsum forward", "8x16x8 f32");
  CHECK_EQ(r->count, 2);
  CHECK_STR(r->place, "layers.*.up");
  CHECK_STR(r->limit, "flops");
  CHECK_NEAR(r->limit_s, 2 * 2 * 8 * 16 * 8 / 1e9, 1e-15); /* two calls, two flops a step */
  CHECK_EQ(find(&t, "einsum dX", "8x8x16 f32")->count, 1);
  CHECK_EQ(find(&t, "einsum dW", "16x8x8 f32")->count, 1);
  r = find(&t, "einsum forward", "16x16x8 bf16");
  CHECK_STR(r->place, "head");
  CHECK_NEAR(r->limit_s, 2 * 16 * 16 * 8 / 4e9, 1e-15); /* the peak of its dtype */
  r = find(&t, "loop exp", NULL); /* 24 machine operations an element, of 2 flops each */
  CHECK_NEAR(r->flops, 24 * 64, 0);
  CHECK_STR(r->limit, "flops");
  CHECK_NEAR(r->limit_s, 24 * 64 * 2 / 1e9, 1e-15);
  vec_free(&t);
  program_free(p);
}

/* One cost: the limits of a cluster are those by which it is planned, by dtype and kind of memory.
 */
TEST(a_named_cluster_has_the_limits_of_its_costs) {
  static const char file[] = "name: bf\ndevice: {flops: 1e9, bandwidth_gb_s: 1}\n"
                             "costs: {flops_bf16: 8e9, cache_mb: 1, cache_bandwidth_gb_s: 1e6, "
                             "launch_us: 7}\n"
                             "links: [{name: net, bandwidth_gb_s: 5, latency_us: 10}]\n";
  cluster c;
  CHECK_OK(cluster_parse(file, strlen(file), "file", &c));
  device d = {.cluster = &c, .costs = &c};
  CHECK_OK(device_know_limits(&d));
  CHECK_NEAR(d.limits.flops, 1e9, 0);
  CHECK_NEAR(d.limits.bf16_flops, 8e9, 0);
  program *p = lowered();
  op_times t;
  CHECK_OK(op_times_make(p, &d, NULL, NULL, &t));
  double limit_s = 0, want = 0;
  for (size_t i = 0; i < t.len; i++) limit_s += t.at[i].limit_s;
  for (size_t i = 0; i < p->insts.len; i++) {
    cost_work w = cost_work_of(p, program_inst(p, i));
    want += cluster_limit_s(&c, &w);
  }
  CHECK_NEAR(limit_s, want, 1e-15);
  CHECK_NEAR(find(&t, "einsum forward", "16x16x8 bf16")->limit_s, 2 * 16 * 16 * 8 / 8e9, 1e-15);
  vec_free(&t);
  program_free(p);
}

TEST(the_widest_gap_comes_first_and_waits_have_a_row) {
  program *p = lowered();
  const double seconds[] = {1e-6, 2e-6, 9e-3, 1e-6, 3e-3, 1e-9};
  inst_times at[6];
  double end = 0.0175;
  for (int i = 5; i >= 0; end = at[i--].start_s)
    at[i] = (inst_times){end - seconds[i], end - seconds[i], end, 0};
  op_times t;
  CHECK_EQ(p->insts.len, 6);
  CHECK_OK(op_times_make(p, &alone, at, NULL, &t));
  CHECK_EQ(t.len, 6);
  CHECK_STR(t.at[0].kind, "einsum dX");
  CHECK_STR(t.at[1].kind, "between instructions");
  CHECK_NEAR(t.at[1].seconds, 0.0175 - 0.012004001, 1e-12);
  CHECK_STR(t.at[2].shape, "16x16x8 bf16");
  CHECK_STR(t.at[5].kind, "loop exp"); /* below its limit */
  CHECK_NEAR(t.at[5].gap_s, 0, 0);
  vec_free(&t);
  program_free(p);
}

/* Two sequences of three tokens in a cache of 100 keys, of which 10 and 2 are there; the last query
 * sees nothing, another asks for more keys than there are. */
TEST(attention_counts_the_keys_that_spans_let_it_see) {
  static const char attention[] =
      "%%1:f32[2,3,4,8] = input {name=\"q\", dtype=f32, shape=[2,3,4,8]}\n"
      "%%2:f32[2,100,2,8] = param {name=\"k\", dtype=f32, shape=[2,100,2,8]}\n"
      "%%3:i32[2,3,2] = input {name=\"span\", dtype=i32, shape=[2,3,2]}\n"
      "%%4:f32[2,3,4,8], %%5:f32[2,4,3] = attention %%1, %%2, %%2, %%3 {scale=1.0, causal=0, "
      "window=%d, dropout=0.0, stream=0}\noutput %%4 {name=\"o\"}\n";
  static const int32_t span[] = {0, 7, 0, 8, 0, 9, -3, 0, 0, 1, 5, 4};
  static const struct {
    int window;
    double pairs, keys;
    const char *shape;
  } all[] = {{0, 8 + 9 + 10 + 1 + 2, 10 + 2, "B2 T3 S6 H4/2 D8 f32"},
             {4, 4 + 4 + 4 + 1 + 2, 6 + 2, "B2 T3 S4 H4/2 D8 f32"}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    char line[512];
    hp_graph *g;
    program *p;
    op_times t;
    snprintf(line, sizeof line, attention, all[i].window);
    CHECK_OK(hp_graph_parse(line, "line", &g));
    CHECK_OK(lower_graph(g, &p));
    const prog_inst *n = program_inst(p, 0);
    CHECK_EQ(n->op, OP_ATTENTION);
    CHECK_STR(program_str(p, visible_keys_input(p, n)->name), "span");
    visible_keys seen = visible_keys_count(p, n, span);
    CHECK_NEAR(seen.pairs, all[i].pairs, 0);
    CHECK_NEAR(seen.keys, all[i].keys, 0);
    CHECK_OK(op_times_make(p, &alone, NULL, &seen, &t));
    const hp_op_time *r = find(&t, "attention", all[i].shape);
    CHECK_NEAR(r->flops, 2 * 4 * (8 + 8) * all[i].pairs, 0);
    CHECK_NEAR(r->bytes, n->bytes - (200 - all[i].keys) * 2 * (8 + 8) * 4, 0);
    vec_free(&t);
    CHECK_OK(op_times_make(p, &alone, NULL, NULL, &t));
    CHECK_NEAR(find(&t, "attention", "B2 T3 S100 H4/2 D8 f32")->bytes, n->bytes, 0);
    vec_free(&t);
    program_free(p);
    hp_graph_free(g);
  }
}

TEST(what_goes_beside_computation_is_no_part_of_the_run) {
  static const char lines[] = "arena device 192 bound 0 at 0\nb0 = f32[4] device+0 input \"x\"\n"
                              "b1 = f32[4] device+64\nb2 = f32[4] device+128\n"
                              "compute: b1 = exp b0\ncopy_out: b2 = copy b0\n";
  const inst_times at[] = {{0, 0, 1, 0}, {0.25, 0.5, 1.5, 0}};
  program *p;
  op_times t;
  CHECK_OK(program_parse(lines, strlen(lines), "lines", &p));
  CHECK_OK(op_times_make(p, &alone, at, NULL, &t));
  CHECK_EQ(t.len, 3);
  const hp_op_time *r = find(&t, "copy", NULL);
  CHECK(r->overlapped && r->seconds == 1 && r->gap_s == 0);
  CHECK_NEAR(find(&t, "between instructions", NULL)->seconds, 0.5, 1e-12);
  vec_free(&t);
  program_free(p);
}

TEST(loops_go_by_what_they_do) {
  static const struct {
    const char *body, *title;
  } all[] = {
      {"row [4,8]; %0 = in 0 f32 [8,1]; %1 = square %0; %2 = sum %1; %3 = rsqrt %2; %4 = mul %0 "
       "%3; "
       "out 0 f32 [8,1] %4",
       "rms_norm"},
      {"map [8]; %0 = in 0 f32 [1]; %1 = silu %0; %2 = mul %1 %0; out 0 f32 [1] %2", "swiglu"},
      {"map [8]; %0 = in 0 f32 [1]; %1 = add %0 %0; %2 = mul %1 %0; %3 = add %2 %1; out 0 f32 [1] "
       "%3",
       "add+mul"},
      {"map [8]; %0 = in 0 f32 [1]; out 0 f32 [1] %0", "copy"},
      {"map [8]; %0 = in 0 i64 [0]; %1 = uniform 7 [1] %0; %2 = in 1 f32 [1]; %3 = const 0.1; "
       "%4 = ge %1 %3; %5 = const 0.0; %6 = select %4 %2 %5; %7 = add %6 %2; out 0 f32 [1] %7",
       "dropout+add"},
      {"map [8]; %0 = in 0 i64 [0]; %1 = uniform 7 [1] %0; %2 = in 1 f32 [1]; %3 = mul %1 %2; "
       "out 0 f32 [1] %3",
       "uniform+mul"},
      {"map [8]; %0 = in 0 f32 [1]; %1 = add %0 %0; %2 = mul %1 %0; %3 = sub %2 %1; %4 = div %3 "
       "%0; "
       "%5 = max %4 %0; out 0 f32 [1] %5",
       "add+mul+sub+div.."},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    char title[32];
    loop l;
    CHECK_OK(loop_parse(all[i].body, strlen(all[i].body), "body", &l));
    loop_title(&l, title, sizeof title);
    CHECK_STR(title, all[i].title);
    loop_free(&l);
  }
}

/* --- of a run --------------------------------------------------------------------------------- */

TEST(the_rows_of_a_run_are_its_time) {
  step_case s;
  hp_program_stats stats;
  hp_op_time *row;
  char *json;
  int n;
  tree t;
  step_open(&(hp_device_options){.threads = 1}, NULL, HP_F32, &s);
  for (int i = 0; i < 3; i++) step_run(&s);
  CHECK_OK(hp_program_times(s.p, &row, &n));
  CHECK_OK(hp_program_stats_get(s.p, &stats));
  CHECK_OK(hp_explain(s.p, "ops.json", &json));
  CHECK_OK(json_parse(json, strlen(json), "ops.json", &t));
  double run_s = 0;
  int calls = 0;
  for (int i = 0; i < n; i++) {
    CHECK(row[i].seconds >= 0 && isfinite(row[i].limit_s) && *row[i].kind);
    run_s += row[i].seconds;
    calls += row[i].count;
  }
  CHECK_EQ(calls, stats.instructions + 1);
  CHECK_NEAR(tree_get(t.root, "run_s")->number, run_s, 1e-9);
  CHECK_EQ(tree_get(t.root, "kinds")->len, n);
  const char *const keys[] = {"time_s", "limit_s", "gap_s", "work_flop", "moved_bytes"};
  for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
    CHECK(tree_get(tree_get(t.root, "kinds")->child[0], keys[k]));
  tree_free(&t);
  hp_free(json);
  hp_free(row);
  step_close(&s);
}
