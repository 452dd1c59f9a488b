#include "train/length_order.h"

#include "base/mem.h"

#include <stdlib.h>

enum { SEED_DRAWS = 2, MOST_BATCHES = 50, LEAST_GROUPS = 4 };

/* --- one pass --------------------------------------------------------------------------------- */

static int64_t length(const sample_set *s, int64_t i) {
  int64_t row = i * (s->each > 1 ? s->each : 1);
  return s->start[row + 1] - s->start[row];
}

/* The longest first, those of equal length as they were. */
static int by_length(const void *a, const void *b) {
  const length_item *x = a, *y = b;
  if (x->length != y->length) return x->length > y->length ? -1 : 1;
  return (x->place > y->place) - (x->place < y->place);
}

/* Samples of a mega-batch, which is sorted as a whole: of at most 50 batches, and so few that there
 * are four. */
static int64_t mega_batch(int64_t samples, int64_t batch) {
  int64_t batches = samples / LEAST_GROUPS / batch;
  if (batches > MOST_BATCHES) batches = MOST_BATCHES;
  return batch * (batches ? batches : 1);
}

static int64_t draws_of(int64_t samples) { return SEED_DRAWS + sampler_permute_draws(samples); }

void length_order_draw(mt19937 *random, const sample_set *s, int64_t batch, length_item *room,
                       int64_t *order) {
  int64_t n = s->samples, group = mega_batch(n, batch), longest = 0;
  mt19937_skip(random, SEED_DRAWS);
  sampler_permute(random, n, order);
  for (int64_t i = 0; i < n; i++) room[i] = (length_item){length(s, order[i]), i, order[i]};
  for (int64_t i = 0; i < n; i += group) {
    int64_t left = n - i < group ? n - i : group;
    qsort(room + i, (size_t)left, sizeof *room, by_length);
    if (room[i].length > room[longest].length) longest = i;
  }
  for (int64_t i = 0; i < n; i++) order[i] = room[i].sample;
  /* the longest of all comes first, so that a lack of memory shows at once */
  order[0] = room[longest].sample;
  order[longest] = room[0].sample;
}

/* --- the passes of a run ---------------------------------------------------------------------- */

/* Goes to where `draws` numbers have been drawn. */
static void seek(length_order *o, int64_t draws) {
  if (draws < o->drawn || !o->drawn) {
    mt19937_seed(&o->random, (uint32_t)o->seed);
    o->drawn = 0;
  }
  mt19937_skip(&o->random, draws - o->drawn);
  o->drawn = draws;
}

static int64_t draws_of_evaluation(const length_order *o) {
  int64_t n = 0;
  for (int64_t i = 0; i < o->evals; i++) n += draws_of(o->eval[i].samples);
  return n;
}

static void draw(length_order *o, const sample_set *s, int64_t batch, int64_t *order) {
  length_order_draw(&o->random, s, batch, o->room, order);
  o->drawn += draws_of(s->samples);
}

/* Draws of `epochs` epochs and `evaluations` evaluations. */
static int64_t draws_before(const length_order *o, int64_t epochs, int64_t evaluations) {
  return epochs * draws_of(o->steps.spec.samples) + evaluations * draws_of_evaluation(o);
}

void length_order_epoch(length_order *o, const sample_set *train, int64_t epoch, int64_t *order) {
  int64_t done = train_flow_evaluations(&o->flow, &o->steps, epoch * o->steps.steps_per_epoch);
  seek(o, draws_before(o, epoch, done));
  draw(o, train, o->batch, order);
}

int64_t length_order_evaluations(const length_order *o) {
  return train_flow_evaluations(&o->flow, &o->steps, o->steps.steps) + 1;
}

/* Epochs that have begun when evaluation `i` takes place. */
static int64_t epochs_before(const length_order *o, int64_t i) {
  int64_t step = train_flow_evaluation_step(&o->flow, &o->steps, i);
  return step ? sampler_find(&o->steps, step - 1).epoch + 1 : 0;
}

void length_order_evaluation(length_order *o, int64_t i) {
  seek(o, draws_before(o, epochs_before(o, i), i));
  for (int64_t k = 0; k < o->evals; k++) draw(o, &o->eval[k], o->eval_batch, o->eval_order[k]);
}

/* --- create ----------------------------------------------------------------------------------- */

static hp_status make_room(length_order *o, const sample_set *train) {
  int64_t most = train->samples;
  o->eval_order = mem_calloc((size_t)o->evals + 1, sizeof *o->eval_order);
  HP_TRY_MEM(o->eval_order);
  for (int64_t i = 0; i < o->evals; i++) {
    int64_t n = o->eval[i].samples;
    o->eval_order[i] = mem_calloc((size_t)n + 1, sizeof **o->eval_order);
    HP_TRY_MEM(o->eval_order[i]);
    for (int64_t k = 0; k < n; k++) o->eval_order[i][k] = k;
    if (n > most) most = n;
  }
  o->room = mem_calloc((size_t)most + 1, sizeof *o->room);
  return o->room ? HP_OK : HP_ERR_OOM;
}

hp_status length_order_create(const train_config *c, const sampler *steps, const sample_set *train,
                              const sample_set *eval, int64_t evals, length_order *out) {
  *out = (length_order){.on = c->is.by_length};
  if (!out->on) return HP_OK;
  out->seed = (uint64_t)c->seed;
  out->batch = c->is.batch.length_group;
  out->eval_batch = c->per_device_eval_batch_size;
  out->steps = *steps;
  out->flow = train_flow_create(c, steps->steps);
  out->eval = eval;
  out->evals = evals;
  return make_room(out, train);
}

void length_order_free(length_order *o) {
  for (int64_t i = 0; o->eval_order && i < o->evals; i++) mem_free(o->eval_order[i]);
  mem_free(o->eval_order);
  mem_free(o->room);
}
