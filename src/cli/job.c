/* A verb as one of several processes: all do the same, and process 0 alone prints. */
#include "base/log.h"
#include "cli/cli.h"
#include "comm/world.h"

#include <stdio.h>
#include <string.h>

/* What the others print is what process 0 does.  A crash can still be heard on stderr. */
static void be_quiet(void) {
  log_set_level(LOG_QUIET);
  if (!freopen("/dev/null", "w", stdout)) return;
}

int cli_run_in_job(int (*run)(int argc, char **argv), int argc, char **argv) {
  const char *told;
  hp_status st = argc > 1 && !strcmp(argv[1], "launch") ? HP_OK : world_begin();
  const world_facts *w = world_get();
  if (w->rank) be_quiet();
  int code = world_end(st ? cli_fail(st) : run(argc, argv), &told);
  if (told) fprintf(stderr, "hyper%s\n", told);
  world_leave();
  return code;
}
