/* The keeper: a process next to the launcher that outlives it.  When the launcher is gone without a
 * word (kill -9), its starter is asked to end by the system; the keeper ends what stays all the
 * same, such as a starter that is stopped or hangs, and processes that are stopped. */
#include "base/thread.h"
#include "cli/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATIENCE_S = 3, PAUSE_US = 20000 };

/* Its own end of the pipe alone stays open: the port must close with the launcher. */
static void leave_files(int pipe_end) {
  int null = open("/dev/null", O_RDWR);
  for (int fd = 0; fd < 3 && null >= 0; fd++) dup2(null, fd);
  dup2(pipe_end, 3);
  close_range(4, ~0U, 0);
}

/* Neither Ctrl-C nor a signal to the launcher's group is for the keeper. */
static void leave_group(void) {
  static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
  setsid();
  for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++) signal(ignored[i], SIG_IGN);
}

static _Noreturn void run_keeper(pid_t starter) {
  char byte;
  ssize_t n;
  while ((n = read(3, &byte, 1)) < 0 && errno == EINTR) {}
  if (n == 1) _exit(0); /* the launcher has ended the try itself */
  double until_s = time_now_s() + PATIENCE_S;
  while (launch_has_mark(starter) && time_now_s() < until_s) usleep(PAUSE_US);
  if (launch_has_mark(starter)) kill(starter, SIGKILL);
  launch_sweep(PATIENCE_S);
  _exit(0);
}

hp_status launch_keep(pid_t starter, launch_keeper *out) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC)) HP_FAIL(HP_ERR_IO, "cannot make a pipe: %s", strerror(errno));
  pid_t pid = fork();
  if (!pid) {
    leave_group();
    leave_files(ends[0]);
    run_keeper(starter);
  }
  close(ends[0]);
  if (pid < 0) {
    close(ends[1]);
    HP_FAIL(HP_ERR_IO, "cannot start a process: %s", strerror(errno));
  }
  *out = (launch_keeper){.pid = pid, .pipe = ends[1]};
  return HP_OK;
}

void launch_keep_end(launch_keeper *k) {
  if (k->pid <= 0) return;
  while (write(k->pipe, "", 1) < 0 && errno == EINTR) {}
  close(k->pipe);
  while (waitpid(k->pid, NULL, 0) < 0 && errno == EINTR) {}
  *k = (launch_keeper){0};
}
