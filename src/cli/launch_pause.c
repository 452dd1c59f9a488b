/* Between two tries of a job: how long it pauses, so that a job that fails at once is not started
 * again and again, and a fault that passes has the time to. */
#include "base/thread.h"
#include "cli/launch.h"

enum { PAUSE_MAX_S = 30 };
#define TURN_S 0.05 /* between two looks for a signal */

double launch_pause_s(double first, int64_t failed) {
  double s = first;
  if (failed <= 0 || first <= 0) return 0;
  while (s < PAUSE_MAX_S && --failed > 0) s *= 2;
  return s < PAUSE_MAX_S ? s : PAUSE_MAX_S;
}

bool launch_pause(double seconds, bool (*is_asked)(void)) {
  double until_s = time_now_s() + seconds;
  for (double now; (now = time_now_s()) < until_s && !is_asked();)
    time_sleep_until(now + TURN_S < until_s ? now + TURN_S : until_s);
  return !is_asked();
}
