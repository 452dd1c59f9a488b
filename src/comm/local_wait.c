/* What rendezvous and transfers between ranks of one process share: how to wait. */
#include "comm/local_state.h"

#include <time.h>

hp_status local_refuse_failed(int64_t rank) {
  HP_FAIL(HP_ERR_COMM, "device %lld failed, and the others cannot go on without it",
          (long long)rank);
}

bool local_pause(local *l, pthread_cond_t *change) {
  enum { SECOND_NS = 1000000000 };
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += LOCAL_LOOK_NS;
  until.tv_sec += until.tv_nsec / SECOND_NS;
  until.tv_nsec %= SECOND_NS;
  return pthread_cond_timedwait(change, &l->lock, &until) == 0;
}
