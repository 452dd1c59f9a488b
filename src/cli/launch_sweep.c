/* Processes of a job that stay behind on this machine: they are known by their environment. */
#include "base/io.h"
#include "base/random.h"
#include "base/thread.h"
#include "cli/launch.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

hp_status launch_mark(void) {
  unsigned char id[16];
  char text[2 * sizeof id + 1];
  HP_TRY(random_bytes(id, sizeof id));
  for (size_t i = 0; i < sizeof id; i++) snprintf(text + 2 * i, 3, "%02x", id[i]);
  if (setenv(HEARTBEAT_JOB, text, 1)) return HP_ERR_OOM;
  return HP_OK;
}

static bool runs_this_program(pid_t pid) {
  char path[64];
  struct stat a, b;
  snprintf(path, sizeof path, "/proc/%d/exe", (int)pid);
  return !stat(path, &a) && !stat("/proc/self/exe", &b) && a.st_dev == b.st_dev &&
         a.st_ino == b.st_ino;
}

bool launch_has_mark(pid_t pid) {
  char path[64], mark[80], *all = NULL;
  const char *id = getenv(HEARTBEAT_JOB);
  size_t len;
  bool found = false;
  if (!id) return false;
  size_t n = (size_t)snprintf(mark, sizeof mark, "%s=%.60s", HEARTBEAT_JOB, id);
  snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
  if (!file_read(path, 0, &all, &len))
    for (size_t at = 0; at < len && !found; at += strlen(all + at) + 1)
      found = len - at > n && !memcmp(all + at, mark, n + 1);
  mem_free(all);
  err_clear(); /* it has ended, or is another user's */
  return found;
}

bool launch_owns(pid_t pid) {
  return pid > 0 && pid != getpid() && runs_this_program(pid) && launch_has_mark(pid);
}

/* How many there were. */
static int kill_all(void) {
  int n = 0;
  DIR *d = opendir("/proc");
  struct dirent *e;
  while (d && (e = readdir(d))) {
    int64_t pid;
    if (!str_to_i64(e->d_name, &pid) || pid > INT32_MAX || !launch_owns((pid_t)pid)) continue;
    kill((pid_t)pid, SIGKILL);
    n++;
  }
  if (d) closedir(d);
  return n;
}

void launch_sweep(double seconds) {
  enum { PAUSE_US = 10000 };
  double until_s = time_now_s() + seconds;
  while (kill_all() && time_now_s() < until_s) usleep(PAUSE_US);
}
