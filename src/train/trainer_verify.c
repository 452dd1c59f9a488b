/* Replicas are compared while a run goes on: a flipped bit ends it before it is saved. */
#include "base/log.h"
#include "base/thread.h"
#include "train/trainer_state.h"

hp_status trainer_verify(const train_config *c, int64_t step, run_model *m) {
  err_report why;
  if (!c->verify_replicas_steps || m->verified == step) return HP_OK;
  HP_TRY(stepper_settle(m->stepper));
  double start = time_now_s();
  hp_status st = hp_params_verify(m->d);
  if (!st) {
    log_debug("replicas after step %lld compared in %.4f s", (long long)step, time_now_s() - start);
    m->verified = step;
    return HP_OK;
  }
  err_take(st, &why);
  if (st != HP_ERR_DEVICE) HP_FAIL(st, "%s", why.message);
  HP_FAIL(st,
          "after step %lld: %s; the run ends; started again, it resumes from its last checkpoint "
          "(verify_replicas_steps: 0 would not look)",
          (long long)step, why.message);
}

hp_status trainer_verify_step(const train_config *c, int64_t step, run_model *m) {
  int64_t every = c->verify_replicas_steps;
  return every && step % every == 0 ? trainer_verify(c, step, m) : HP_OK;
}
