/* A thread team: n threads, one per device, which execute work together. */
#ifndef RT_THREAD_TEAM_H
#define RT_THREAD_TEAM_H

#include "base/status.h"

typedef struct thread_team thread_team;

hp_status thread_team_create(int n, thread_team **out);
void thread_team_free(thread_team *c);
/* The work of a team: first `begin` (NULL: nothing) on the caller, then fn for i = 0 .. n - 1,
 * all at once. */
typedef struct {
  void (*begin)(void *context);
  hp_status (*fn)(void *context, int i);
  void *context;
} team_work;
/* Takes the n threads with these numbers, which ascend, all at once: until the caller gives them
 * back, other callers that ask for one of them wait.  A caller may take again what it has, and then
 * gives it back as often. */
void thread_team_take(thread_team *c, const int *number, int n);
void thread_team_give(thread_team *c, const int *number, int n);
/* Takes them, and runs it on them; the caller takes the place of the first.  The first failure by i
 * is returned, with its message. */
hp_status thread_team_run(thread_team *c, const int *number, int n, const team_work *w);

#endif
