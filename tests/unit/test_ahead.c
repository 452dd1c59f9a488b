/* What a program does for the next step: which instructions the params ahead need, and which values
 * are kept between runs. */
#include "base/mem.h"
#include "prog/ahead.h"
#include "prog/link.h"
#include "test.h"

#include <string.h>

static program *parse(const char *text) {
  program *p = NULL;
  CHECK_OK(program_parse(text, strlen(text), "ahead", &p));
  return p;
}

TEST(outputs_ahead_stand_for_the_param_of_their_name) {
  CHECK_STR(ahead_param("ahead.w"), "w");
  CHECK_STR(ahead_param("ahead.ahead.w"), "ahead.w");
  CHECK(!ahead_param("ahea.w") && !ahead_param("w") && !ahead_param(""));
}

/* b3 is needed by ahead.w and by what is assigned; b7 by nothing. */
static const char update[] = "arena device 1280 bound 1280 at 0\n"
                             "b0 = f32[2] state \"w\"\n"
                             "b1 = f32[2] state \"g\"\n"
                             "b2 = f32[2] state \"m\"\n"
                             "b3 = f32[2] device+0\n"
                             "b4 = f32[2] device+256 output \"ahead.w\"\n"
                             "b5 = f32[2] device+512 output \"norm\"\n"
                             "b6 = f32[2] device+768 output \"ahead.v\"\n"
                             "b7 = f32[2] device+1024\n"
                             "compute: b3 = exp b1 phase=update\n"
                             "compute: b4 = exp b3 phase=update\n"
                             "compute: b5 = exp b1 phase=update\n"
                             "compute: b2 = exp b3 phase=update\n"
                             "compute: b6 = exp b1 phase=update stage=1\n"
                             "compute: b7 = exp b1 phase=update\n";

TEST(instructions_are_needed_by_params_ahead_by_the_rest_or_by_both) {
  static const uint8_t all[] =
      {AHEAD_PART | AHEAD_REST, AHEAD_PART, AHEAD_REST, AHEAD_REST, AHEAD_PART, 0};
  static const bool first[] = {true, false}, none[] = {false, false};
  uint8_t part[6];
  program *p = parse(update);
  CHECK_OK(ahead_parts(p, NULL, part));
  CHECK(!memcmp(part, all, sizeof all));
  CHECK_OK(ahead_parts(p, first, part));
  CHECK(!memcmp(part, all, 4) && !part[4] && !part[5]);
  CHECK_OK(ahead_parts(p, none, part));
  CHECK_EQ(part[0], AHEAD_REST); /* for what is assigned */
  CHECK_EQ(part[1], 0);
  program_free(p);
}

/* Buffers 2 to 5 of this step and 6 to 9 of the next: one that other instructions read, one that
 * only forwards read, a gradient, and a view of the first; then one that is of no micro-batch. */
static const char step[] = "arena device 1792 bound 1792 at 0\n"
                           "b0 = f32[2] state \"w\"\n"
                           "b1 = f32[2] state \"g\"\n"
                           "b2 = f32[2] device+0\n"
                           "b3 = f32[2] device+256\n"
                           "b4 = f32[2] device+512\n"
                           "b5 = f32[1] view b2+0\n"
                           "b6 = f32[2] device+768\n"
                           "b7 = f32[2] device+1024\n"
                           "b8 = f32[2] device+1280\n"
                           "b9 = f32[1] view b6+0\n"
                           "b10 = f32[2] device+1536\n"
                           "compute: b3 = exp b0\n"
                           "compute: b2 = exp b3\n"
                           "compute: b4 = exp b2\n"
                           "compute: b10 = exp b4\n"
                           "compute: b1 = exp b10\n"
                           "compute: b7 = exp b0\n"
                           "compute: b6 = exp b7\n";

TEST(values_that_other_instructions_read_are_kept_between_runs) {
  static const uint8_t ahead[] = {AHEAD_AGAIN, AHEAD_AGAIN, 0, 0, 0, AHEAD_NEXT, AHEAD_NEXT};
  const ahead_range range = {.again = 2, .next = 6, .n = 4};
  program *p = parse(step);
  for (size_t i = 0; i < p->insts.len; i++) p->insts.at[i].ahead = ahead[i];
  CHECK_OK(ahead_carry(p, &range, 1));
  CHECK_EQ(p->buffers.len, 10); /* nothing uses the gradient of the next step */
  for (uint32_t b = 0; b < p->buffers.len; b++) {
    const prog_buffer *f = &p->buffers.at[b];
    CHECK_EQ(f->carries, b == 2 || b == 6 ? 3 : 0);
    CHECK_EQ(f->flags, b == 2 ? BUFFER_CARRIED_IN : b == 6 ? BUFFER_CARRIED_OUT : 0);
    CHECK_EQ(f->root, b == 5 ? 2 : b == 8 ? 6 : b);
  }
  CHECK_EQ(program_args(p, program_inst(p, 3))[1], 9); /* b10, whose number has changed */
  CHECK_EQ(program_args(p, program_inst(p, 6))[1], 6);
  program_free(p);
}

/* Reads one half of w. */
static const char forward[] = "arena device 256 bound 256 at 0\n"
                              "b0 = f32[2] state \"w\"\n"
                              "b1 = f32[1] view b0+4\n"
                              "b2 = f32[1] device+0\n"
                              "compute: b2 = exp b1\n";

static const prog_buffer *root_of(const program *p, uint32_t inst, int arg) {
  return &p->buffers.at[program_arg(p, program_inst(p, inst), arg)->root];
}

/* A forward, what the next step reads, that forward of the next step, and the rest of the update.
 */
TEST(rows_of_the_next_step_read_the_params_ahead_of_an_update) {
  static const bool ahead[] = {true, false};
  static const link_row row[] = {
      {.piece = 0, .actions = ACTION_FORWARD, .of_stage = true, .ahead = AHEAD_AGAIN},
      {.piece = 1, .actions = ACTION_UPDATE, .part = LINK_AHEAD},
      {.piece = 0,
       .actions = ACTION_FORWARD,
       .of_stage = true,
       .microbatch = 1,
       .ahead = AHEAD_NEXT},
      {.piece = 1, .actions = ACTION_UPDATE, .part = LINK_BEHIND},
  };
  const link_rows rows = {.row = row, .rows = 4, .micros = 1, .update = 1, .ahead = ahead};
  program *piece[] = {parse(forward), parse(update)}, *p;
  uint32_t kernel0[2];
  CHECK_OK(program_link((const program *const *)piece, 2, &rows, kernel0, &p));
  /* exp(g), which both parts need, is of every run; ahead.w of those that run ahead; not ahead.v */
  static const uint8_t is_ahead[] = {AHEAD_AGAIN, 0, AHEAD_NEXT, AHEAD_NEXT, 0, 0};
  CHECK_EQ(p->insts.len, sizeof is_ahead);
  for (uint32_t i = 0; i < p->insts.len; i++) CHECK_EQ(program_inst(p, i)->ahead, is_ahead[i]);
  CHECK(root_of(p, 0, 0)->place == PLACE_STATE);
  CHECK(root_of(p, 3, 0) == root_of(p, 2, 1)); /* the half of ahead.w */
  CHECK_EQ(program_arg(p, program_inst(p, 3), 0)->at, 4);
  CHECK(root_of(p, 3, 0)->place == PLACE_WORK && !root_of(p, 3, 0)->flags);
  program_free(p);
  for (int i = 0; i < 2; i++) program_free(piece[i]);
}
