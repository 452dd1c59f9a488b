/* Replicas are compared while a run goes on: a flipped bit ends it before it is saved. */
#include "base/log.h"
#include "base/thread.h"
#include "train/trainer_parts.h"

hp_status trainer_verify(trainer *t) {
  err_report why;
  if (!t->c->verify_replicas_steps || t->verified == t->step) return HP_OK;
  double start = time_now_s();
  hp_status st = hp_params_verify(t->d);
  if (!st) {
    log_debug("replicas after step %lld compared in %.4f s", (long long)t->step,
              time_now_s() - start);
    t->verified = t->step;
    return HP_OK;
  }
  err_take(st, &why);
  if (st != HP_ERR_DEVICE) HP_FAIL(st, "%s", why.message);
  HP_FAIL(st,
          "after step %lld: %s; the run ends, and begun again goes on from its last checkpoint "
          "(verify_replicas_steps: 0 would not look)",
          (long long)t->step, why.message);
}

hp_status trainer_verify_step(trainer *t) {
  int64_t every = t->c->verify_replicas_steps;
  return every && t->step % every == 0 ? trainer_verify(t) : HP_OK;
}
