/* SIGBUS of a mapped file as a message with the file's name: exit code 2 when the file has become
 * shorter, 1 when the system could not read it, after which a run may be begun again.  Only the
 * command takes the signal: a program that uses the library keeps its own. */
#include "base/escape.h"
#include "base/map_names.h"
#include "cli/cli.h"
#include "rt/heartbeat.h"
#include "train/signals.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct sigaction before;
static atomic_flag taken = ATOMIC_FLAG_INIT;

static void print_fault(const char *text) {
  if (write(STDERR_FILENO, text, strlen(text)) < 0) return;
}

/* As in other messages, a name cannot move the cursor or add a line. */
static void say_name(const char *name) {
  for (size_t i = 0, n = strlen(name); i < n;) {
    char one[ESCAPE_MAX + 1];
    size_t len;
    i += escape_next(name + i, n - i, false, one, &len);
    one[len] = 0;
    print_fault(one);
  }
}

_Noreturn static void end(const char *path, size_t len) {
  struct stat now;
  while (atomic_flag_test_and_set(&taken)) pause(); /* another thread is about to end the process */
  bool cut = !stat(path, &now) && (size_t)now.st_size < len;
  print_fault("hyper: ");
  say_name(path);
  print_fault(
      cut ? ": became shorter while it was read; let no other program change it, restore it, and "
            "run "
            "this again\n"
          : ": input/output failure: could not be read any more; check its disk, restore it, and "
            "run this again\n");
  signals_leave();
  if (cut) heartbeat_refuse(2); /* a supervisor would take it for a death, and begin again */
  _exit(cut ? 2 : 1);
}

/* As if this handler were not there. */
static void pass_on(int number, siginfo_t *info, void *context) {
  if (before.sa_flags & SA_SIGINFO) {
    before.sa_sigaction(number, info, context);
  } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(number);
  } else {
    sigaction(SIGBUS, &before, NULL); /* what was read is read again, and ends the process */
    if (info->si_code <= 0) raise(number);
  }
}

static void on_fault(int number, siginfo_t *info, void *context) {
  size_t len;
  /* a code above 0 is of the kernel: the address is one that was read */
  const char *path = info->si_code > 0 ? map_names_find(info->si_addr, &len) : NULL;
  if (path) end(path, len);
  pass_on(number, info, context);
}

void cli_name_file_faults(void) {
  struct sigaction a = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
  sigemptyset(&a.sa_mask);
  sigaction(SIGBUS, &a, &before);
}
