/* Thread pool: n threads, the caller among them, each pinned to a core of its own.
 *
 * pool_run splits nothing itself: it calls fn(ctx, part) for part = 0..parts-1, parts spread over
 * the threads in contiguous blocks.  What a part computes must not depend on the number of threads.
 * Workers spin briefly, then sleep.  One pool_run at a time per pool; fn must not call pool_run. */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include "base/status.h"

typedef struct pool pool;

/* n <= 0: the cores this process may use.  pin: bind thread i to the i-th allowed core. */
hp_status pool_create(int n, bool pin, pool **out);
void pool_free(pool *p);
int pool_size(const pool *p);
/* Lets the caller, whom pool_create has bound to one core, use all that it could before, or binds
 * it again: for starting other threads and processes, which inherit that. */
void pool_bind_caller(const pool *p, bool bind);
void pool_run(pool *p, int64_t parts, void (*fn)(void *ctx, int64_t part), void *ctx);
/* The same with parts that can fail: all run, and a failure is returned with its message. */
hp_status pool_try(pool *p, int64_t parts, hp_status (*fn)(void *ctx, int64_t part), void *ctx);

int cpu_count(void);             /* cores this process may use (affinity and cgroup quota) */
double time_now_s(void);         /* monotonic seconds */
void time_sleep_until(double s); /* returns when time_now_s() has come to s */

#endif
