/* A crew: n threads that do one job together, again and again; the caller is thread 0. */
#ifndef RT_CREW_H
#define RT_CREW_H

#include "base/status.h"

typedef struct crew crew;

hp_status crew_create(int n, crew **out);
void crew_free(crew *c);
/* Runs fn(context, i) for i = 0 .. n - 1, all at once; the first failure by number is returned,
 * with its message.  One crew_run at a time. */
hp_status crew_run(crew *c, hp_status (*fn)(void *context, int i), void *context);

#endif
