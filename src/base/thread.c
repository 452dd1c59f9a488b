#include "base/thread.h"

#include "base/mem.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { SPIN = 4000, THREADS_MAX = 1024 };

typedef struct {
  pool *p;
  int index;
  pthread_t thread;
} worker;

struct pool {
  int n;
  bool pin;
  worker *w; /* w[0] is the caller and has no thread */
  int *cpu;  /* the i-th core that the process may use */
  int n_cpu;
  cpu_set_t before; /* cores of the caller */
  void (*fn)(void *, int64_t);
  void *ctx;
  int64_t parts;
  _Atomic uint32_t job;     /* counts pool_run calls: workers wait for it to change */
  _Atomic uint32_t running; /* workers that have not finished the job */
  atomic_bool stop;
};

static void futex_wait(_Atomic uint32_t *a, uint32_t seen) {
  syscall(SYS_futex, a, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}
static void futex_wake(_Atomic uint32_t *a) {
  syscall(SYS_futex, a, FUTEX_WAKE_PRIVATE, THREADS_MAX, NULL, NULL, 0);
}

static void pause_cpu(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

static void run_block(pool *p, int index) {
  int64_t from = p->parts * index / p->n, to = p->parts * (index + 1) / p->n;
  for (int64_t i = from; i < to; i++) p->fn(p->ctx, i);
}

static void pin_to(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof set, &set); /* a refusal only costs speed */
}

static void *worker_main(void *arg) {
  worker *w = arg;
  pool *p = w->p;
  if (p->pin && p->n_cpu > 0) pin_to(p->cpu[w->index % p->n_cpu]);
  uint32_t seen = 0;
  for (;;) {
    for (int i = 0; i < SPIN && atomic_load(&p->job) == seen; i++) pause_cpu();
    while (atomic_load(&p->job) == seen) futex_wait(&p->job, seen);
    seen = atomic_load(&p->job);
    if (atomic_load(&p->stop)) return NULL;
    run_block(p, w->index);
    if (atomic_fetch_sub(&p->running, 1) == 1) futex_wake(&p->running);
  }
}

/* Cores allowed by the affinity mask. */
static int allowed_cpus(int *cpu, int max) {
  cpu_set_t set;
  int n = 0;
  if (sched_getaffinity(0, sizeof set, &set)) return 0;
  for (int i = 0; i < CPU_SETSIZE && n < max; i++)
    if (CPU_ISSET(i, &set)) cpu[n++] = i;
  return n;
}

int cpu_count(void) {
  int cpu[THREADS_MAX];
  int n = allowed_cpus(cpu, THREADS_MAX);
  if (n < 1) n = 1;
  FILE *f = fopen("/sys/fs/cgroup/cpu.max", "r");
  long long quota, period;
  if (f) {
    if (fscanf(f, "%lld %lld", &quota, &period) == 2 && quota > 0 && period > 0) {
      long long cores = (quota + period - 1) / period;
      if (cores >= 1 && cores < n) n = (int)cores;
    }
    fclose(f);
  }
  return n;
}

hp_status pool_create(int n, bool pin, pool **out) {
  if (n <= 0) n = cpu_count();
  if (n > THREADS_MAX)
    HP_FAIL(HP_ERR_ARG, "threads is %d; expected 1 to %d, or 0 for all cores", n, THREADS_MAX);
  pool *p = mem_calloc(1, sizeof *p);
  HP_TRY_MEM(p);
  p->n = 1;
  p->w = mem_calloc((size_t)n, sizeof *p->w);
  p->cpu = mem_calloc(THREADS_MAX, sizeof *p->cpu);
  if (!p->w || !p->cpu) {
    pool_free(p);
    return HP_ERR_OOM;
  }
  p->n_cpu = allowed_cpus(p->cpu, THREADS_MAX);
  CPU_ZERO(&p->before);
  for (int i = 0; i < p->n_cpu; i++) CPU_SET(p->cpu[i], &p->before);
  p->pin = pin && p->n_cpu >= n; /* more threads than cores: let the kernel place them */
  for (int i = 1; i < n; i++) {
    p->w[i] = (worker){.p = p, .index = i};
    int e = pthread_create(&p->w[i].thread, NULL, worker_main, &p->w[i]);
    if (e) {
      pool_free(p);
      HP_FAIL(HP_ERR_DEVICE, "cannot start thread %d of %d: %s; set threads to %d or less", i, n,
              strerror(e), i);
    }
    p->n = i + 1;
  }
  pool_bind_caller(p, true);
  *out = p;
  return HP_OK;
}

void pool_bind_caller(const pool *p, bool bind) {
  if (!p->pin || p->n == 1) return;
  if (bind) pin_to(p->cpu[0]);
  else sched_setaffinity(0, sizeof p->before, &p->before);
}

void pool_free(pool *p) {
  if (!p) return;
  pool_bind_caller(p, false);
  atomic_store(&p->stop, true);
  atomic_fetch_add(&p->job, 1);
  futex_wake(&p->job);
  for (int i = 1; i < p->n; i++) pthread_join(p->w[i].thread, NULL);
  mem_free(p->w);
  mem_free(p->cpu);
  mem_free(p);
}

int pool_size(const pool *p) { return p->n; }

void pool_run(pool *p, int64_t parts, void (*fn)(void *ctx, int64_t part), void *ctx) {
  if (p->n == 1 || parts == 1) {
    for (int64_t i = 0; i < parts; i++) fn(ctx, i);
    return;
  }
  p->fn = fn;
  p->ctx = ctx;
  p->parts = parts;
  atomic_store(&p->running, (uint32_t)p->n - 1);
  atomic_fetch_add(&p->job, 1);
  futex_wake(&p->job);
  run_block(p, 0);
  for (int i = 0; i < SPIN && atomic_load(&p->running); i++) pause_cpu();
  for (uint32_t left; (left = atomic_load(&p->running));) futex_wait(&p->running, left);
}

typedef struct {
  hp_status (*fn)(void *, int64_t);
  void *ctx;
  pthread_mutex_t lock;
  err_report failure;
} attempt;

static void try_part(void *ctx, int64_t part) {
  attempt *a = ctx;
  hp_status st = a->fn(a->ctx, part);
  if (!st) return;
  pthread_mutex_lock(&a->lock);
  if (!a->failure.code) err_take(st, &a->failure);
  else err_clear();
  pthread_mutex_unlock(&a->lock);
}

hp_status pool_try(pool *p, int64_t parts, hp_status (*fn)(void *ctx, int64_t part), void *ctx) {
  attempt a = {.fn = fn, .ctx = ctx, .lock = PTHREAD_MUTEX_INITIALIZER};
  pool_run(p, parts, try_part, &a);
  pthread_mutex_destroy(&a.lock);
  return a.failure.code ? err_give(&a.failure) : HP_OK;
}

double time_processor_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double time_now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static const double SLEEP_MOST = 9e15;

void time_sleep_until(double s) {
  if (s > SLEEP_MOST) s = SLEEP_MOST; /* what a time_t holds */
  struct timespec t = {.tv_sec = (time_t)s};
  t.tv_nsec = (long)((s - (double)t.tv_sec) * 1e9);
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) continue;
}
