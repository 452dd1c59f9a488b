/* Which updates the host's processors can do, before or after all that the device does. */
#include "compile/host_update.h"
#include "test.h"

#include <string.h>

/* p, s and g are named tensors, lr is an input; w, a and b are made by instructions. */
static const char buffers[] = "arena device 65536 bound 0 at 0\n"
                              "b0 = f32[8] state \"p\"\nb1 = f32[8] state \"s\"\n"
                              "b2 = f32[8] state \"g\"\nb3 = f32[] device+0 input \"lr\"\n"
                              "b4 = f32[] device+256\nb5 = f32[] device+512\n"
                              "b6 = f32[8] device+768\nb7 = f32[8192] device+1024\n";

#define LOOP(out, in, phase) "compute: " out " = fused " in " {body=\"\"} @\"\" phase=" phase "\n"
#define UPDATE(in)           LOOP("b0, b1", "b0, b1, " in, "update")
#define READ(in)             "compute: b5 = sum_sq " in " @\"\"\n"
#define GRADIENT             LOOP("b6", "b0", "backward")

static bool all_may(const void *context, const prog_buffer *f) {
  (void)context, (void)f;
  return true;
}
static bool all_but(const void *name, const prog_buffer *f) { return f->name != *(uint32_t *)name; }

static program *parse(const char *insts) {
  program *p;
  str text = {0};
  str_printf(&text, "%s%s", buffers, insts);
  CHECK_OK(str_status(&text));
  CHECK_OK(program_parse(text.at, text.len, "text", &p));
  str_free(&text);
  return p;
}

/* want: of each instruction a letter: before, after, or . for the device. */
static void check(int line, const program *p, const uint64_t *workspace, host_update_may may,
                  const void *context, const char *want) {
  static const char letter[] = {[HOST_NONE] = '.', [HOST_BEFORE] = 'b', [HOST_AFTER] = 'a'};
  uint8_t on_host[8];
  char have[9] = {0};
  CHECK(p->insts.len <= 8);
  CHECK_OK(host_update_find(p, workspace, may, context, on_host));
  for (size_t i = 0; i < p->insts.len; i++) have[i] = letter[on_host[i]];
  if (strcmp(have, want)) test_fail(__FILE__, line, "%s, expected %s", have, want);
}

static void check_all(int line, const char *insts, const char *want) {
  static const uint64_t workspace[8];
  program *p = parse(insts);
  check(line, p, workspace, all_may, NULL, want);
  program_free(p);
}
#define FINDS(want, insts) check_all(__LINE__, insts, want)

TEST(updates_at_the_end_are_after_all_else) {
  FINDS(".a", GRADIENT UPDATE("b6"));
  FINDS(".a.", GRADIENT UPDATE("b6") READ("b6"));
  FINDS("...", GRADIENT UPDATE("b6") READ("b0"));                       /* reads what it writes */
  FINDS("...", GRADIENT UPDATE("b6, b2") LOOP("b2", "b3", "backward")); /* writes what it reads */
  FINDS("...", GRADIENT UPDATE("b6") LOOP("b1", "b3", "backward"));
  FINDS(".aa", GRADIENT LOOP("b1", "b1, b6", "update") LOOP("b0", "b0, b1", "update"));
  FINDS("..a", GRADIENT READ("b6") UPDATE("b6, b5"));
}

TEST(updates_at_the_beginning_are_before_all_else) {
  FINDS("b..", UPDATE("b2, b3") READ("b0") LOOP("b2", "b0", "backward"));
  FINDS(".b.", READ("b2") UPDATE("b2, b3") READ("b0"));
  FINDS("...", READ("b0") UPDATE("b2, b3") READ("b0"));
  FINDS("...", LOOP("b2", "b3", "backward") UPDATE("b2, b3") READ("b0"));
  FINDS("...", GRADIENT UPDATE("b6") READ("b0"));
  FINDS("bb.", LOOP("b1", "b1, b2", "update") LOOP("b0", "b0, b1", "update") READ("b0"));
}

TEST(small_loops_are_where_what_needs_them_is) {
#define SMALL LOOP("b4", "b3", "update")
  FINDS("bb.", SMALL UPDATE("b2, b4") READ("b0"));
  FINDS("....", SMALL UPDATE("b2, b4") READ("b0") READ("b4"));
  FINDS("..", SMALL READ("b0"));
  FINDS("..a", SMALL GRADIENT UPDATE("b6, b4"));
  FINDS("...", LOOP("b7", "b3", "update") UPDATE("b2, b7") READ("b0")); /* 32 KiB */
#undef SMALL
}

TEST(what_the_host_cannot_do_is_on_the_device) {
  uint64_t workspace[8] = {0};
  FINDS(".", LOOP("b0, b6", "b0", "update"));
  FINDS(".", LOOP("b0, b1", "b0, b1, b2", "backward"));
  FINDS(".", "compute: b0 = sum_sq b2 @\"\" phase=update\n");
  program *p = parse(UPDATE("b2, b3"));
  check(__LINE__, p, workspace, all_may, NULL, "a");
  check(__LINE__, p, workspace, all_but, &p->buffers.at[1].name, ".");
  check(__LINE__, p, workspace, all_but, &p->buffers.at[2].name, ".");
  workspace[program_inst(p, 0)->kernel] = 8;
  check(__LINE__, p, workspace, all_may, NULL, ".");
  program_free(p);
}
