#include "test.h"

#include "pipe_case.h"
#include "sched/pipe_rows.h"

#include <stdlib.h>

static const pipe_shape any = {0};

static void parse(const char *text, pipe_rows *out) {
  CHECK_OK(pipe_rows_parse(text, "file", any, out));
}

static char *print(const pipe_rows *p) {
  str s = {0};
  pipe_rows_print(p, &s);
  CHECK_OK(str_status(&s));
  return s.at;
}

TEST(rows_are_grouped_by_the_device_of_their_stage) {
  pipe_rows p;
  char *text;
  parse("# two stages on one device, as one list\nplacement 1 0 1\n\n"
        "0 F 0\n1 F 0 # next\n 2\tF 0\r\n2 B 0\n1 BW 0\n0 BW 0\n2 W 0\n1 U 0",
        &p);
  CHECK_EQ(p.stages, 3);
  CHECK_EQ(p.devices, 2);
  CHECK_EQ(p.microbatches, 1);
  CHECK_EQ(p.row0[1], 3);
  CHECK_EQ(pipe_rows_count(&p), 8);
  CHECK_EQ(p.row[0].line, 5);
  CHECK_EQ(p.row[4].actions, PIPE_F);
  CHECK_EQ(p.row[4].line, 6);
  text = print(&p);
  CHECK_STR(text, "stages 3\nmicrobatches 1\nplacement 1 0 1\n"
                  "device 0\n1 F 0\n1 BW 0\n1 U 0\n"
                  "device 1\n0 F 0\n2 F 0\n2 B 0\n0 BW 0\n2 W 0\n");
  mem_free(text);
  pipe_rows_free(&p);
}

TEST(a_device_line_places_the_rows_below_it) {
  pipe_rows p;
  parse("stages 2\nmicrobatches 2\nplacement 0 0\n1 F 1\ndevice 0\n0 F 0\n", &p);
  CHECK_EQ(p.devices, 1);
  CHECK_EQ(p.row[1].stage, 0);
  pipe_rows_free(&p);
  parse("device 1\n0 F 0\ndevice 0\n1 F 0\n", &p); /* the checker refuses it */
  CHECK_EQ(p.row[0].stage, 1);
  CHECK_EQ(p.row0[1], 1);
  pipe_rows_free(&p);
}

TEST(without_a_header_the_rows_say_how_many_and_stage_s_is_on_device_s) {
  pipe_rows p;
  parse("0 F 4\n2 B 1\n", &p);
  CHECK_EQ(p.stages, 3);
  CHECK_EQ(p.devices, 3);
  CHECK_EQ(p.microbatches, 5);
  for (uint32_t s = 0; s < 3; s++) CHECK_EQ(p.placement[s], s);
  pipe_rows_free(&p);
  CHECK_OK(pipe_rows_parse("0 F 0\n", "file", (pipe_shape){4, 7}, &p)); /* what is asked for */
  CHECK_EQ(p.stages, 4);
  CHECK_EQ(p.microbatches, 7);
  pipe_rows_free(&p);
}

TEST(two_rows_of_a_line_overlap) {
  pipe_rows p;
  char *text;
  parse("placement 0 0\n0 F 5 + 1 BW 1\n1 B 2 + 0 F 6\n", &p);
  CHECK(p.row[0].with_next && !p.row[1].with_next);
  CHECK(p.row[2].with_next && !p.row[3].with_next);
  CHECK_EQ(p.row[1].line, 2);
  text = print(&p);
  CHECK(strstr(text, "device 0\n0 F 5 + 1 BW 1\n1 B 2 + 0 F 6\n"));
  mem_free(text);
  pipe_rows_free(&p);
}

TEST(random_schedules_print_as_they_read) {
  uint64_t state = 1;
  for (int i = 0; i < pipe_cases(200); i++) {
    pipe_rows p, again;
    random_pipe(&state, i % 2, &p);
    char *one = print(&p);
    CHECK_OK(pipe_rows_parse(one, "again", (pipe_shape){p.stages, p.microbatches}, &again));
    char *two = print(&again);
    CHECK_STR(two, one);
    CHECK_EQ(pipe_rows_count(&again), pipe_rows_count(&p));
    CHECK(!memcmp(again.row, p.row, pipe_rows_count(&p) * sizeof *p.row));
    mem_free(one);
    mem_free(two);
    pipe_rows_free(&p);
    pipe_rows_free(&again);
  }
}

TEST(bad_schedules_are_refused_with_the_line_and_what_was_expected) {
  static const struct {
    const char *text, *message;
  } bad[] = {
      {"", "file: no row; expected lines of: stage action microbatch"},
      {"# nothing\n\n", "no row"},
      {"stages 2\n", "no row"},
      {"0 F 0\n0 G 0\n", "file:2: action \"G\": expected F, B, W, BW or U (a row is: stage action"},
      {"0 FB 0\n", "action \"FB\""},
      {"0 F\n", "file:1: microbatch \"\": expected a number from 0 to 1048575"},
      {"0\n", "action \"\""},
      {"0 F 0 0\n", "file:1: \"0\" at the end of the line: expected no more words"},
      {"0 F 0 +\n", "stage \"\""},
      {"0 F -1\n", "microbatch \"-1\""},
      {"0 F 0x1\n", "microbatch \"0x1\""},
      {"0 F 99999999999999999999\n", "expected a number from 0 to 1048575"},
      {"4096 F 0\n", "stage \"4096\": expected a number from 0 to 4095"},
      {"stages 2\n2 F 0\n", "file:2: stage \"2\": expected a number from 0 to 1"},
      {"microbatches 2\n0 F 2\n", "file:2: microbatch \"2\": expected a number from 0 to 1"},
      {"stages 0\n", "file:1: stages 0: expected at least 1"},
      {"stages 2\nstages 2\n", "file:2: stages is in line 1, too"},
      {"stages 4097\n", "stages \"4097\": expected a number from 0 to 4096"},
      {"placement 0\nplacement 0\n", "file:2: placement is in line 1, too"},
      {"placement 0 1\nstages 3\n0 F 0\n",
       "file:1: placement has 2 devices; expected one for each of 3 stages"},
      {"placement 0 2\n0 F 0\n", "file:1: placement leaves device 1 without a stage; number the"},
      {"placement 0 x\n", "file:1: device of a stage \"x\""},
      {"0 F 0\nstages 1\n", "file:2: stages comes after the first row; expected it above all rows"},
      {"layers 4\n",
       "file:1: \"layers\": expected stages, microbatches, placement, device or a row"},
      {"device 3\n0 F 0\n",
       "file:2: rows of device 3, but the stages are placed on devices 0 to 0"},
      {"device\n", "device \"\""},
      {"placement 0 0\n0 F 0 + 1 F 0\n", "file:2: F + F: rows that overlap are one F and one B or"},
      {"placement 0 0\n0 B 0 + 1 W 0\n", "file:2: B + W: rows that overlap"},
      {"0 F 1 + 1 B 0\n",
       "file:1: rows overlap on one device, but stage 0 is on device 0 and stage"},
      {"placement 0 0\n0 F 0 + 1 B 0 + 0 F 1\n", "\"+\" at the end of the line"},
      {"stages 4096\nmicrobatches 1048576\n0 F 0\n",
       "4096 stages with 1048576 micro-batches: expected at most 524288 of both together"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    pipe_rows p;
    CHECK_FAILS(pipe_rows_parse(bad[i].text, "file", any, &p), bad[i].message);
  }
}

TEST(a_schedule_for_other_stages_or_micro_batches_is_refused) {
  pipe_rows p;
  const pipe_shape want = {2, 4};
  CHECK_FAILS(pipe_rows_parse("# for 8\nstages 8\n0 F 0\n", "file", want, &p),
              "file:2: the schedule has stages 8, but 2 are asked for; generate it for 2");
  CHECK_FAILS(pipe_rows_parse("microbatches 8\n0 F 0\n", "file", want, &p),
              "file:1: the schedule has microbatches 8, but 4 are asked for");
  CHECK_FAILS(pipe_rows_parse("2 F 0\n", "file", want, &p), "file:1: stage \"2\": expected a number"
                                                            " from 0 to 1");
  CHECK_FAILS(pipe_rows_parse("1 F 4\n", "file", want, &p), "microbatch \"4\"");
  CHECK_FAILS(pipe_rows_parse("placement 0 1 2\n1 F 3\n", "file", want, &p),
              "placement has 3 devices; expected one for each of 2 stages");
}

TEST(rows_that_were_read_from_a_file_name_it_in_errors) {
  pipe_rows p;
  CHECK_FAILS(pipe_rows_parse("# file my rows.txt\n0 F 0\n0 X 0\n", "rows", any, &p),
              "my rows.txt:2: action \"X\"");
  CHECK_FAILS(pipe_rows_parse("# file rows.txt", "rows", any, &p), "rows.txt: no row");
  CHECK_FAILS(pipe_rows_parse("# files\n0 X 0\n", "rows", any, &p), "rows:2: action");
  CHECK_OK(pipe_rows_parse("# file rows.txt\n0 F 0\n0 BW 0\n", "rows", any, &p));
  CHECK_EQ(p.row[1].line, 2);
  pipe_rows_free(&p);
}

TEST(a_line_of_70_kb_is_refused_with_a_short_message) {
  enum { LONG = 70 << 10 };
  static const char *const start[] = {"", "0 ", "0 F ", "stages ", "0 F 0 ", "device "};
  char *text = mem_calloc(LONG + 1, 1);
  for (size_t i = 0; i < sizeof start / sizeof *start; i++)
    for (const char *c = "x9+"; *c; c++) {
      pipe_rows p;
      memset(text, *c, LONG);
      memcpy(text, start[i], strlen(start[i]));
      CHECK_EQ(pipe_rows_parse(text, "file", any, &p), HP_ERR_INPUT);
      CHECK(!strncmp(err_message(), "file:1: ", 8));
      CHECK(strlen(err_message()) < 200);
      err_clear();
    }
  mem_free(text);
}

TEST(a_placement_of_too_many_stages_is_refused) {
  str s = {0};
  pipe_rows p;
  str_add(&s, "placement");
  for (int i = 0; i <= PIPE_STAGES; i++) str_add(&s, " 0");
  CHECK_FAILS(pipe_rows_parse(s.at, "file", any, &p), "placement has more than 4096 stages");
  str_free(&s);
}

TEST(more_rows_than_any_schedule_has_are_refused) {
  enum { ROW = 6 };
  char *text = mem_calloc(PIPE_ROWS + 1, ROW);
  pipe_rows p;
  CHECK(text);
  for (size_t i = 0; i <= PIPE_ROWS; i++) memcpy(text + i * ROW, "0 F 0\n", ROW);
  text[(PIPE_ROWS + 1) * (size_t)ROW - 1] = 0;
  CHECK_FAILS(pipe_rows_parse(text, "file", any, &p),
              "file:2097153: more than 2097152 rows, and no schedule has as many");
  mem_free(text);
}

TEST(reading_a_schedule_fails_cleanly_at_every_allocation) {
  hp_status st = HP_ERR_OOM;
  int n = 1;
  for (; st; n++) {
    pipe_rows p = {0};
    mem_fail_at((uint64_t)n);
    st = pipe_rows_parse("placement 0 1\n0 F 0\n1 F 0\n1 B 0\n0 B 0\n", "file", any, &p);
    mem_fail_at(0);
    CHECK(!st || st == HP_ERR_OOM);
    pipe_rows_free(&p);
    err_clear();
  }
  CHECK(n > 5);
}
