/* A thread_team: n threads that do one job together, again and again; the caller is thread 0. */
#ifndef RT_THREAD_TEAM_H
#define RT_THREAD_TEAM_H

#include "base/status.h"

typedef struct thread_team thread_team;

hp_status thread_team_create(int n, thread_team **out);
void thread_team_free(thread_team *c);
/* Runs fn(context, i) for i = 0 .. n - 1, all at once; the first failure by number is returned,
 * with its message.  One thread_team_run at a time. */
hp_status thread_team_run(thread_team *c, hp_status (*fn)(void *context, int i), void *context);

#endif
