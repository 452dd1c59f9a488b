#include "rt/progress_record.h"

#include <pthread.h>
#include <stdatomic.h>

static struct {
  pthread_mutex_t lock;
  const program *p; /* the running program, or NULL */
  _Atomic uint64_t runs;
  _Atomic uint32_t at[STREAM_COUNT]; /* instruction + 1; 0: none */
} record = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void set(const program *p) {
  pthread_mutex_lock(&record.lock);
  record.p = p;
  for (int s = 0; s < STREAM_COUNT; s++) record.at[s] = 0;
  pthread_mutex_unlock(&record.lock);
}

void progress_record_begin(const program *p) {
  set(p);
  record.runs++;
}

void progress_record_end(void) { set(NULL); }

void progress_record_set(uint32_t stream, uint32_t i) {
  atomic_store_explicit(&record.at[stream], i == PROG_NONE ? 0 : i + 1, memory_order_relaxed);
}

void progress_record_read(progress_place *out) {
  out->runs = record.runs;
  for (int s = 0; s < STREAM_COUNT; s++) out->at[s] = record.at[s] ? record.at[s] - 1 : PROG_NONE;
}

void progress_record_print(uint32_t i, str *out) {
  pthread_mutex_lock(&record.lock);
  if (record.p && i < record.p->insts.len) program_print_inst(record.p, i, out);
  pthread_mutex_unlock(&record.lock);
}
