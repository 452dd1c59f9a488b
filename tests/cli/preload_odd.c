/* Loaded into hyper (LD_PRELOAD): a system that is within its rights.  On files whose path has $ODD
 * in it every third read and write is interrupted (EINTR) and the others do a part of what they are
 * asked; with $CLOCK the time of day goes back by an hour at each look. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
enum { HOUR = 3600 };

static atomic_long calls;
static _Atomic long long back;

/* Shortens *n; true where the call is to be interrupted. */
static int is_odd(int fd, size_t *n) {
  char link[64], path[4096];
  const char *part = getenv("ODD");
  if (!part || fd < 0) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t len = readlink(link, path, sizeof path - 1);
  path[len > 0 ? len : 0] = 0;
  if (len <= 0 || !strstr(path, part)) return 0;
  *n = (*n + 1) / 2;
  errno = EINTR;
  return atomic_fetch_add(&calls, 1) % 3 == 0;
}

ssize_t read(int fd, void *to, size_t n) { return is_odd(fd, &n) ? -1 : REAL(read)(fd, to, n); }
ssize_t pread(int fd, void *to, size_t n, off_t o) {
  return is_odd(fd, &n) ? -1 : REAL(pread)(fd, to, n, o);
}
ssize_t write(int fd, const void *from, size_t n) {
  return is_odd(fd, &n) ? -1 : REAL(write)(fd, from, n);
}
ssize_t pwrite(int fd, const void *from, size_t n, off_t o) {
  return is_odd(fd, &n) ? -1 : REAL(pwrite)(fd, from, n, o);
}

static void turn_back(time_t *s) {
  if (getenv("CLOCK")) *s -= (back += HOUR);
}
time_t time(time_t *to) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  if (to) *to = t.tv_sec;
  return t.tv_sec;
}
int clock_gettime(clockid_t id, struct timespec *t) {
  int bad = REAL(clock_gettime)(id, t);
  if (!bad && id == CLOCK_REALTIME) turn_back(&t->tv_sec);
  return bad;
}
int gettimeofday(struct timeval *restrict t, void *restrict zone) {
  struct timespec now;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &now);
  *t = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
  return 0;
}
