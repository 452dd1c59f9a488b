/* `hyper explain`: what the compiler decides for a training step, without running it. */
#include "cli/cli.h"
#include "model/lm.h"
#include "train/trainer.h"

#include <stdio.h>
#include <string.h>

static void print_summary(const train_config *c, const lm *m, const hp_program_stats *s) {
  int64_t state = (int64_t)(model_config_params(&m->c) * 4);
  int states = c->optim == OPTIM_SGD ? 0 : 2;
  printf("model          %s, %.3f M parameters\n", m->c.model_type,
         model_config_params(&m->c) * 1e-6);
  printf("step           %lld x %lld tokens, %.3f GFLOP, %d instructions, %d loop kernels\n",
         (long long)c->per_device_train_batch_size, (long long)c->cutoff_len, s->flops * 1e-9,
         s->instructions, s->kernels);
  printf("memory         parameters %.1f MiB, optimizer %.1f MiB, work %.1f MiB (no plan needs "
         "less than %.1f)\n",
         (double)state / 1048576, (double)(state * states) / 1048576,
         (double)s->work_bytes / 1048576, (double)s->work_bound / 1048576);
  printf("compile time   %.3f s\n", s->compile_s);
}

static hp_status explain(const train_config *c, const char *what) {
  hp_device *d;
  lm *m = NULL;
  char *text = NULL;
  hp_program_stats s;
  hp_device_options dev = {.threads = (int)c->threads, .memory_limit = c->is.memory_limit};
  step_options o = trainer_step_options(c);
  HP_TRY(hp_device_open(&dev, &d));
  hp_status st = lm_create(c->model_name_or_path, NULL, &(lm_options){c->is.compute, HP_F32}, &m);
  if (!st)
    st = stepper_plan(m, &o, c->per_device_train_batch_size, c->is.block, d, &s, what,
                      what ? &text : NULL);
  if (!st) print_summary(c, m, &s);
  if (!st && text) printf("\n%s", text);
  hp_free(text);
  lm_free(m);
  hp_device_close(d);
  return st;
}

int verb_explain(int argc, char **argv) {
  static const char *const topics[] = {"memory", "schedule", "ops", NULL};
  static const cli_spec spec =
      {"hyper explain CONFIG.yaml [memory|schedule|ops] [key=value ...]",
       "What the compiler decides for one training step: memory and what fills it, the program\n"
       "instruction by instruction, the work by op.  Nothing is trained.  key=value, or --key "
       "value,\n"
       "overrides a key of the file.",
       "hyper explain examples/demo/demo.yaml memory", NULL, 0};
  cli_config words;
  train_config c;
  int code = cli_parse_config(&spec, topics, argc, argv, &words);
  if (code != CLI_GO_ON) return code;
  hp_status st = train_config_load(words.file, words.key, words.keys, &c);
  arena_free(&words.text);
  if (st) return cli_fail(st);
  st = explain(&c, words.what);
  train_config_free(&c);
  return st ? cli_fail(st) : 0;
}
