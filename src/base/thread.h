/* Thread pool: n threads, the caller among them, each pinned to a core of its own.
 *
 * pool_run calls fn(ctx, part) for part = 0..parts-1, with the items distributed over the
 * threads in contiguous blocks.  The result of an item must not depend on the number of threads.
 * Workers spin briefly, then sleep.  One pool_run at a time per pool; fn must not call pool_run. */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include "base/status.h"

typedef struct pool pool;

/* n <= 0: the cores this process may use.  pin: bind thread i to the i-th allowed core. */
hp_status pool_create(int n, bool pin, pool **out);
void pool_free(pool *p);
int pool_size(const pool *p);
/* Lets the caller, which pool_create has bound to one core, use all its former cores, or binds
 * it again: for starting threads and processes, which inherit this. */
void pool_bind_caller(const pool *p, bool bind);
void pool_run(pool *p, int64_t parts, void (*fn)(void *ctx, int64_t part), void *ctx);
/* The same with items that can fail: all run, and a failure is returned with its message. */
hp_status pool_try(pool *p, int64_t parts, hp_status (*fn)(void *ctx, int64_t part), void *ctx);

int cpu_count(void);             /* cores this process may use (affinity and cgroup quota) */
double time_now_s(void);         /* monotonic seconds */
double time_processor_s(void);   /* of all threads of this process, user and system */
void time_sleep_until(double s); /* returns at time_now_s() = s */

#endif
