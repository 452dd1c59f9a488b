/* `hyper bench`: measured figures next to the machine's limits. */
#include "base/io.h"
#include "cli/bench.h"
#include "train/optimizer.h"

#include <string.h>

enum { STEPS = 5, NAMES_MAX = 256 };

typedef struct {
  const char *name;
  hp_status (*run)(const bench_args *a);
} kind;
static const kind kinds[] = {
#define KIND(name, about) {#name, bench_##name},
#include "cli/bench.def"
#undef KIND
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static const char about[] =
    "Medians and the machine's own limits, which are measured in the same run.  A model is\n"
    "given by its folder or its config.json alone; its weights are random.\n"
#define KIND(name, about) "\n  " #name ": " about
#include "cli/bench.def"
#undef KIND
    "\n  all: each of these but cost";

static int refuse_kind(const char *verb, const char *word) {
  const char *name[KINDS + 1] = {"all"};
  for (int i = 0; i < KINDS; i++) name[i + 1] = kinds[i].name;
  const char *near = str_nearest(word, name, KINDS + 1);
  if (near) return cli_usage(verb, "\"%s\" is no kind, did you mean %s?", word, near);
  return cli_usage(verb, "\"%s\" is no kind of figures", word);
}

static bool is_sound(const bench_args *a) {
  return (a->batch == BENCH_USUAL || (a->batch >= 1 && a->batch <= 65536)) && a->seq >= 2 &&
         a->seq <= 1 << 24 && a->steps >= 1 && a->steps <= 1000000 && a->interleave >= 0 &&
         a->context >= 0 && a->context <= 1 << 28 && a->interleave <= 16 && a->accumulate >= 1 &&
         a->accumulate <= 4096 && a->m.threads >= 0 && a->m.threads <= 1024;
}

/* One kind, or all of them. */
static int run_kind(const char *verb, const char *word, bench_args *a) {
  bool all = !strcmp(word, "all"), found = false;
  hp_status st = HP_OK;
  if (all && !a->m.model) a->m.model = "examples/demo/model/config.json";
  for (int i = 0; !st && i < KINDS; i++) {
    if (all ? !strcmp(kinds[i].name, "cost") : strcmp(word, kinds[i].name)) continue;
    found = true;
    st = kinds[i].run(a);
  }
  if (!found) return refuse_kind(verb, word);
  return st ? cli_fail(st) : 0;
}

/* Where copy writes and reads a file, or a tier of the device of those that run a model. */
static bool takes_flash(const char *word) {
  static const char *const name[] = {"copy", "step", "prefill", "decode", "compile"};
  for (size_t i = 0; i < sizeof name / sizeof *name; i++)
    if (!strcmp(name[i], word)) return true;
  return false;
}

/* That a file cannot be written is told before anything is measured. */
static hp_status check_files(const bench_args *a) {
  if (a->trace) HP_TRY(file_check_target(a->trace));
  return a->write ? file_check_target(a->write) : HP_OK;
}

int verb_bench(int argc, char **argv) {
  bench_table table = {.head = {0}};
  bench_args a = {.table = &table,
                  .batch = BENCH_USUAL,
                  .seq = 256,
                  .steps = STEPS,
                  .accumulate = 1};
  const char *rest[NAMES_MAX];
  int n;
  const cli_option option[] =
      {MODEL_OPTIONS(a.m),
       {"--batch", CLI_INT, &a.batch, "B", "sequences (default: 4; prefill, decode: 1)"},
       {"--seq", CLI_INT, &a.seq, "T", "tokens of a sequence (default: 256)"},
       {"--context", CLI_INT, &a.context, "N",
        "decode: tokens before those, with any keys and values, so that none is computed"},
       {"--kv-sparse", CLI_INT, &a.sparse, "N", "decode: attention to N blocks of 32 tokens"},
       {"--steps", CLI_INT, &a.steps, "N", "timed repetitions after 2 for warm-up (default: 5)"},
       {"--accumulate", CLI_INT, &a.accumulate, "N", "step, compile: micro-batches (default: 1)"},
       {"--host-update", CLI_FLAG, &a.host_update, NULL,
        "step: the host updates what the limit keeps in its memory"},
       {"--recompute", CLI_FLAG, &a.remat, NULL, "step: recompute activations"},
       {"--no-recompute", CLI_FLAG, &a.keep, NULL,
        "step: keep activations, also where a memory limit makes it faster to recompute them"},
       {"--optimizer", CLI_TEXT, &a.optimizer, "NAME",
        "step: adamw (default), sgd, adafactor, lion or muon"},
       {"--interleave", CLI_INT, &a.interleave, "N",
        "step: chunks of the batch: one communicates while another is computed"},
       {"--serial", CLI_FLAG, &a.serial, NULL,
        "step: collectives run between computations, not overlapped"},
       {"--shape", CLI_TEXT, &a.shape, "MxKxN", "gemm: one product in place of a model's"},
       {"--size", CLI_SIZE, &a.size, "BYTES",
        "op: of its largest tensor (default: 128MiB); copy: the most at a time (default: 256MiB)"},
       {"--write", CLI_TEXT, &a.write, "F.yaml", "cost, copy: a cluster file of what was measured"},
       {"--trace", CLI_TEXT, &a.trace, "F.json",
        "the last step as a Chrome / Perfetto trace, an event an instruction"}};
  const cli_spec spec = {"hyper bench KIND [NAME ...] --model DIR|CONFIG.json [--json]", about,
                         "hyper bench step --model config.json --batch 4 --seq 256 --json", option,
                         sizeof option / sizeof *option};
  if (argc > NAMES_MAX) return cli_usage(argv[0], "too many arguments");
  int code = cli_parse_keys(&spec, argc, argv, rest, &n);
  if (code != CLI_GO_ON) return code;
  if (!n) return cli_usage(argv[0], "say what kind of figures");
  if (!is_sound(&a))
    return cli_usage(
        argv[0],
        "--batch, --seq, --steps, --accumulate, --interleave or --threads is out of range");
  if (a.optimizer && optimizer_find(a.optimizer) < 0)
    return cli_usage(argv[0], "--optimizer %s: expected adamw, sgd, adafactor, lion or muon",
                     a.optimizer);
  if (a.write && strcmp(rest[0], "cost") && strcmp(rest[0], "copy"))
    return cli_usage(argv[0], "--write needs the kind cost or copy");
  if (a.m.flash && !takes_flash(rest[0]))
    return cli_usage(argv[0], "--flash needs the kind copy, or one that runs a model");
  if (n > 1 && strcmp(rest[0], "op")) return cli_usage(argv[0], "\"%s\" is not expected", rest[1]);
  const hp_status st = check_files(&a);
  if (st) return cli_fail(st);
  a.name = rest + 1;
  a.names = n - 1;
  code = run_kind(argv[0], rest[0], &a);
  str_free(&table.head);
  return code;
}
