/* `hyper train`. */
#include "base/str.h"
#include "cli/cli.h"
#include "train/trainer.h"

#include <stdio.h>
#include <string.h>

static void print_help(void) {
  str keys = {0};
  puts(
      "usage: hyper train CONFIG.yaml [key=value ...]\n\n"
      "Trains as the file says: LlamaFactory's keys, and the hyper_parallel: block.  key=value\n"
      "overrides a key of the file (hyper_parallel.recompute=full reaches into the block).  Begun\n"
      "again after an interruption, it continues from the newest checkpoint that verifies.\n");
  train_config_print_help(&keys);
  if (keys.len) puts(keys.at);
  puts("example: hyper train examples/demo/demo.yaml max_steps=50 learning_rate=1e-3");
  str_free(&keys);
}

int verb_train(int argc, char **argv) {
  const char *file = NULL, *override[256];
  int n = 0;
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
      print_help();
      return 0;
    }
    if (!strncmp(argv[i], "--", 2))
      return cli_usage(argv[0], "%s: options are written as key=value", argv[i]);
    if (!file && !strchr(argv[i], '=')) file = argv[i];
    else if (n < 256) override[n++] = argv[i];
    else return cli_usage(argv[0], "more than 256 overrides");
  }
  if (!file) return cli_usage(argv[0], "the configuration file is missing");
  train_config c;
  hp_status st = train_config_load(file, override, n, &c);
  if (st) return cli_fail(st);
  st = trainer_run(&c);
  train_config_free(&c);
  return st ? cli_fail(st) : 0;
}
