/* Program texts: what is read prints to a text that reads back the same, and can be explained. */
#include "fuzz.h"
#include "mutate.h"

#include "base/dtype.h"
#include "prog/program.h"
#include "rt/explain.h"
#include "rt/memory_use.h"

#include <string.h>

static void check_round_trip(const program *p) {
  str one = {0}, two = {0};
  program *q;
  HP_ASSERT(!program_print(p, &one));
  HP_ASSERT(!program_parse(one.at ? one.at : "", one.len, "printed", &q));
  HP_ASSERT(!program_print(q, &two));
  HP_ASSERT(one.len == two.len && !memcmp(one.at ? one.at : "", two.at ? two.at : "", one.len));
  program_free(q);
  str_free(&one);
  str_free(&two);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
  static const char *const what[] = {"memory", "ops", "schedule"};
  program *p;
  uint64_t live[8];
  device d = {.limits = {1e9, 1e9, 1e9}}; /* alone, and known */
  if (program_parse((const char *)bytes, n, "fuzz", &p)) {
    HP_ASSERT(!strncmp(err_message(), "fuzz:", 5)); /* the line */
    err_clear();
    return 0;
  }
  check_round_trip(p);
  for (int i = 0; i < 3; i++) {
    str s = {0};
    (void)explain_print(p, &d, NULL, NULL, what[i], &s);
    str_free(&s);
  }
  memory_live(p, live, 8);
  program_free(p);
  err_clear();
  return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n, size_t max, unsigned seed) {
  static const char *const key[] = {"arena",    "device",    "host",  "flash",   "state", "view",
                                    "input",    "output",    "class", "compute", "comm",  "copy_in",
                                    "copy_out", "workspace", "wait",  "engine",  "block", "phase",
                                    "backward", "stage",     "group", "flops",   "bytes", "b0",
                                    "b1",       "b2",        "bound", "at"};
  enum { KEYS = sizeof key / sizeof *key };
  static const char *word[KEYS + OP_COUNT];
  int words = 0;
  mutate_rng r = {seed};
  while (words < KEYS) word[words] = key[words], words++;
  for (int op = 1; op < OP_COUNT; op++) word[words++] = op_table[op].name;
  return mutate_text(bytes, n, max, &r, word, words);
}
