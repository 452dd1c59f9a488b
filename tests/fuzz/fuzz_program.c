/* Program texts: what is read prints to a text that reads back the same, and can be explained; what
 * is accepted as safe runs, if it is small. */
#include "fuzz.h"
#include "mutate.h"

#include "base/dtype.h"
#include "codegen/loop.h"
#include "hyperparallel.h"
#include "prog/program.h"
#include "rt/explain.h"
#include "rt/explain_chain.h"
#include "rt/memory_picture.h"
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

/* Loops of few steps, in tensors of few bytes: equations and convolutions are at most a small
 * product of those. */
static bool is_small(const program *p) {
  enum { STEPS_MAX = 1 << 16, BYTES_MAX = 1 << 12 };
  for (size_t b = 0; b < p->buffers.len; b++)
    if (p->buffers.at[b].bytes > BYTES_MAX) return false;
  for (size_t i = 0; i < p->insts.len; i++) {
    const prog_inst *n = program_inst(p, i);
    const char *body = n->op == OP_FUSED ? inst_str(p, n, "body") : NULL;
    double steps = 1;
    loop l = {0};
    if (!body || loop_parse(body, strlen(body), "loop", &l)) continue;
    for (int d = 0; d < l.space.rank; d++) steps *= (double)l.space.dim[d];
    loop_free(&l);
    if (steps > STEPS_MAX) return false;
  }
  return true;
}

static void run(hp_program *p) {
  enum { IO_MAX = 64 };
  static char zeros[IO_MAX][1 << 12]; /* results of an earlier run are as good */
  hp_io io[IO_MAX];
  int n = hp_program_io_count(p);
  if (n > IO_MAX) return;
  for (int i = 0; i < n; i++) {
    hp_dtype t;
    hp_shape s;
    bool output;
    HP_ASSERT(!hp_program_io_info(p, i, &io[i].name, &t, &s, &output));
    io[i].bytes = dtype_size(t);
    for (int d = 0; d < s.rank; d++) io[i].bytes *= (size_t)s.dim[d];
    io[i].data = zeros[i];
  }
  for (int times = 0; times < 2; times++) (void)hp_run(p, io, n);
}

/* The bytes as a text, which is accepted or refused; never a crash. */
static void load_and_run(const uint8_t *bytes, size_t n) {
  hp_device *d;
  hp_program *p;
  char *text = mem_calloc(n + 1, 1);
  HP_ASSERT(text);
  memcpy(text, bytes, n);
  HP_ASSERT(!hp_device_open(&(hp_device_options){.threads = 1,
                                                 .interpret = true,
                                                 .memory_limit = 1 << 20},
                            &d));
  if (!hp_program_parse(text, "fuzz", d, &p)) {
    run(p);
    hp_program_free(p);
  }
  hp_device_close(d);
  mem_free(text);
}

/* Lifetimes and memory by any times, of a program that nothing has checked. */
static void explain_any_times(const program *p) {
  inst_times *t = mem_calloc(p->insts.len, sizeof *t);
  str s = {0};
  HP_ASSERT(t);
  for (size_t i = 0; i < p->insts.len; i++) {
    double start = (double)(i * 7 % 5);
    t[i] = (inst_times){start, start, start + (double)(i % 3), 0};
  }
  (void)explain_chains(p, NULL, t, "*", &s);
  (void)explain_chains_json(p, NULL, t, "?*", &s);
  (void)memory_picture(p, NULL, t, t, NULL, true, &s);
  str_free(&s);
  mem_free(t);
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
  explain_any_times(p);
  memory_live(p, live, 8);
  bool small = is_small(p);
  program_free(p);
  if (small) load_and_run(bytes, n);
  err_clear();
  return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n, size_t max, unsigned seed) {
  static const char *const key[] = {"arena",    "device",    "host",       "flash",
                                    "state",    "view",      "input",      "output",
                                    "class",    "compute",   "comm",       "copy_in",
                                    "copy_out", "workspace", "wait",       "engine",
                                    "block",    "phase",     "backward",   "stage",
                                    "group",    "flops",     "bytes",      "b0",
                                    "b1",       "b2",        "bound",      "at",
                                    "micro",    "of",        "flash_in",   "flash_out",
                                    "fetch",    "offload",   "carried_in", "carried_out"};
  enum { KEYS = sizeof key / sizeof *key };
  static const char *word[KEYS + OP_COUNT];
  int words = 0;
  mutate_rng r = {seed};
  while (words < KEYS) word[words] = key[words], words++;
  for (int op = 1; op < OP_COUNT; op++) word[words++] = op_table[op].name;
  return mutate_text(bytes, n, max, &r, word, words);
}
