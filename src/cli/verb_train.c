/* `hyper train`. */
#include "base/str.h"
#include "cli/cli.h"
#include "train/trainer.h"

#include <stdio.h>
#include <string.h>

static int print_help(void) {
  str keys = {0};
  puts("usage: hyper train CONFIG.yaml [key=value ...]\n\n"
       "Trains as the file says: LlamaFactory's keys, and the hyper_parallel: block.  key=value, "
       "or\n"
       "--key value, overrides a key of the file (hyper_parallel.recompute=full reaches into the\n"
       "block).  Begun again after an interruption, it continues from the newest checkpoint that\n"
       "verifies.\n");
  train_config_print_help(&keys);
  if (keys.len) puts(keys.at);
  puts("example: hyper train examples/demo/demo.yaml max_steps=50 learning_rate=1e-3");
  str_free(&keys);
  return 0;
}

int verb_train(int argc, char **argv) {
  static const cli_spec no_options;
  cli_config words;
  train_config c;
  for (int i = 1; i < argc; i++)
    if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return print_help();
  int code = cli_parse_config(&no_options, NULL, argc, argv, &words);
  if (code != CLI_GO_ON) return code;
  hp_status st = train_config_load(words.file, words.key, words.keys, true, &c);
  arena_free(&words.text);
  if (st) return cli_fail(st);
  st = trainer_run(&c);
  train_config_free(&c);
  return st ? cli_fail(st) : 0;
}
