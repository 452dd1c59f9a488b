/* The samples of each step: a pure function of (seed, number of samples, step), so that a resume
 * needs one integer.  Arithmetic and order are those of Transformers' Trainer:
 *
 *   samples of an epoch        all, or a multiple of a batch: see sampler_deal
 *   micro-batches of an epoch  ceil(samples of an epoch / batch)
 *   steps of an epoch          ceil(micro-batches / accumulation): the last one is shorter
 *   steps of a run             max_steps if > 0, else ceil(num_train_epochs * steps of an epoch)
 *   order of epoch e           forward Fisher-Yates by MT19937 seeded with seed + e, or 0, 1, 2 ...
 */
#ifndef TRAIN_SAMPLER_H
#define TRAIN_SAMPLER_H

#include "base/mt19937.h"

/* What happens to an epoch's last batch if the samples do not fill it. */
typedef enum {
  SAMPLER_SHORT, /* it is shorter: one device */
  SAMPLER_FILL,  /* it is filled up with the first samples of the epoch, so that all replicas
                    have the same number: accelerate's even_batches */
  SAMPLER_DROP   /* it is left out: dataloader_drop_last */
} sampler_last;
/* Samples of an epoch, in batches of `unit` over all replicas; more than exist if some are
 * repeated.  HP_ERR_INPUT if none are left. */
hp_status sampler_deal(int64_t samples, int64_t unit, sampler_last last, int64_t *epoch_samples);

typedef struct {
  int64_t samples, epoch_samples, batch, accumulation; /* all >= 1 */
  double epochs;                                       /* num_train_epochs, > 0 */
  int64_t max_steps;                                   /* > 0: in place of epochs */
  uint64_t seed;
  bool shuffle;
} sampler_spec;

typedef struct {
  sampler_spec spec;
  int64_t micro_per_epoch, steps_per_epoch, steps; /* `steps`: of the full run */
  int64_t epochs;                                  /* begun in it */
  int64_t train_samples; /* of the run, as Transformers counts them for samples per second */
} sampler;

/* HP_ERR_ARG if a size is invalid or a product overflows. */
hp_status sampler_create(const sampler_spec *spec, sampler *out);

/* order[0..n): torch.randperm(n) by a generator of torch's, and the numbers that it draws. */
void sampler_permute(mt19937 *random, int64_t n, int64_t *order);
int64_t sampler_permute_draws(int64_t n);

/* order[0..samples): the samples of epoch `epoch` in order. */
void sampler_order(const sampler *s, int64_t epoch, int64_t *order);

typedef struct {
  int64_t epoch;
  int64_t micro, micros; /* the step's micro-batches: [micro, micro + micros) of the epoch */
  double epoch_after;    /* the "epoch" of a log entry after the step */
} sampler_step;
/* Step `step`, from 0. */
sampler_step sampler_find(const sampler *s, int64_t step);
/* The samples of a micro-batch: [*first, *first + result) of the epoch's order, which is cyclic. */
int64_t sampler_micro(const sampler *s, int64_t micro, int64_t *first);

#endif
