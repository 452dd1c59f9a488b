#include "base/retry.h"

#include "base/io.h"
#include "base/log.h"
#include "base/milestone.h"
#include "base/thread.h"

void retry_failed(retry *r, double now, double took) {
  double pause = r->failed ? r->pause_s * RETRY_GROWTH : RETRY_FIRST_S;
  if (pause < took) pause = took;
  if (pause > RETRY_LONGEST_S) pause = RETRY_LONGEST_S;
  r->failed++;
  r->pause_s = pause;
  r->next_s = now + pause;
}

bool retry_is_due(const retry *r, double now) { return now >= r->next_s; }

bool retry_again(retry *r, hp_status st, double began) {
  double now = time_now_s();
  if (!st || r->failed + 1 >= RETRY_LAST_TRIES) return false;
  retry_failed(r, now, now - began);
  log_warn("%s; trying again in %.3g s (try %lld of %d failed)", err_message(), r->pause_s,
           (long long)r->failed, RETRY_LAST_TRIES);
  err_clear();
  for (double now_s; (now_s = time_now_s()) < r->next_s;) {
    milestone_count_work(); /* it waits, and does not hang */
    time_sleep_until(now_s + 1 < r->next_s ? now_s + 1 : r->next_s);
  }
  return true;
}

hp_status retry_file_write(const char *path, const void *bytes, size_t len) {
  retry r = {0};
  hp_status st;
  double began;
  do {
    began = time_now_s();
    st = file_write(path, bytes, len);
  } while (retry_again(&r, st, began));
  return st;
}
