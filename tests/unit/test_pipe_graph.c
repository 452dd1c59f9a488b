/* Pipelines whose stages are no chain: towers side by side that one stage reads. */
#include "pipe_case.h"
#include "sched/pipe_check.h"
#include "sched/pipe_generate.h"
#include "sched/pipe_streams.h"
#include "test.h"

#include <math.h>

enum { STAGES_MAX = 8, EDGES_MAX = STAGES_MAX * STAGES_MAX };

static const pipe_edge towers[] = {{0, 2}, {1, 2}};
static const pipe_costs two_towers = {.edge = towers, .edges = 2};

TEST(edges_that_a_longer_path_implies_are_left_out) {
  pipe_edge chain[] = {{2, 3}, {0, 3}, {0, 1}, {1, 2}, {0, 1}, {0, 2}};
  uint32_t n = 6;
  CHECK_OK(pipe_graph_reduce(4, chain, &n));
  CHECK_EQ(n, 3);
  for (uint16_t i = 0; i < 3; i++) CHECK(chain[i].from == i && chain[i].to == i + 1);
  pipe_edge diamond[] = {{0, 1}, {0, 2}, {0, 3}, {1, 3}, {2, 3}};
  n = 5;
  CHECK_OK(pipe_graph_reduce(4, diamond, &n));
  CHECK_EQ(n, 4);
  for (uint32_t i = 0; i < 4; i++) CHECK(diamond[i].from || diamond[i].to < 3);
  n = 0;
  CHECK_OK(pipe_graph_reduce(4, diamond, &n));
  CHECK_EQ(n, 0);
}

TEST(depth_is_the_longest_path_to_the_end) {
  static const pipe_edge edge[] = {{0, 1}, {0, 4}, {1, 3}, {2, 3}, {3, 4}};
  static const uint32_t want[] = {3, 2, 2, 1, 0};
  pipe_graph g;
  uint32_t depth[5];
  CHECK_OK(pipe_graph_create(5, edge, 5, &g));
  pipe_graph_depth(&g, depth);
  for (int s = 0; s < 5; s++) CHECK_EQ(depth[s], want[s]);
  pipe_graph_free(&g);
}

TEST(edges_that_are_no_graph_of_the_stages_are_refused) {
  static const pipe_edge back[] = {{1, 0}}, beyond[] = {{0, 3}}, twice[] = {{0, 1}, {0, 1}};
  pipe_graph g;
  CHECK_FAILS(pipe_graph_create(3, back, 1, &g), "stage 0 reads what stage 1 makes; expected");
  CHECK_FAILS(pipe_graph_create(3, beyond, 1, &g), "stage 3 reads what stage 0 makes; expected");
  CHECK_FAILS(pipe_graph_create(3, twice, 2, &g),
              "from stage 0 to 1 is out of order, or there twi");
}

/* --- towers ----------------------------------------------------------------------------------- */

static void simulate(const char *text, const pipe_costs *c, pipe_times *t) {
  pipe_rows p;
  CHECK_OK(pipe_rows_parse(text, "rows", (pipe_shape){0}, &p));
  CHECK_OK(pipe_check(&p, "rows", c, (pipe_limits){0}));
  CHECK_OK(pipe_simulate(&p, "rows", c, PIPE_FREE_QUEUES, t));
  pipe_rows_free(&p);
}

/* F of both towers at 0, F and B (with W) of the decoder, and then B of both towers. */
TEST(towers_do_not_wait_for_each_other) {
  const char *rows = "0 F 0\n1 F 0\n2 F 0\n2 B 0\n1 B 0\n0 B 0\n";
  pipe_times t;
  simulate(rows, &two_towers, &t);
  CHECK_NEAR(t.step_s, 6, 1e-12);
  pipe_times_free(&t);
  simulate(rows, &(pipe_costs){0}, &t);
  CHECK_NEAR(t.step_s, 9, 1e-12);
  pipe_times_free(&t);
  static const double sends[] = {0.5, 2};
  simulate(rows, &(pipe_costs){.edge = towers, .edges = 2, .transfer_s = sends}, &t);
  CHECK_NEAR(t.step_s, 1 + 2 + 3 + 2 + 2, 1e-12); /* there and back along the slower edge */
  CHECK_EQ(t.transfers, 4);
  pipe_times_free(&t);
}

/* On one device the second tower may run first. */
TEST(rows_that_no_chain_can_run) {
  const char *rows = "placement 0 0 1\n1 F 0\n0 F 0\n2 F 0\n2 B 0\n0 B 0\n1 B 0\n";
  pipe_rows p;
  pipe_times t;
  simulate(rows, &two_towers, &t);
  CHECK_NEAR(t.step_s, 9, 1e-12);
  pipe_times_free(&t);
  CHECK_OK(pipe_rows_parse(rows, "rows", (pipe_shape){0}, &p));
  CHECK_FAILS(pipe_check(&p, "rows", &(pipe_costs){0}, (pipe_limits){0}),
              "stage 1 F 0 (line 2) needs stage 0 F 0 (line 3)");
  pipe_rows_free(&p);
}

/* One micro-batch ahead on both towers, where a chain has two on the first. */
TEST(the_warm_up_of_1f1b_is_the_depth_of_a_stage) {
  pipe_request q = {.stages = 3, .devices = 3, .microbatches = 4, .costs = &two_towers};
  pipe_rows p;
  CHECK_OK(pipe_generate("1f1b", &q, &p));
  for (uint32_t d = 0; d < 3; d++) {
    uint32_t i = p.row0[d];
    while (p.row[i].actions == PIPE_F) i++;
    CHECK_EQ(i - p.row0[d], d == 2 ? 1 : 2);
  }
  pipe_rows_free(&p);
}

/* --- random graphs ---------------------------------------------------------------------------- */

typedef struct {
  pipe_edge edge[EDGES_MAX];
  double f[STAGES_MAX], b[STAGES_MAX], w[STAGES_MAX], send[EDGES_MAX];
  pipe_costs c;
  pipe_request q;
} random_case;

static void draw(uint64_t *state, random_case *r) {
  const uint32_t stages = 1 + pipe_random(state, STAGES_MAX);
  uint32_t n = 0;
  for (uint32_t to = 1; to < stages; to++)
    for (uint32_t from = 0; from < to; from++)
      if (!pipe_random(state, 3)) r->edge[n++] = (pipe_edge){(uint16_t)from, (uint16_t)to};
  CHECK_OK(pipe_graph_reduce(stages, r->edge, &n));
  for (uint32_t s = 0; s < stages; s++) {
    r->f[s] = pipe_random(state, 5);
    r->b[s] = pipe_random(state, 5);
    r->w[s] = pipe_random(state, 5);
  }
  for (uint32_t i = 0; i < n; i++) r->send[i] = pipe_random(state, 3) / 2.0;
  r->c = (pipe_costs){.forward_s = r->f,
                      .backward_s = r->b,
                      .weights_s = r->w,
                      .edge = r->edge,
                      .edges = n,
                      .transfer_s = r->send};
  r->q = (pipe_request){.stages = stages,
                        .devices = stages,
                        .microbatches = 1 + pipe_random(state, 9),
                        .costs = &r->c};
}

/* Is a row that another stage made read by this one?  Then when it arrives; otherwise -1. */
static double arrival(const pipe_rows *p, const pipe_costs *c, const pipe_times *t, uint32_t from,
                      uint32_t to) {
  const pipe_row *a = &p->row[from], *b = &p->row[to];
  if (a->microbatch != b->microbatch || a->actions & PIPE_W || b->actions != a->actions) return -1;
  for (uint32_t i = 0; i < c->edges; i++) {
    const uint16_t low = c->edge[i].from, high = c->edge[i].to;
    const bool forward = a->actions == PIPE_F;
    if (a->stage == (forward ? low : high) && b->stage == (forward ? high : low))
      return t->end_s[from] + c->transfer_s[i];
  }
  return -1;
}

/* Each row begins at the latest of what it needs: of its device, and of all that it reads. */
static void check_times(const pipe_rows *p, const pipe_costs *c) {
  pipe_times t;
  CHECK_OK(pipe_simulate(p, "rows", c, PIPE_FREE_QUEUES, &t));
  for (uint32_t d = 0; d < p->devices; d++)
    for (uint32_t i = p->row0[d]; i < p->row0[d + 1]; i++) {
      double start = i > p->row0[d] ? t.end_s[i - 1] : 0;
      for (uint32_t k = 0; k < pipe_rows_count(p); k++)
        start = fmax(start, arrival(p, c, &t, k, i));
      CHECK_NEAR(t.start_s[i], start, 1e-9);
    }
  pipe_times_free(&t);
}

static void check_rendezvous(const pipe_rows *p, const pipe_costs *c) {
  pipe_times t;
  pipe_streams s;
  CHECK_OK(pipe_simulate(p, "rows", c, PIPE_ONE_STREAM, &t));
  CHECK_OK(pipe_streams_create(p, &t, &s));
  CHECK_OK(pipe_streams_check(p, "rows", &t, &s));
  pipe_streams_free(&s);
  pipe_times_free(&t);
}

static void check_random(uint64_t seed, int n) {
  static const char *const name[] = {"gpipe", "1f1b", "zb-h1", "zb-2p"};
  static random_case r;
  uint64_t state = seed;
  for (int i = 0; i < n; i++) {
    pipe_rows p;
    draw(&state, &r);
    CHECK_OK(pipe_generate(name[i % 4], &r.q, &p));
    CHECK_OK(pipe_check(&p, "rows", &r.c, (pipe_limits){0}));
    check_times(&p, &r.c);
    check_rendezvous(&p, &r.c);
    pipe_rows_free(&p);
  }
}

TEST(random_graphs_of_stages_run_as_simulated) { check_random(21, pipe_cases(400)); }

TEST(torture_random_graphs_of_stages_run_as_simulated) { check_random(1021, 4000); }
