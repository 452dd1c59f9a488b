/* Which stages of a pipeline may run forwards of the next step before the update of this one. */
#include "compile/pipeline_ahead.h"
#include "prog/actions.h"
#include "test.h"

#include <string.h>

enum { MICRO, UPDATE, PIECES, STAGES = 2, MESHES = 2 };

/* Both stages are on mesh 0, as half of a pipeline.  Of stage 1: a forward, and what updates w
 * beforehand. */
#define PROGRAM(stage_1)                                                                           \
  "arena device 1792 bound 1792 at 0\n"                                                            \
  "b0 = f32[2] state \"w\"\n"                                                                      \
  "b1 = f32[2] state \"v\"\n"                                                                      \
  "b2 = f32[2] state \"frozen\"\n"                                                                 \
  "b3 = f32[2] device+0 input \"value\"\n"                                                         \
  "b4 = f32[2] device+256 input \"param\"\n"                                                       \
  "b5 = f32[2] device+512 input \"gradient\"\n"                                                    \
  "b6 = f32[2] device+768 output \"sent\"\n"                                                       \
  "b7 = f32[2] device+1024 output \"loss\"\n"                                                      \
  "b8 = f32[2] device+1280 output \"ahead.w\"\n"                                                   \
  "b9 = f32[2] device+1536\n" stage_1

static const pipeline_crossing crossing[] = {{MICRO, 1, 0, "value", NULL},
                                             {MICRO, 1, 0, "param", "table"},
                                             {UPDATE, 1, 0, "gradient", NULL},
                                             {MICRO, 0, 1, "sent", NULL}};

static program *parse(const char *text) {
  program *p = NULL;
  CHECK_OK(program_parse(text, strlen(text), "ahead", &p));
  return p;
}

/* Whether stage 1 can run ahead, and seconds of its update beforehand. */
static bool stage_can(const char *micro, const char *update, uint8_t action, double *guess_s) {
  static const char speed[] = "device: {flops: 1e9, bandwidth_gb_s: 1}\n"
                              "costs: {launch_us: 2}\n" /* of an instruction, which is all here */
                              "links: [{name: net, bandwidth_gb_s: 1, latency_us: 1}]\n";
  static const uint32_t piece_of[] = {MICRO};
  cluster c;
  bool can[STAGES];
  double seconds[STAGES];
  uint8_t of_micro[] = {action}, of_update[] = {ACTION_UPDATE, ACTION_UPDATE, ACTION_UPDATE};
  uint8_t *actions[PIECES * MESHES] = {of_micro, NULL, of_update, NULL};
  program *p[] = {parse(micro), parse(update)};
  const program *lowered[PIECES * MESHES] = {p[MICRO], NULL, p[UPDATE], NULL};
  const mesh *meshes[MESHES] = {NULL};
  CHECK_OK(cluster_parse(speed, strlen(speed), "c.yaml", &c));
  const pipeline_step s = {.place = {STAGES, MESHES, (uint16_t[]){0, 0}},
                           .mesh = meshes,
                           .cluster = &c,
                           .pieces = PIECES,
                           .lowered = lowered,
                           .crossing = crossing,
                           .crossings = sizeof crossing / sizeof *crossing,
                           .piece_of = piece_of,
                           .micros = 1,
                           .update = UPDATE};
  CHECK_OK(pipeline_ahead_stages(&s, actions, can, seconds));
  CHECK(can[0] && seconds[0] == 0);
  *guess_s = seconds[1];
  program_free(p[MICRO]);
  program_free(p[UPDATE]);
  return can[1];
}

TEST(a_stage_that_needs_what_only_the_update_gives_does_not_run_ahead) {
  static const struct {
    const char *forward;
    bool can;
  } cases[] = {{"b0", true},   /* a param with an output beforehand */
               {"b1", false},  /* one that is updated, without */
               {"b2", true},   /* one that is not */
               {"b3", true},   /* what crosses in each micro-batch */
               {"b4", false}}; /* a param of another mesh, which crosses once a step */
  static const char update[] = PROGRAM("compute: b8 = exp b2 phase=update stage=1\n"
                                       "compute: b0 = exp b2 phase=update\n"
                                       "compute: b1 = exp b2 phase=update\n");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[2048];
    double guess_s;
    snprintf(text, sizeof text, "%scompute: b6 = exp %s stage=1\n", PROGRAM(""), cases[i].forward);
    CHECK_EQ(stage_can(text, update, ACTION_FORWARD, &guess_s), cases[i].can);
    CHECK_NEAR(guess_s, 2e-6, 1e-15);
    CHECK(stage_can(text, update, ACTION_BACKWARD, &guess_s));
  }
}

TEST(a_stage_that_writes_what_is_there_only_after_the_update_does_not_run_ahead) {
  static const char *const to[] = {"b6", "b7", "b1"}; /* sent on; an output; what is assigned */
  static const char update[] = PROGRAM("compute: b8 = exp b2 phase=update stage=1\n"
                                       "compute: b0 = exp b2 phase=update\n");
  for (int i = 0; i < 3; i++) {
    char text[2048];
    double guess_s;
    snprintf(text, sizeof text, "%scompute: %s = exp b0 stage=1\n", PROGRAM(""), to[i]);
    CHECK_EQ(stage_can(text, update, ACTION_FORWARD, &guess_s), i == 0);
  }
}

TEST(a_stage_whose_gradients_come_from_another_mesh_does_not_run_ahead) {
  static const char micro[] = PROGRAM("compute: b6 = exp b0 stage=1\n");
  static const char update[] = PROGRAM("compute: b8 = exp b5 phase=update stage=1\n"
                                       "compute: b0 = exp b2 phase=update\n");
  double guess_s;
  CHECK(!stage_can(micro, update, ACTION_FORWARD, &guess_s));
}

/* What the update computes anyway is not computed twice. */
TEST(beforehand_takes_what_the_update_does_not_need) {
  static const char micro[] = PROGRAM("compute: b6 = exp b0 stage=1\n");
  static const char shared[] = PROGRAM("compute: b9 = exp b2 phase=update stage=1\n"
                                       "compute: b8 = exp b9 phase=update stage=1\n"
                                       "compute: b0 = exp b9 phase=update\n");
  static const char alone[] = PROGRAM("compute: b9 = exp b2 phase=update stage=1\n"
                                      "compute: b8 = exp b9 phase=update stage=1\n"
                                      "compute: b0 = exp b2 phase=update\n");
  double guess_s;
  CHECK(stage_can(micro, shared, ACTION_FORWARD, &guess_s));
  CHECK_NEAR(guess_s, 2e-6, 1e-15);
  CHECK(stage_can(micro, alone, ACTION_FORWARD, &guess_s));
  CHECK_NEAR(guess_s, 4e-6, 1e-15);
}
