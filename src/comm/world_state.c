/* The one variable that the files world*.c share, and what all of them do. */
#include "comm/world_state.h"

#include <sched.h>
#include <time.h>

world_state world = {.once = PTHREAD_ONCE_INIT,
                     .facts = {.size = 1, .here = 1, .memory = -1},
                     .lock = PTHREAD_MUTEX_INITIALIZER,
                     .failed = -1,
                     .waits_for = -1};

hp_status world_refuse(const char *why) {
  HP_FAIL(HP_ERR_COMM, "%s: %s", world.facts.library, why);
}

void world_pause(int64_t turn) {
  enum { POLITE = 100, SHORT = 1000, SHORT_NS = 20000, LONG_NS = 200000 };
  if (turn < POLITE) sched_yield();
  else nanosleep(&(struct timespec){.tv_nsec = turn < SHORT ? SHORT_NS : LONG_NS}, NULL);
}
