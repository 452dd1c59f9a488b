/* What the graphs of stages hold, and what crosses between them; tests/ops/random_graph_test.c runs
 * graphs that were cut. */
#include "hyperparallel.h"
#include "pass/stage_cut.h"
#include "test.h"

enum { STAGES = 3 };

typedef struct {
  hp_graph *whole, *cut[STAGES];
  stage_crossings x;
  stage_edges edges;
} pipeline;

static void begin(const char *text, pipeline *p) {
  *p = (pipeline){0};
  CHECK_OK(hp_graph_parse(text, "test.hp", &p->whole));
  CHECK_OK(stage_cut(p->whole, &(stage_placement){STAGES, STAGES, NULL}, p->cut, &p->x, &p->edges));
}

static void end(pipeline *p) {
  for (int s = 0; s < STAGES; s++) graph_free(p->cut[s]);
  vec_free(&p->x);
  vec_free(&p->edges);
  graph_free(p->whole);
}

static void check_text(const hp_graph *g, const char *want) {
  char *text;
  CHECK_OK(hp_graph_print(g, &text));
  CHECK_STR(text, want);
  hp_free(text);
}

static void check_edge(const pipeline *p, size_t i, int from, int to) {
  CHECK(i < p->edges.len);
  CHECK_EQ(p->edges.at[i].from, from);
  CHECK_EQ(p->edges.at[i].to, to);
}

static void check_crossing(const pipeline *p, size_t i, int from, int to, int phase, bool is_param,
                           const char *name) {
  const stage_crossing *x = &p->x.at[i];
  CHECK(i < p->x.len);
  CHECK_EQ(x->from, from);
  CHECK_EQ(x->to, to);
  CHECK_EQ(x->phase, phase);
  CHECK_EQ(x->is_param, is_param);
  CHECK_STR(x->name, name);
}

/* The forward goes to the next stage, and its gradient back. */
static const char two_products[] =
    "%1:f32[2,2] = input {name=\"x\", dtype=f32, shape=[2,2]}\n"
    "%2:f32[2,2] = param {name=\"a\", dtype=f32, shape=[2,2]}\n"
    "%3:f32[2,2] = einsum %1, %2 {eq=\"ab,bc->ac\", dtype=f32}\n"
    "%4:f32[2,2] = param {name=\"b\", dtype=f32, shape=[2,2]} stage=1\n"
    "%5:f32[2,2] = einsum %3, %4 {eq=\"ab,bc->ac\", dtype=f32} stage=1\n"
    "%6:f32[2,2] = einsum %5, %4 {eq=\"ac,bc->ab\", dtype=f32} phase=backward stage=1\n"
    "%7:f32[2,2] = einsum %1, %6 {eq=\"ab,ac->bc\", dtype=f32} phase=backward\n"
    "%8:f32[2,2] = sub %2, %7 phase=update\n"
    "assign %2, %8 phase=update stage=2\n"
    "output %5 {name=\"y\"} phase=update\n";

TEST(a_value_that_another_stage_reads_is_an_output_of_one_and_an_input_of_the_other) {
  pipeline p;
  begin(two_products, &p);
  CHECK_EQ(p.x.len, 2);
  check_crossing(&p, 0, 0, 1, PHASE_FORWARD, false, "stage0.value3");
  check_crossing(&p, 1, 1, 0, PHASE_BACKWARD, false, "stage1.value6");
  CHECK_EQ(p.edges.len, 1);
  check_edge(&p, 0, 0, 1);
  check_text(p.cut[0],
             "%1:f32[2,2] = input {name=\"x\", dtype=f32, shape=[2,2]}\n"
             "%2:f32[2,2] = param {name=\"a\", dtype=f32, shape=[2,2]}\n"
             "%3:f32[2,2] = einsum %1, %2 {eq=\"ab,bc->ac\", dtype=f32}\n"
             "output %3 {name=\"stage0.value3\"}\n"
             "%4:f32[2,2] = input {name=\"stage1.value6\", dtype=f32, shape=[2,2]} phase=backward "
             "stage=1\n"
             "%5:f32[2,2] = einsum %1, %4 {eq=\"ab,ac->bc\", dtype=f32} phase=backward\n"
             "%6:f32[2,2] = sub %2, %5 phase=update\n"
             "assign %2, %6 phase=update\n"); /* where its param is */
  check_text(p.cut[1],
             "%1:f32[2,2] = input {name=\"stage0.value3\", dtype=f32, shape=[2,2]}\n"
             "%2:f32[2,2] = param {name=\"b\", dtype=f32, shape=[2,2]} stage=1\n"
             "%3:f32[2,2] = einsum %1, %2 {eq=\"ab,bc->ac\", dtype=f32} stage=1\n"
             "%4:f32[2,2] = einsum %3, %2 {eq=\"ac,bc->ab\", dtype=f32} phase=backward stage=1\n"
             "output %4 {name=\"stage1.value6\"} phase=backward stage=1\n"
             "output %3 {name=\"y\"} phase=update stage=1\n"); /* where its value is */
  CHECK_EQ(p.cut[2]->nodes.len, 0);
  end(&p);
}

/* What is made of inputs and constants is made again; a param is in one place, under all names. */
TEST(tables_of_inputs_are_made_by_each_stage_and_a_shared_param_crosses) {
  pipeline p;
  begin("%1:f32[4] = input {name=\"x\", dtype=f32, shape=[4]}\n"
        "%2:f32[] = const {value=2.0, dtype=f32, shape=[]}\n"
        "%3:f32[4] = mul %1, %2\n"
        "%4:f32[4] = input {name=\"unused\", dtype=f32, shape=[4]} stage=2\n"
        "%5:f32[4] = param {name=\"w\", dtype=f32, shape=[4]} stage=1\n"
        "%6:f32[4] = add %3, %5 stage=1\n"
        "%7:f32[4] = param {name=\"w\", dtype=f32, shape=[4]} stage=2\n"
        "%8:f32[4] = mul %3, %7 stage=2\n"
        "%9:f32[4] = add %6, %8 stage=2\n"
        "output %9 {name=\"y\"}\n",
        &p);
  CHECK_EQ(p.x.len, 2);
  check_crossing(&p, 0, 1, 2, PHASE_FORWARD, true, "stage1.value5");
  check_crossing(&p, 1, 1, 2, PHASE_FORWARD, false, "stage1.value6");
  CHECK_EQ(p.edges.len, 1);
  check_edge(&p, 0, 1, 2);
  CHECK_EQ(p.cut[0]->nodes.len, 0);
  check_text(p.cut[2], "%1:f32[4] = input {name=\"x\", dtype=f32, shape=[4]}\n"
                       "%2:f32[] = const {value=2.0, dtype=f32, shape=[]} stage=2\n"
                       "%3:f32[4] = mul %1, %2 stage=2\n"
                       "%4:f32[4] = input {name=\"unused\", dtype=f32, shape=[4]} stage=2\n"
                       "%5:f32[4] = input {name=\"stage1.value5\", dtype=f32, shape=[4]} stage=1\n"
                       "%6:f32[4] = input {name=\"stage1.value6\", dtype=f32, shape=[4]} stage=1\n"
                       "%7:f32[4] = mul %3, %5 stage=2\n"
                       "%8:f32[4] = add %6, %7 stage=2\n"
                       "output %8 {name=\"y\"} stage=2\n");
  end(&p);
}

/* Stage 2 reads 0 and 1; in the backward it makes what 0 reads, and in the update what 1 reads. */
TEST(edges_are_of_forward_and_backward) {
  pipeline p;
  begin("%1:f32[4] = param {name=\"a\", dtype=f32, shape=[4]}\n"
        "%2:f32[4] = neg %1\n"
        "%3:f32[4] = param {name=\"b\", dtype=f32, shape=[4]} stage=1\n"
        "%4:f32[4] = neg %3 stage=1\n"
        "%5:f32[4] = add %4, %2 stage=2\n"
        "%6:f32[4] = neg %5 phase=backward stage=2\n"
        "%7:f32[4] = mul %6, %1 phase=backward\n"
        "%8:f32[4] = mul %6, %3 phase=update stage=1\n"
        "output %7 {name=\"y\"}\n"
        "output %8 {name=\"z\"}\n",
        &p);
  CHECK_EQ(p.edges.len, 2);
  check_edge(&p, 0, 1, 2);
  check_edge(&p, 1, 0, 2);
  end(&p);
  begin("%1:f32[4] = param {name=\"a\", dtype=f32, shape=[4]} stage=2\n"
        "%2:f32[4] = neg %1\n"
        "output %2 {name=\"y\"}\n",
        &p);
  CHECK_EQ(p.edges.len, 1);
  check_edge(&p, 0, 2, 0); /* that falls, as api_pipeline tells */
  CHECK_EQ(p.edges.at[0].node, 1);
  end(&p);
}

/* Stages 0 and 3 are on one mesh: what it makes of inputs alone is of the stage that runs first, in
 * the forward the lowest, in the backward the highest. */
TEST(a_mesh_with_two_stages_makes_what_it_needs_of_inputs_first) {
  static const uint16_t mesh_of[] = {0, 1, 1, 0};
  hp_graph *g, *cut[2];
  stage_crossings x = {0};
  stage_edges edges = {0};
  CHECK_OK(hp_graph_parse("%1:f32[4] = input {name=\"x\", dtype=f32, shape=[4]}\n"
                          "%2:f32[4] = exp %1 stage=3\n"
                          "%3:f32[4] = param {name=\"a\", dtype=f32, shape=[4]}\n"
                          "%4:f32[4] = mul %2, %3\n"
                          "%5:f32[4] = param {name=\"b\", dtype=f32, shape=[4]} stage=3\n"
                          "%6:f32[4] = mul %2, %5 stage=3\n"
                          "%7:f32[4] = neg %1 phase=backward\n"
                          "%8:f32[4] = mul %7, %6 phase=backward stage=3\n"
                          "output %4 {name=\"y\"}\n"
                          "output %8 {name=\"z\"} phase=backward stage=3\n",
                          "test.hp", &g));
  CHECK_OK(stage_cut(g, &(stage_placement){4, 2, mesh_of}, cut, &x, &edges));
  CHECK_EQ(edges.len, 0);
  CHECK_EQ(x.len, 0); /* both stages are on mesh 0 */
  CHECK_EQ(graph_def(cut[0], 2)->op, OP_EXP);
  CHECK_EQ(graph_def(cut[0], 2)->stage, 0);
  CHECK_EQ(graph_def(cut[0], 7)->op, OP_NEG);
  CHECK_EQ(graph_def(cut[0], 7)->stage, 3);
  CHECK_EQ(cut[1]->nodes.len, 0);
  for (int i = 0; i < 2; i++) graph_free(cut[i]);
  vec_free(&x);
  graph_free(g);
}

TEST(a_node_of_no_stage_is_refused_by_its_place) {
  hp_graph *g, *cut[STAGES];
  stage_crossings x = {0};
  stage_edges edges = {0};
  const char *text = "%1:f32[4] = input {name=\"x\", dtype=f32, shape=[4]}\n"
                     "%2:f32[4] = neg %1 @\"layers.7\" stage=3\n"
                     "output %2 {name=\"y\"}\n";
  CHECK_OK(hp_graph_parse(text, "test.hp", &g));
  CHECK_FAILS(stage_cut(g, &(stage_placement){STAGES, STAGES, NULL}, cut, &x, &edges),
              "neg at layers.7 is of stage 3; the pipeline has stages 0 to 2");
  CHECK_FAILS(stage_cut(g, &(stage_placement){0, 0, NULL}, cut, &x, &edges), "0 stages");
  CHECK(!cut[0]);
  vec_free(&x);
  graph_free(g);
}
