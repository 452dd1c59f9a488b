#include "train/signals.h"

#include <signal.h>
#include <stddef.h>

/* A handler can reach nothing else. */
static volatile sig_atomic_t taken;

static void on_signal(int number) { taken = number; }

void signals_catch(void) {
  static const int caught[] = {SIGTERM, SIGUSR1, SIGINT};
  taken = 0;
  for (size_t i = 0; i < sizeof caught / sizeof *caught; i++) {
    struct sigaction a = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND | SA_RESTART};
    sigemptyset(&a.sa_mask);
    sigaction(caught[i], &a, NULL);
  }
}

bool signals_taken(void) { return taken != 0; }

const char *signals_name(void) {
  return taken == SIGTERM   ? "SIGTERM"
         : taken == SIGUSR1 ? "SIGUSR1"
         : taken == SIGINT  ? "SIGINT"
                            : "none";
}
