#include "train/train_flow.h"

#include <math.h>

static int64_t resolve(double interval, int64_t steps) {
  if (isnan(interval)) return 0;
  double n = interval < 1 ? ceil((double)steps * interval) : interval;
  return (int64_t)n;
}

train_flow train_flow_create(const train_config *c, int64_t steps) {
  return (train_flow){.config = c,
                      .steps = steps,
                      .logging_steps = resolve(c->logging_steps, steps),
                      .eval_steps = resolve(c->eval_steps, steps),
                      .save_steps = resolve(c->save_steps, steps)};
}

static bool due(int64_t step, int64_t every) { return every > 0 && step % every == 0; }

train_actions train_flow_after(const train_flow *f, int64_t step, const sampler_step *at,
                               bool epoch_ends) {
  const train_config *c = f->config;
  train_actions a = {.stop = step >= f->steps};
  a.log = (step == 1 && c->logging_first_step) ||
          (c->logging_strategy == WHEN_STEPS && due(step, f->logging_steps));
  if (c->eval_strategy == WHEN_STEPS && c->eval_delay <= (double)step)
    a.evaluate = a.stop || due(step, f->eval_steps);
  if (c->save_strategy == WHEN_STEPS) a.save = a.stop || due(step, f->save_steps);
  if (!epoch_ends && !a.stop) return a;
  a.log = a.log || c->logging_strategy == WHEN_EPOCH;
  a.evaluate = a.evaluate || (c->eval_strategy == WHEN_EPOCH && c->eval_delay <= at->epoch_after);
  a.save = a.save || c->save_strategy == WHEN_EPOCH;
  return a;
}

static bool evaluates_after(const train_flow *f, const sampler *s, int64_t step) {
  sampler_step at = sampler_find(s, step - 1);
  bool epoch_ends = step == f->steps || step % s->steps_per_epoch == 0;
  return train_flow_after(f, step, &at, epoch_ends).evaluate;
}

static int64_t evaluations_at_start(const train_flow *f, const sampler *s) {
  return s->steps && f->config->eval_on_start;
}

int64_t train_flow_evaluations(const train_flow *f, const sampler *s, int64_t step) {
  int64_t n = evaluations_at_start(f, s);
  for (int64_t i = 1; i <= step && i <= s->steps; i++) n += evaluates_after(f, s, i);
  return n;
}

int64_t train_flow_evaluation_step(const train_flow *f, const sampler *s, int64_t i) {
  int64_t n = evaluations_at_start(f, s), step = 0;
  while (n <= i && step < s->steps) n += evaluates_after(f, s, ++step);
  return step;
}
