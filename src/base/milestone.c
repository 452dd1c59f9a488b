#include "base/milestone.h"

#include <stdatomic.h>
#include <stddef.h>

/* Stored as one more: 0 is nothing yet. */
static struct {
  _Atomic int64_t step, saved;
  _Atomic uint64_t work;
  _Atomic int64_t syncs; /* threads that wait for a disk */
  const char *_Atomic activity;
} milestone;

void milestone_set_step(int64_t step) { milestone.step = step + 1; }
void milestone_set_saved(int64_t step) { milestone.saved = step + 1; }
int64_t milestone_get_step(void) { return milestone.step - 1; }
int64_t milestone_get_saved(void) { return milestone.saved - 1; }
void milestone_count_work(void) {
  atomic_fetch_add_explicit(&milestone.work, 1, memory_order_relaxed);
}
uint64_t milestone_get_work(void) {
  return atomic_load_explicit(&milestone.work, memory_order_relaxed);
}

const char *milestone_set_activity(const char *what) {
  milestone_count_work();
  return atomic_exchange(&milestone.activity, what);
}
const char *milestone_get_activity(void) {
  const char *what = milestone.activity;
  return what ? what : "";
}

void milestone_begin_sync(void) {
  milestone_count_work();
  milestone.syncs++;
}
void milestone_end_sync(void) {
  milestone.syncs--;
  milestone_count_work();
}
bool milestone_is_syncing(void) { return milestone.syncs > 0; }
