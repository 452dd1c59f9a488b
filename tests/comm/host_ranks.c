/* Processes of a job on one machine, with its host memory.
 *
 *   host_ranks shares    the limit is of all of them, and what one gives back another takes
 *   host_ranks again     a process may have several devices one next to the other
 *   host_ranks turns     their copies take turns on an emulated link that they share
 *   host_ranks killed    the last of them is killed by the system
 *
 * Exit code 0 when it went as it should. */
#include "comm/world.h"
#include "rt/device_mesh.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MIB = 1 << 20 };
static const double LATENCY_S = 0.002, COPY_S = 0.010;

static hp_status open_device(uint64_t limit, const char *file, hp_device **out) {
  char shape[32], *const text = shape;
  snprintf(shape, sizeof shape, "(%d)(dp)", world_get()->size);
  hp_device_options o = {.threads = 1,
                         .interpret = true,
                         .mesh = text,
                         .host_limit = limit,
                         .cluster = file};
  return hp_device_open(&o, out);
}

/* All processes come here before one goes on. */
static hp_status meet(void) {
  bool all;
  return world_agree(true, &all);
}

static hp_status take(hp_device *d, uint64_t bytes, uint64_t *offset) {
  ir_value type = {.dtype = HP_F32, .rank = 1, .dim = {(int64_t)bytes / 4}};
  return device_take(d->member[0], TIER_HOST, "some", &type, offset);
}

static char *address(const hp_device *d, uint64_t offset) {
  return tier_memory_address(&d->member[0]->job->memory[TIER_HOST], offset);
}

/* The file of the pool, as this process has it. */
static uint64_t file_blocks(void) {
  for (int fd = 0; fd < 256; fd++) {
    char place[64], at[128] = "";
    struct stat s;
    snprintf(place, sizeof place, "/proc/self/fd/%d", fd);
    if (readlink(place, at, sizeof at - 1) > 0 && strstr(at, "hyper-shared-memory") &&
        !fstat(fd, &s))
      return (uint64_t)s.st_blocks * 512;
  }
  return 0;
}

static hp_status check(bool holds, const char *what) {
  if (!holds) HP_FAIL(HP_ERR_INTERNAL, "it does not hold that %s", what);
  return HP_OK;
}

/* In the shares of their limit one process takes more than the others may, until it gives it back.
 */
static hp_status share(void) {
  uint64_t n = (uint64_t)world_get()->size, limit = n * 4 * MIB, large = limit - 2 * MIB, at;
  int me = world_get()->rank;
  hp_device *d;
  HP_TRY(open_device(limit, NULL, &d));
  if (!me) {
    HP_TRY(take(d, large, &at));
    memset(address(d, at), 1, large);
  }
  HP_TRY(meet());
  HP_TRY(check(file_blocks() >= large, "all processes have one file"));
  if (me) {
    HP_TRY(check(take(d, 3 * MIB, &at) == HP_ERR_OOM, "the others have no room"));
    HP_TRY(check(strstr(err_message(), "devices of this machine") &&
                     strstr(err_message(), "raise host_limit"),
                 "the refusal says whose memory it is"));
    err_clear();
  }
  HP_TRY(meet());
  if (!me) {
    HP_TRY(check(address(d, at)[large - 1] == 1, "nobody else writes there"));
    device_give(d->member[0], TIER_HOST, at, large);
  }
  HP_TRY(meet());
  HP_TRY(check(file_blocks() < large, "what is given back is the machine's again"));
  HP_TRY(take(d, 3 * MIB, &at));
  for (int i = 0; i < 3 * MIB; i++) HP_TRY(check(!address(d, at)[i], "new memory is zeros"));
  HP_TRY(meet());
  device_give(d->member[0], TIER_HOST, at, 3 * MIB);
  hp_device_close(d);
  return HP_OK;
}

/* Devices that are open at one time have memory and limits of their own; so has one that takes the
 * place of one that was closed. */
static hp_status open_again(void) {
  enum { DEVICES = 3, BYTES = 3 * MIB };
  uint64_t at[DEVICES], limit = (uint64_t)world_get()->size * BYTES;
  hp_device *d[DEVICES];
  for (int turn = 0; turn < 2; turn++) {
    for (int k = 0; k < DEVICES; k++) {
      if (!turn || k == 1) HP_TRY(open_device(limit, NULL, &d[k]));
      if (!turn || k == 1) HP_TRY(take(d[k], BYTES, &at[k]));
      if (turn && k != 1) continue;
      for (int i = 0; i < BYTES; i++)
        HP_TRY(check(!address(d[k], at[k])[i], "new memory is zeros"));
      memset(address(d[k], at[k]), k + 1, BYTES);
    }
    for (int k = 0; k < DEVICES; k++)
      for (int i = 0; i < BYTES; i++)
        HP_TRY(check(address(d[k], at[k])[i] == k + 1, "each has memory of its own"));
    HP_TRY(meet());
    for (int k = 0; k < DEVICES; k++) {
      if (!turn && k != 1) continue;
      device_give(d[k]->member[0], TIER_HOST, at[k], BYTES);
      hp_device_close(d[k]);
    }
    HP_TRY(meet());
  }
  return HP_OK;
}

static int by_time(const void *a, const void *b) {
  const double *x = a, *y = b;
  return *x < *y ? -1 : *x > *y;
}

/* All set out at one time: each is there a copy's time after the one before. */
static hp_status take_turns(void) {
  int n = world_get()->size;
  char file[] = "turns.yaml";
  double end_s[COMM_LOCAL_MAX], mine;
  hp_device *d;
  HP_TRY(open_device(0, file, &d));
  const link_copy copy = {TIER_HOST, TIER_DEVICE, MIB, 1};
  mine = link_clock_reserve(d->job->links, &d->cluster, &d->m, d->member[0]->position, &copy);
  HP_TRY(world_gather(&mine, sizeof mine, end_s));
  qsort(end_s, (size_t)n, sizeof *end_s, by_time);
  for (int i = 0; i < n; i++) {
    double off = end_s[i] - (1 + LATENCY_S + (i + 1) * COPY_S);
    if (off < -1e-6 || off > 1e-6)
      HP_FAIL(HP_ERR_INTERNAL, "copy %d of %d ends at %.6f s", i + 1, n, end_s[i]);
  }
  hp_device_close(d);
  return HP_OK;
}

static hp_status be_killed(void) {
  hp_device *d;
  HP_TRY(open_device(64 * MIB, NULL, &d));
  uint64_t at;
  HP_TRY(take(d, 8 * MIB, &at));
  memset(address(d, at), 1, 8 * MIB);
  HP_TRY(meet());
  if (world_get()->rank == world_get()->size - 1) raise(SIGKILL);
  return meet();
}

int main(int argc, char **argv) {
  const char *told, *which = argc > 1 ? argv[1] : "";
  hp_status st = world_begin();
  if (!st && !strcmp(which, "shares")) st = share();
  else if (!st && !strcmp(which, "again")) st = open_again();
  else if (!st && !strcmp(which, "turns")) st = take_turns();
  else if (!st) st = be_killed();
  if (st)
    printf("rank %d: %s\n", world_get()->rank, *err_message() ? err_message() : hp_last_error());
  fflush(stdout);
  if (st) world_fail();
  int code = world_end(st != HP_OK, &told);
  world_leave();
  return code;
}
