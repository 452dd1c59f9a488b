#include "train/sampler.h"

#include <math.h>

static int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }

hp_status sampler_deal(int64_t samples, int64_t unit, sampler_last last, int64_t *epoch_samples) {
  if (samples < 1 || unit < 1 || unit > INT64_MAX / 4 || samples > INT64_MAX / 4)
    HP_FAIL(HP_ERR_ARG, "%lld samples in batches of %lld: each must be at least 1",
            (long long)samples, (long long)unit);
  int64_t whole = samples / unit * unit;
  if (last == SAMPLER_DROP && !whole)
    HP_FAIL(HP_ERR_INPUT,
            "dataloader_drop_last leaves nothing to train on: %lld samples are less than one batch "
            "of %lld; lower per_device_train_batch_size or write dataloader_drop_last: false",
            (long long)samples, (long long)unit);
  if (last == SAMPLER_DROP) *epoch_samples = whole;
  else *epoch_samples = last == SAMPLER_FILL && whole < samples ? whole + unit : samples;
  return HP_OK;
}

hp_status sampler_create(const sampler_spec *spec, sampler *out) {
  sampler s = {.spec = *spec};
  if (spec->samples < 1 || spec->epoch_samples < 1 || spec->batch < 1 || spec->accumulation < 1)
    HP_FAIL(HP_ERR_ARG,
            "a run of %lld samples, %lld to an epoch, in batches of %lld, %lld to a step: each "
            "must be at least 1",
            (long long)spec->samples, (long long)spec->epoch_samples, (long long)spec->batch,
            (long long)spec->accumulation);
  s.micro_per_epoch = ceil_div(spec->epoch_samples, spec->batch);
  s.steps_per_epoch = ceil_div(s.micro_per_epoch, spec->accumulation);
  double steps = spec->max_steps > 0 ? (double)spec->max_steps
                                     : ceil(spec->epochs * (double)s.steps_per_epoch);
  double samples = spec->max_steps > 0 ? steps * (double)spec->batch * (double)spec->accumulation
                                       : (double)spec->samples * spec->epochs;
  if (!(steps >= 1 && steps < 9e15 && samples < 9e15))
    HP_FAIL(HP_ERR_ARG,
            "a run of %g steps and %g samples is out of range; check num_train_epochs, "
            "max_steps and the batch sizes",
            steps, samples);
  s.steps = (int64_t)steps;
  s.epochs =
      spec->max_steps > 0 ? ceil_div(s.steps, s.steps_per_epoch) : (int64_t)ceil(spec->epochs);
  s.train_samples = (int64_t)samples;
  *out = s;
  return HP_OK;
}

/* Where 32 bits would favour some samples visibly, 64 are drawn.  torch.randperm draws otherwise
 * from that size (214 million samples) on: its order is met below it only. */
static bool draws_wide(int64_t n) { return n >= (int64_t)(UINT32_MAX / 20); }

void sampler_permute(mt19937 *random, int64_t n, int64_t *order) {
  for (int64_t i = 0; i < n; i++) order[i] = i;
  for (int64_t i = 0; i < n - 1; i++) {
    uint64_t r = mt19937_u32(random);
    if (draws_wide(n)) r = r << 32 | mt19937_u32(random);
    int64_t j = i + (int64_t)(r % (uint64_t)(n - i));
    int64_t t = order[i];
    order[i] = order[j];
    order[j] = t;
  }
}

int64_t sampler_permute_draws(int64_t n) { return (n > 1 ? n - 1 : 0) * (draws_wide(n) ? 2 : 1); }

void sampler_order(const sampler *s, int64_t epoch, int64_t *order) {
  mt19937 m;
  for (int64_t i = 0; i < s->spec.samples; i++) order[i] = i;
  if (!s->spec.shuffle) return;
  mt19937_seed(&m, (uint32_t)(s->spec.seed + (uint64_t)epoch));
  sampler_permute(&m, s->spec.samples, order);
}

sampler_step sampler_find(const sampler *s, int64_t step) {
  sampler_step at = {.epoch = step / s->steps_per_epoch};
  at.micro = step % s->steps_per_epoch * s->spec.accumulation;
  int64_t left = s->micro_per_epoch - at.micro;
  at.micros = left < s->spec.accumulation ? left : s->spec.accumulation;
  at.epoch_after = (double)at.epoch + (double)(at.micro + at.micros) / (double)s->micro_per_epoch;
  return at;
}

int64_t sampler_micro(const sampler *s, int64_t micro, int64_t *first) {
  *first = micro * s->spec.batch;
  int64_t left = s->spec.epoch_samples - *first;
  return left < s->spec.batch ? left : s->spec.batch;
}
