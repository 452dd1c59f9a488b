/* A verb as one of several processes: all do the same, and process 0 alone prints. */
#include "base/log.h"
#include "cli/cli.h"
#include "comm/world.h"
#include "rt/heartbeat.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Seconds for a process that has no supervisor, and should have one, to tell the others so. */
enum { ALONE_S = 20 };

/* Drops the output of this process, as process 0 prints the same.  A crash still reaches stderr. */
static void be_quiet(void) {
  log_set_level(LOG_QUIET);
  if (!freopen("/dev/null", "w", stdout)) return;
}

int cli_run_in_job(int (*run)(int argc, char **argv), int argc, char **argv) {
  const char *told;
  bool launches = argc > 1 && !strcmp(argv[1], "launch"); /* others, and is none of them */
  if (launches) return run(argc, argv);
  hp_status heard = heartbeat_begin(); /* joining the others is watched too */
  err_report unheard = {0};
  if (heard) err_take(heard, &unheard);
  if (heard) alarm(ALONE_S);
  hp_status st = world_begin();
  if (world_get()->rank) be_quiet();
  if (!st) heartbeat_joined();
  if (!st) st = err_give(&unheard); /* which the others, and the user, learn as any failure */
  int code = world_end(st ? cli_fail(st) : run(argc, argv), &told);
  if (told) fprintf(stderr, "hyper%s\n", told);
  bool again = code && world_reason() == HP_ERR_DEVICE; /* not of the job's own making */
  heartbeat_end(again ? HEARTBEAT_AGAIN : code, world_message());
  world_leave();
  return code;
}
