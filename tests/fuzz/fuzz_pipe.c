/* Pipeline schedules: what is read prints to a text that reads back the same; what passes the
 * checker can be simulated, and does not deadlock in the global order of its transfers. */
#include "fuzz.h"
#include "mutate.h"

#include "sched/pipe_check.h"
#include "sched/pipe_streams.h"

#include <string.h>

static void check_round_trip(const pipe_rows *p) {
  str one = {0}, two = {0};
  pipe_rows again;
  pipe_rows_print(p, &one);
  HP_ASSERT(!str_status(&one));
  HP_ASSERT(!pipe_rows_parse(one.at, "again", (pipe_shape){p->stages, p->microbatches}, &again));
  pipe_rows_print(&again, &two);
  HP_ASSERT(!str_status(&two) && !strcmp(one.at, two.at));
  pipe_rows_free(&again);
  str_free(&one);
  str_free(&two);
}

static void check_run(const pipe_rows *p, const pipe_costs *c) {
  pipe_times t;
  pipe_streams s;
  const bool runs = !pipe_check(p, "fuzz", c, (pipe_limits){0});
  HP_ASSERT(runs == !pipe_simulate(p, "fuzz", c, PIPE_ONE_STREAM, &t));
  if (!runs) return;
  HP_ASSERT(!pipe_streams_create(p, &t, &s) && !pipe_streams_check(p, "fuzz", &t, &s));
  pipe_streams_free(&s);
  pipe_times_free(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
  str text = {0};
  pipe_rows p;
  static const pipe_costs unit = {0};
  str_add_n(&text, (const char *)bytes, n);
  if (pipe_rows_parse(text.at ? text.at : "", "fuzz", (pipe_shape){0}, &p))
    HP_ASSERT(!strncmp(err_message(), "fuzz:", 5));
  else {
    check_round_trip(&p);
    check_run(&p, &unit);
    pipe_rows_free(&p);
  }
  str_free(&text);
  err_clear();
  return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n, size_t max, unsigned seed) {
  static const char *const word[] = {"stages", "microbatches", "placement", "device", "F", "B",
                                     "W",      "BW",           "U",         "+"};
  mutate_rng r = {seed};
  return mutate_text(bytes, n, max, &r, word, sizeof word / sizeof *word);
}
