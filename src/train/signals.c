#include "train/signals.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

/* A handler can reach nothing else. */
static volatile sig_atomic_t taken;
static void (*volatile at_end)(void *ctx);
static void *volatile at_end_ctx;

void signals_leave_by(void (*leave)(void *ctx), void *ctx) {
  at_end = NULL;
  at_end_ctx = ctx;
  at_end = leave;
}

void signals_leave(void) {
  if (at_end) at_end(at_end_ctx);
}

static void on_note(int number) { taken = number; }

static void say(const char *text) {
  if (write(STDERR_FILENO, text, strlen(text)) < 0) return;
}

static void on_end(int number) {
  taken = number;
  signals_leave();
  say("hyper: ");
  say(signals_name(number));
  say(": stopped before the first step, nothing was trained; run it again\n");
  raise(number); /* its own action is back: it ends the process when this returns */
}

/* nohup has set SIGHUP so: the run goes on without its terminal. */
static bool is_left_ignored(int number) {
  struct sigaction a;
  return number == SIGHUP && !sigaction(number, NULL, &a) && a.sa_handler == SIG_IGN;
}

/* A terminal that closes sends SIGHUP twice, by the kernel and by its shell: only the others mean
 * something by the second. */
static void handle_with(void (*handler)(int), int flags) {
  static const int caught[] = {SIGTERM, SIGUSR1, SIGINT, SIGHUP};
  taken = 0;
  for (size_t i = 0; i < sizeof caught / sizeof *caught; i++) {
    struct sigaction a = {.sa_handler = handler, .sa_flags = flags};
    if (is_left_ignored(caught[i])) continue;
    if (caught[i] == SIGHUP && handler == on_note) a.sa_flags &= ~(int)SA_RESETHAND;
    sigemptyset(&a.sa_mask);
    sigaction(caught[i], &a, NULL);
  }
}

void signals_end(void) { handle_with(on_end, (int)SA_RESETHAND); }

void signals_note(void) { handle_with(on_note, (int)SA_RESETHAND | SA_RESTART); }

void signals_release(void) {
  signals_leave_by(NULL, NULL);
  handle_with(SIG_DFL, 0);
}

int signals_taken(void) { return taken; }

const char *signals_name(int number) {
  return number == SIGTERM   ? "SIGTERM"
         : number == SIGUSR1 ? "SIGUSR1"
         : number == SIGINT  ? "SIGINT"
         : number == SIGHUP  ? "SIGHUP"
                             : "none";
}
