/* A verb as one of several processes: all do the same, and process 0 alone prints. */
#include "base/log.h"
#include "cli/cli.h"
#include "comm/world.h"
#include "rt/heartbeat.h"

#include <stdio.h>
#include <string.h>

/* What the others print is what process 0 does.  A crash can still be heard on stderr. */
static void be_quiet(void) {
  log_set_level(LOG_QUIET);
  if (!freopen("/dev/null", "w", stdout)) return;
}

int cli_run_in_job(int (*run)(int argc, char **argv), int argc, char **argv) {
  const char *told;
  bool launches = argc > 1 && !strcmp(argv[1], "launch"); /* others, and is none of them */
  if (launches) return run(argc, argv);
  hp_status st = world_begin();
  if (world_get()->rank) be_quiet();
  if (!st) st = heartbeat_begin();
  int code = world_end(st ? cli_fail(st) : run(argc, argv), &told);
  if (told) fprintf(stderr, "hyper%s\n", told);
  heartbeat_end(code);
  world_leave();
  return code;
}
