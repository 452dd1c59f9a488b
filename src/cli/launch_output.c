/* What the starter and its processes print goes through the launcher.  A starter whose output
 * nobody reads any more (`hyper launch ... | head`) ends its job; a training run goes on. */
#include "base/log.h"
#include "base/thread.h"
#include "cli/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

/* CHUNK: what a pipe that has room takes at once.  GRACE_S: for a reader that has paused when all
 * has ended. */
enum { CHUNK = PIPE_BUF, TURN_MS = 100, GRACE_S = 5 };

static void close_end(int *fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

static void close_all(launch_output *o) {
  for (int s = 0; s < 2; s++) {
    close_end(&o->from[s]);
    close_end(&o->to[s]);
  }
}

hp_status launch_output_open(launch_output *o) {
  *o = (launch_output){.from = {-1, -1}, .to = {-1, -1}};
  for (int s = 0; s < 2; s++) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC)) {
      int why = errno;
      close_all(o);
      HP_FAIL(HP_ERR_IO, "cannot make a pipe: %s", strerror(why));
    }
    o->from[s] = ends[0];
    o->to[s] = ends[1];
  }
  return HP_OK;
}

void launch_output_enter(const launch_output *o) {
  dup2(o->to[0], STDOUT_FILENO);
  dup2(o->to[1], STDERR_FILENO);
}

/* Waits until it can be written; false: nobody reads. */
static bool is_read(const launch_output *o, int fd, double *until_s) {
  for (;;) {
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    int n = poll(&p, 1, TURN_MS);
    if (n > 0) return !(p.revents & (POLLERR | POLLNVAL));
    if (n < 0 && errno != EINTR) return false;
    if (!o->ends) continue;
    if (!(*until_s > 0)) *until_s = time_now_s() + GRACE_S;
    if (time_now_s() > *until_s) return false;
  }
}

/* Drops output that cannot be written to a full disk, and reports it once; false: nobody reads. */
static bool drop_output(int fd, bool *told) {
  if (errno == EPIPE) return false;
  if (!*told)
    log_warn("standard %s of the job cannot be written: %s; what does not fit is lost",
             fd == STDOUT_FILENO ? "output" : "error", strerror(errno));
  return *told = true;
}

static bool write_on(const launch_output *o, int fd, const char *text, size_t n, double *until_s,
                     bool *told) {
  while (n) {
    if (!is_read(o, fd, until_s)) return false;
    ssize_t took = write(fd, text, n);
    if (took < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (took < 0) return drop_output(fd, told);
    text += took;
    n -= (size_t)took;
  }
  return true;
}

/* From one stream to our own, until it ends or nothing more will come. */
static void *pass_on(void *arg) {
  launch_output *o = arg;
  bool open[2] = {true, true}, is_wanted[2] = {true, true}, told = false;
  double until_s = 0;
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, NULL); /* signals are the launcher's */
  while (open[0] || open[1]) {
    struct pollfd p[2];
    bool ends = o->ends; /* what is there now is all there is */
    for (int s = 0; s < 2; s++)
      p[s] = (struct pollfd){.fd = open[s] ? o->from[s] : -1, .events = POLLIN};
    int n = poll(p, 2, ends ? 0 : TURN_MS);
    if (n == 0 && ends) break;
    for (int s = 0; s < 2 && n > 0; s++) {
      char text[CHUNK];
      if (!p[s].revents) continue;
      ssize_t got = read(o->from[s], text, sizeof text);
      if (got < 0 && errno == EINTR) continue;
      open[s] = got > 0;
      if (got > 0 && is_wanted[s])
        is_wanted[s] =
            write_on(o, s ? STDERR_FILENO : STDOUT_FILENO, text, (size_t)got, &until_s, &told);
    }
  }
  return NULL;
}

hp_status launch_output_begin(launch_output *o) {
  for (int s = 0; s < 2; s++) close_end(&o->to[s]);
  int failed = pthread_create(&o->thread, NULL, pass_on, o);
  if (failed) HP_FAIL(HP_ERR_IO, "cannot start a thread for output: %s", strerror(failed));
  o->runs = true;
  return HP_OK;
}

void launch_output_end(launch_output *o) {
  o->ends = true;
  if (o->runs) pthread_join(o->thread, NULL);
  o->runs = false;
  close_all(o);
}
