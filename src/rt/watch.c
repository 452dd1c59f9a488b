#include "rt/watch.h"

#include <pthread.h>
#include <stdatomic.h>

static struct {
  pthread_mutex_t lock;
  const program *p; /* that runs; NULL */
  _Atomic uint64_t runs;
  _Atomic uint32_t at[STREAM_COUNT]; /* instruction + 1; 0: none */
} watch = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void set(const program *p) {
  pthread_mutex_lock(&watch.lock);
  watch.p = p;
  for (int s = 0; s < STREAM_COUNT; s++) watch.at[s] = 0;
  pthread_mutex_unlock(&watch.lock);
}

void watch_begin(const program *p) {
  set(p);
  watch.runs++;
}

void watch_end(void) { set(NULL); }

void watch_at(uint32_t stream, uint32_t i) {
  atomic_store_explicit(&watch.at[stream], i == PROG_NONE ? 0 : i + 1, memory_order_relaxed);
}

void watch_read(watch_place *out) {
  out->runs = watch.runs;
  for (int s = 0; s < STREAM_COUNT; s++) out->at[s] = watch.at[s] ? watch.at[s] - 1 : PROG_NONE;
}

void watch_print(uint32_t i, str *out) {
  pthread_mutex_lock(&watch.lock);
  if (watch.p && i < watch.p->insts.len) program_print_inst(watch.p, i, out);
  pthread_mutex_unlock(&watch.lock);
}
