/* `hyper explain`: what the compiler decides for a training step, without running it. */
#include "base/escape.h"
#include "base/io.h"
#include "base/json.h"
#include "base/philox.h"
#include "cli/cli.h"
#include "model/lm.h"
#include "train/trainer.h"

#include <stdio.h>
#include <string.h>

/* Bytes of the parameters, and of what the optimizer keeps. */
static int64_t param_bytes(const lm *m) { return (int64_t)model_config_params(&m->c) * 4; }
static int64_t state_bytes(const train_config *c, const lm *m) {
  return c->optim == OPTIM_SGD ? 0 : 2 * param_bytes(m);
}

static void print_summary(const train_config *c, const lm *m, const hp_program_stats *s) {
  printf("model          %s, %.3f M parameters\n", escape_name(m->c.model_type).text,
         model_config_params(&m->c) * 1e-6);
  printf("step           %lld x %lld tokens, %.3f GFLOP, %d instructions, %d loop kernels\n",
         (long long)c->is.batch.rows, (long long)c->is.block, s->flops * 1e-9, s->instructions,
         s->kernels);
  printf("memory         parameters %.1f MiB, optimizer %.1f MiB, work %.1f MiB (no plan needs "
         "less than %.1f)\n",
         (double)param_bytes(m) / 1048576, (double)state_bytes(c, m) / 1048576,
         (double)s->work_bytes / 1048576, (double)s->work_bound / 1048576);
  printf("compile time   %.3f s\n", s->compile_s);
}

static hp_status print_json(const train_config *c, const lm *m, const hp_program_stats *s) {
  const struct {
    const char *key;
    int64_t value;
  } row[] = {{"parameters", (int64_t)model_config_params(&m->c)},
             {"batch", c->is.batch.rows},
             {"seq", c->is.block},
             {"instructions", s->instructions},
             {"kernels", s->kernels},
             {"step_flops", (int64_t)s->flops},
             {"parameter_bytes", param_bytes(m)},
             {"optimizer_bytes", state_bytes(c, m)},
             {"work_bytes", (int64_t)s->work_bytes},
             {"work_bound_bytes", (int64_t)s->work_bound}};
  str text = {0};
  json_writer w = {.out = &text};
  json_open_map(&w);
  json_put_key(&w, "model_type");
  json_put_string(&w, m->c.model_type);
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    json_put_key(&w, row[i].key);
    json_put_int(&w, row[i].value);
  }
  json_put_key(&w, "compile_s");
  json_put_double(&w, s->compile_s);
  json_close(&w);
  hp_status st = str_status(&text);
  if (!st) puts(text.at);
  str_free(&text);
  return st;
}

typedef struct {
  const char *what; /* a topic; NULL: the summary alone */
  const char *svg;  /* the file that a picture goes to, in place of text */
  bool json;
} question;

static bool asks(const question *q, const char *what) { return q->what && !strcmp(q->what, what); }

/* Steps on a micro-batch of random tokens, [B,T] and one more. */
static hp_status run_steps(stepper *s, const train_config *c, const int32_t *ids) {
  enum { STEPS = 8 };
  int64_t B = c->is.batch.rows, T = c->is.block;
  step_micro b = {.B = B,
                  .T = T,
                  .ids = ids,
                  .labels = ids + 1,
                  .weight = 1.0 / (double)(B * T),
                  .first = true,
                  .last = true};
  for (int64_t t = 1; t <= STEPS; t++) {
    step_result r;
    HP_TRY(stepper_run(s, &b, &(step_update){.lr = 1e-4, .t = t}, &r));
  }
  return HP_OK;
}

static hp_status time_steps(const train_config *c, lm *m, const char *what, char **text) {
  step_options o = trainer_step_options(c);
  stepper *s;
  int64_t n = c->is.batch.rows * c->is.block + 1;
  HP_TRY(lm_init(m, (uint64_t)c->seed));
  HP_TRY(stepper_create(m, &o, &s));
  int32_t *ids = mem_calloc((size_t)n, sizeof *ids);
  for (int64_t i = 0; ids && i < n; i++)
    ids[i] = (int32_t)(philox_u32(1, 7, (uint64_t)i) % (uint64_t)m->c.vocab);
  hp_status st = ids ? run_steps(s, c, ids) : HP_ERR_OOM;
  if (!st) st = hp_explain(stepper_program(s), what, text);
  mem_free(ids);
  stepper_free(s);
  return st;
}

/* Where the time of a step goes, measured: nothing of it is kept. */
static hp_status explain_time(const train_config *c, lm *m, const question *q) {
  char *text = NULL;
  hp_status st = time_steps(c, m, q->json ? "ops.json" : "ops", &text);
  if (!st) escape_print(text, stdout);
  hp_free(text);
  return st;
}

static hp_status explain_plan(const train_config *c, lm *m, hp_device *d, const question *q) {
  char *text = NULL;
  hp_program_stats s;
  step_options o = trainer_step_options(c);
  bool table = q->json && asks(q, "ops");
  const char *what = q->svg ? "layouts.svg" : table ? "ops.json" : q->what;
  hp_status st =
      stepper_plan(m, &o, c->is.batch.rows, c->is.block, d, &s, what, what ? &text : NULL);
  if (!st && q->json && !table) st = print_json(c, m, &s);
  else if (!st && !table) print_summary(c, m, &s);
  if (!st && q->svg) st = file_write(q->svg, text, strlen(text));
  else if (!st && text) {
    if (!table) putchar('\n');
    escape_print(text, stdout);
  }
  hp_free(text);
  return st;
}

static hp_status explain(const train_config *c, const question *q) {
  hp_device *d = NULL;
  lm *m = NULL;
  bool plan = !asks(q, "time");
  train_config_tell(c);
  hp_status st = trainer_open_model(c, plan, &d, &m);
  if (!st) st = plan ? explain_plan(c, m, d, q) : explain_time(c, m, q);
  lm_free(m);
  hp_device_close(d);
  return st;
}

/* Does what was asked go together? */
static int check(const char *verb, const question *q) {
  if (q->json && q->what && !asks(q, "ops") && !asks(q, "time"))
    return cli_usage(verb, "%s is text for people: leave it out, or --json", q->what);
  if (q->svg && !asks(q, "layouts"))
    return cli_usage(verb, "--svg draws layouts: write layouts --svg %s", q->svg);
  return CLI_GO_ON;
}

int verb_explain(int argc, char **argv) {
  static const char *const topics[] = {"layouts", "comm", "memory", "schedule",
                                       "ops",     "time", NULL};
  question q = {0};
  const cli_option option[] = {{"--json", CLI_FLAG, &q.json, NULL,
                                "the summary, ops or time as one JSON object"},
                               {"--svg", CLI_TEXT, &q.svg, "F.svg",
                                "layouts as a picture: the parts of tensors, by device"}};
  const cli_spec spec =
      {"hyper explain CONFIG.yaml [layouts|comm|memory|schedule|ops|time] [--json] [key=value ...]",
       "What the compiler decides for one training step: memory and what fills it, the program\n"
       "instruction by instruction, the work by op and its time at the limits of this machine;\n"
       "what each device holds and what goes between them.  Nothing is trained, but for time:\n"
       "some steps on random tokens, which tell where time goes.  key=value, or --key value,\n"
       "overrides a key of the file.",
       "hyper explain examples/demo/demo.yaml layouts strategy=dp=2,tp=2 --svg layouts.svg", option,
       sizeof option / sizeof *option};
  cli_config words;
  train_config c;
  int code = cli_parse_config(&spec, topics, argc, argv, &words);
  if (code != CLI_GO_ON) return code;
  q.what = words.what;
  code = check(argv[0], &q);
  hp_status st =
      code == CLI_GO_ON ? train_config_load(words.file, words.key, words.keys, &c) : HP_OK;
  arena_free(&words.text);
  if (code != CLI_GO_ON) return code;
  if (st) return cli_fail(st);
  st = explain(&c, &q);
  train_config_free(&c);
  return st ? cli_fail(st) : 0;
}
