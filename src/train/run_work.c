#include "train/run_work.h"

#include "base/hash.h"

typedef struct {
  run_work *out;
  map known; /* bytes of a planned_program */
} work_list;

static hp_status add(work_list *l, const micro_shape *shape, int64_t micros) {
  planned_program p = {*shape, micros};
  uint32_t at;
  if (map_get(&l->known, &p, sizeof p, &at)) return HP_OK;
  if (!vec_push(&l->out->programs, p)) return HP_ERR_OOM;
  return map_set(&l->known, &p, sizeof p, (uint32_t)l->out->programs.len);
}

static hp_status add_steps(work_list *l, train_data *d) {
  const sampler *s = &d->order;
  int64_t accumulation = s->spec.accumulation;
  bool all = accumulation < s->micro_per_epoch;
  micro_shape shape = {train_data_rows(d), d->train.longest};
  HP_TRY(add(l, &shape, all ? accumulation : s->micro_per_epoch));
  for (int64_t i = 0; i < s->steps; i++) {
    sampler_step at = sampler_find(s, i);
    for (int64_t k = 0; k < at.micros; k++) {
      train_data_shape(d, at.epoch, at.micro + k, &shape.B, &shape.T);
      HP_TRY(add(l, &shape, at.micros));
    }
  }
  return HP_OK;
}

static hp_status add_evaluation(work_list *l, const train_data *d) {
  for (int64_t i = 0; i < d->evals; i++) {
    const sample_set *s = &d->eval[i];
    int64_t n = train_data_eval_batches(d, s);
    for (int64_t k = 0; k < n; k++) {
      micro_shape shape;
      train_data_eval_shape(d, s, k, &shape.B, &shape.T);
      HP_TRY(add(l, &shape, 0));
    }
  }
  return HP_OK;
}

static hp_status add_evaluations(work_list *l, train_data *d) {
  int64_t n = train_data_evaluations(d);
  for (int64_t i = 0; i < n; i++) {
    train_data_order_evaluation(d, i);
    HP_TRY(add_evaluation(l, d));
  }
  return HP_OK;
}

hp_status run_work_find(train_data *d, bool trains, bool evaluates, run_work *out) {
  work_list l = {.out = out};
  *out = (run_work){0};
  hp_status st = trains ? add_steps(&l, d) : HP_OK;
  if (!st && evaluates) st = add_evaluations(&l, d);
  map_free(&l.known);
  return st;
}

void run_work_free(run_work *w) { vec_free(&w->programs); }
