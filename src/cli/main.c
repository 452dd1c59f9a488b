#include "base/str.h"
#include "cli/cli.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

const cli_verb cli_verbs[] = {
#define VERB(name, about) {#name, verb_##name, about},
#include "cli/verbs.def"
#undef VERB
};
enum { VERBS = sizeof cli_verbs / sizeof *cli_verbs };

static void print_usage(FILE *f) {
  fprintf(f,
          "HyperParallel %s: write a model as if the supernode were one computer.\n\n"
          "usage: hyper VERB [options]      hyper VERB --help\n\n",
          hp_version());
  for (int i = 0; i < VERBS; i++) fprintf(f, "  %-10s %s\n", cli_verbs[i].name, cli_verbs[i].about);
  fputs("\nexample: hyper generate --model models/tiny --prompt \"Once upon a time\"\n", f);
}

static int unknown_verb(const char *word) {
  const char *names[VERBS];
  for (int i = 0; i < VERBS; i++) names[i] = cli_verbs[i].name;
  const char *near = str_nearest(word, names, VERBS);
  fprintf(stderr, "hyper: \"%s\" is not a verb%s%s%s; `hyper --help` lists them\n", word,
          near ? ", did you mean \"" : "", near ? near : "", near ? "\"?" : "");
  return 2;
}

int main(int argc, char **argv) {
  signal(SIGPIPE, SIG_IGN); /* a closed pipe is a failed write, with a message */
  if (argc < 2) {
    print_usage(stderr);
    return 2;
  }
  if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
    print_usage(stdout);
    return 0;
  }
  if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "version")) {
    printf("hyper %s\n", hp_version());
    return 0;
  }
  for (int i = 0; i < VERBS; i++)
    if (!strcmp(argv[1], cli_verbs[i].name)) return cli_verbs[i].run(argc - 1, argv + 1);
  return unknown_verb(argv[1]);
}
