/* `hyper explain`: what the compiler decides for a training step, without running it. */
#include "base/escape.h"
#include "base/io.h"
#include "base/json.h"
#include "base/log.h"
#include "base/philox.h"
#include "base/units.h"
#include "cli/cli.h"
#include "model/lm.h"
#include "rt/explain_memory.h"
#include "train/step_memory.h"
#include "train/step.h"
#include "train/train_cut.h"
#include "train/trainer.h"

#include <stdio.h>
#include <string.h>

/* What is explained: a step of the configuration, and its plan. */
typedef struct {
  const train_config *c;
  train_config resolved; /* *c: its memory limit is in bytes */
  lm *m;
  hp_device *d;
  planned_program work[2];
  step_planner *planner;
  step_memory memory;
} subject;

/* A step as the configuration has it, and the batch of an evaluation that scores, if there is data
 * for one. */
static step_work find_work(subject *s) {
  const train_config *c = s->c;
  bool evaluates = (c->is.evaluate_after || c->eval_on_start) && !c->predict_with_generate;
  int64_t micros = c->is.batch.accumulation, rows = c->is.batch.replicas;
  s->work[0] = (planned_program){{c->is.batch.rows, c->is.block}, micros};
  s->work[1] = (planned_program){{rows * c->per_device_eval_batch_size, c->is.block}, 0};
  return (step_work){s->work, evaluates && s->work[1].shape.B ? 2 : 1};
}

static hp_status print_summary(const subject *s) {
  const micro_shape *b = &s->work[0].shape;
  const hp_program_stats *p = &s->memory.stats;
  str text = {0};
  memory_print(&p->memory, 15, &text);
  str_add(&text, "step time      predicted ");
  units_add_seconds(&text, p->predicted_s);
  HP_TRY(str_status(&text));
  printf("model          %s, %.3f M parameters\n", escape_name(s->m->c.model_type).text,
         model_config_params(&s->m->c) * 1e-6);
  printf("step           %lld x %lld tokens", (long long)b->B, (long long)b->T);
  if (s->c->is.batch.accumulation > 1)
    printf(" in each of %lld micro-batches", (long long)s->c->is.batch.accumulation);
  printf(", %.3f GFLOP%s, %d instructions, %d loop kernels\n", p->flops * 1e-9,
         p->memory.devices > 1 ? " on each device" : "", p->instructions, p->kernels);
  printf("memory         %s\n", text.at);
  printf("compile time   %.3f s\n", p->compile_s);
  str_free(&text);
  return HP_OK;
}

/* The time in which the least memory limit is looked for. */
enum { LIMITS_S = 30 };

static hp_status find_limits(const subject *s, step_limits *out) {
  return step_memory_limits(s->planner, s->c->is.memory_limit, LIMITS_S, out);
}

/* Of `memory`: what any limit makes of it. */
static hp_status put_limits(json_writer *w, const subject *s) {
  step_limits l;
  HP_TRY(find_limits(s, &l));
  json_key_int(w, "resident_bytes", (int64_t)l.resident);
  json_put_key(w, "minimum_bytes");
  if (l.least) json_put_int(w, (int64_t)l.least);
  else json_put_null(w);
  if (!l.least)
    log_warn("minimum_bytes is null: the least memory_limit was not found in %d s of the "
             "processor; the message of "
             "memory_limit=1 names one that is not refused",
             LIMITS_S);
  return HP_OK;
}

/* What fills work memory, of the view "memory.json". */
static hp_status put_work(json_writer *w, const char *text) {
  static const char *const keys[] = {"live_at_instruction",
                                     "live_by_layer",
                                     "largest",
                                     "plan_s",
                                     "lower_bound_s",
                                     "copy_s",
                                     "classes",
                                     "moved_values",
                                     "moved"};
  tree t;
  HP_TRY(json_parse(text, strlen(text), "memory.json", &t));
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    json_put_key(w, keys[i]);
    json_put_tree(w, tree_get(t.root, keys[i]));
  }
  tree_free(&t);
  return HP_OK;
}

/* memory: of the view "memory.json", what fills work memory; NULL: the summary alone. */
static hp_status print_json(subject *s, const char *memory) {
  const hp_program_stats *p = &s->memory.stats;
  const micro_shape *b = &s->work[0].shape;
  str text = {0};
  json_writer w = {.out = &text};
  json_open_map(&w);
  json_key_string(&w, "model_type", s->m->c.model_type);
  json_key_int(&w, "parameters", (int64_t)model_config_params(&s->m->c));
  json_key_int(&w, "batch", b->B);
  json_key_int(&w, "seq", b->T);
  json_key_int(&w, "micro_batches", s->c->is.batch.accumulation);
  json_key_int(&w, "instructions", p->instructions);
  json_key_int(&w, "kernels", p->kernels);
  json_key_int(&w, "step_flops", (int64_t)p->flops);
  hp_status st = memory ? put_limits(&w, s) : HP_OK;
  memory_put(&w, &p->memory);
  if (!st && memory) st = put_work(&w, memory);
  json_key_double(&w, "step_s", p->predicted_s);
  json_key_double(&w, "exposed_copy_s", p->exposed_copy_s);
  json_key_double(&w, "compile_s", p->compile_s);
  json_close(&w);
  if (!st) st = str_status(&text);
  if (!st) puts(text.at);
  str_free(&text);
  return st;
}

typedef struct {
  const char *what; /* a topic; NULL: the summary alone */
  const char *name; /* pattern of values, whose lifetimes are asked for; NULL: none */
  const char *svg;  /* the file that a picture goes to, in place of text */
  const char *dump; /* the folder that the text after each stage goes to */
  bool json;
} question;

/* Of memory the lifetimes of some values. */
static bool asks_for_values(const question *q) { return q->name != NULL; }

static bool asks_for(const question *q, const char *what) {
  return q->what && !strcmp(q->what, what);
}

/* Steps on a micro-batch of random tokens, [B,T] and one more. */
static hp_status run_steps(stepper *s, const train_config *c, const int32_t *ids) {
  enum { STEPS = 8 };
  int64_t B = c->is.batch.rows, T = c->is.block;
  step_micro b = {.B = B, .T = T, .ids = ids, .labels = ids + 1, .weight = 1.0 / (double)(B * T)};
  for (int64_t t = 1; t <= STEPS; t++) {
    step_result r;
    HP_TRY(stepper_run(s, &b, 1, &(step_update){.lr = 1e-4, .t = t}, NULL, &r));
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

static void add_limit(str *text, uint64_t bytes) {
  units_add_bytes(text, (double)bytes);
  str_printf(text, " (%llu bytes)", (unsigned long long)bytes);
}

/* The least limit in words, behind what `memory` tells. */
static hp_status print_limits(const subject *s) {
  step_limits l;
  str text = {0};
  HP_TRY(find_limits(s, &l));
  if (l.least) {
    str_add(&text, "least memory_limit that is not refused: ");
    add_limit(&text, l.least);
  } else {
    str_printf(&text, "least memory_limit that is not refused: not found in %d s; ", LIMITS_S);
    if (l.enough) add_limit(&text, l.enough);
    str_add(&text, l.enough ? " is not refused"
                            : "the message of memory_limit=1 names one that is not refused");
  }
  str_add(&text, "; without a limit a device needs ");
  units_add_bytes(&text, (double)l.resident);
  hp_status st = str_status(&text);
  if (!st) puts(text.at);
  str_free(&text);
  return st;
}

/* The view of hp_explain that answers the question; NULL: the summary does. */
static const char *find_view(const question *q) {
  static const struct {
    const char *what, *json;
  } views[] = {{"layouts", "layouts.json"},   {"comm", "comm.json"}, {"memory", "memory.json"},
               {"schedule", "schedule.json"}, {"ops", "ops.json"},   {"pipeline", "pipeline.json"}};
  if (q->svg && asks_for(q, "pipeline")) return "pipeline.svg";
  if (q->svg) return asks_for(q, "memory") ? "memory.svg" : "layouts.svg";
  if (!q->json) return q->what;
  for (size_t i = 0; q->what && i < sizeof views / sizeof *views; i++)
    if (!strcmp(q->what, views[i].what)) return views[i].json;
  return NULL;
}

/* The plan, and the view of it as text; NULL where none was asked for.  Its stages go to the folder
 * that is asked for. */
static hp_status make_plan(subject *s, const question *q, char **text) {
  const char *what = find_view(q);
  str words = {0};
  *text = NULL;
  if (!what && !q->dump) return step_memory_plan(s->planner, &s->memory, NULL, NULL);
  str_add(&words, what ? what : "memory.totals");
  if (asks_for_values(q)) str_printf(&words, " %s", q->name);
  hp_status st = str_status(&words);
  if (!st) st = step_memory_plan(s->planner, &s->memory, words.at, text);
  str_free(&words);
  HP_TRY(st);
  if (what) return HP_OK;
  hp_free(*text);
  *text = NULL;
  return HP_OK;
}

/* text: the view that was asked for, or NULL. */
static hp_status print_answer(subject *s, const question *q, const char *text) {
  bool memory = asks_for(q, "memory") && !asks_for_values(q) && !q->svg;
  bool alone = asks_for_values(q) || (q->json && q->what && !memory);
  if (q->json && !alone) return print_json(s, text);
  if (!alone) HP_TRY(print_summary(s));
  if (q->svg) return file_write(q->svg, text, strlen(text));
  if (text) printf("%s%s", alone ? "" : "\n", text);
  return memory ? print_limits(s) : HP_OK;
}

/* Also makes the memory limit a number of bytes. */
static hp_status open_planner(subject *s, const char *dump, bool tell) {
  step_options o = trainer_step_options(s->c);
  step_work work = find_work(s);
  o.compile.dump_dir = dump;
  HP_TRY(step_planner_create(s->m, &o, &work, s->d, tell, &s->planner));
  if (!s->c->is.place.cut) HP_TRY(train_cut_by_time(s->planner, &s->c->is.place));
  return step_memory_share(s->planner, &s->resolved.is.memory_limit);
}

static hp_status explain_plan(subject *s, const question *q) {
  char *text = NULL;
  HP_TRY(open_planner(s, q->dump, true));
  hp_status st = make_plan(s, q, &text);
  if (!st) st = print_answer(s, q, text);
  hp_free(text);
  return st;
}

static hp_status explain_config(const train_config *c, const question *q) {
  subject s = {.resolved = *c};
  s.c = &s.resolved;
  bool plan = !asks_for(q, "time");
  train_config_tell(c);
  if (asks_for(q, "pipeline") && placement_meshes(&c->is.place) == 1)
    HP_FAIL(HP_ERR_ARG, "explain pipeline: the job has no pipeline; write strategy=pp=2");
  hp_status st = trainer_open_model(&s.resolved, plan, &s.d, &s.m);
  if (!st && !plan) st = open_planner(&s, NULL, false);
  if (!st) st = plan ? explain_plan(&s, q) : explain_time(s.c, s.m, q);
  step_planner_free(s.planner);
  lm_free(s.m);
  hp_device_close(s.d);
  return st;
}

/* "comm.json" asks for the same as "comm --json". */
enum { TOPICS = 7 };
static const char *const topics[] = {"layouts",     "comm",          "memory",
                                     "schedule",    "ops",           "time",
                                     "pipeline",    "layouts.json",  "comm.json",
                                     "memory.json", "schedule.json", "ops.json",
                                     "time.json",   "pipeline.json", NULL};
static void read_topic(const char *word, question *q) {
  for (int i = 0; word && topics[i]; i++)
    if (!strcmp(word, topics[i])) {
      q->what = topics[i % TOPICS];
      q->json |= i >= TOPICS;
    }
}

/* Refuses options that do not go together. */
static int check_question(const char *verb, const question *q) {
  if (q->json && q->svg) return cli_usage(verb, "--json and --svg: expected one of them");
  if (q->svg && !asks_for(q, "layouts") && !asks_for(q, "memory") && !asks_for(q, "pipeline"))
    return cli_usage(verb, "--svg draws layouts, memory and pipeline: write layouts --svg %s",
                     q->svg);
  if (q->svg && q->name) return cli_usage(verb, "--svg draws all of memory, not \"%s\"", q->name);
  if (q->name && !asks_for(q, "memory")) return cli_usage(verb, "\"%s\" is not expected", q->name);
  return CLI_GO_ON;
}

int verb_explain(int argc, char **argv) {
  question q = {0};
  const cli_option option[] =
      {{"--json", CLI_FLAG, &q.json, NULL, "one JSON object; the same as comm.json for comm, ..."},
       {"--svg", CLI_TEXT, &q.svg, "F.svg",
        "layouts as a picture: the shards of tensors, by device; memory: each tier over the step; "
        "pipeline: a timeline of all devices"},
       {"--dump", CLI_TEXT, &q.dump, "DIR",
        "the text after each stage of the compiler, from graph to program"}};
  const cli_spec spec =
      {"hyper explain CONFIG.yaml [layouts|comm|memory [NAME]|schedule|ops|time|pipeline] "
       "[--json] [key=value ...]",
       "What the compiler decides for one training step: memory and what fills it, the program\n"
       "instruction by instruction, the work by op and its time at the limits of a device;\n"
       "what each device holds and what devices exchange.  Nothing runs, except for `time`:\n"
       "some steps on random tokens, which show where time goes.  `memory NAME` tells the\n"
       "lifetime of a value, or of all that match, such as '*.mlp.*': where it is made and used,\n"
       "and in which memory it is in between.  `pipeline` tells the rows of each device, what\n"
       "stages cost and why devices are idle.  key=value, or --key value, overrides a key of\n"
       "the file.",
       "hyper explain examples/demo/demo.yaml layouts strategy=dp=2,tp=2 --svg layouts.svg", option,
       sizeof option / sizeof *option};
  cli_config words;
  train_config c;
  int code = cli_parse_config(&spec, topics, argc, argv, &words);
  if (code != CLI_GO_ON) return code;
  read_topic(words.what, &q);
  q.name = words.name;
  code = check_question(argv[0], &q);
  hp_status st =
      code == CLI_GO_ON ? train_config_load(words.file, words.key, words.keys, false, &c) : HP_OK;
  arena_free(&words.text);
  if (code != CLI_GO_ON) return code;
  if (st) return cli_fail(st);
  if (q.svg) st = file_check_target(q.svg);
  if (!st && q.dump) st = dir_create(q.dump);
  if (!st) st = explain_config(&c, &q);
  train_config_free(&c);
  return st ? cli_fail(st) : 0;
}
