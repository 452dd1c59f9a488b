#include "train/train_data.h"

#include "base/json.h"
#include "base/log.h"

#include <string.h>

static void free_set(sample_set *s) {
  mem_free(s->ids);
  mem_free(s->start);
}

void train_data_free(train_data *d) {
  if (!d) return;
  free_set(&d->train);
  for (int64_t i = 0; i < d->evals; i++) free_set(&d->eval[i]);
  mem_free(d->eval);
  mem_free(d->shuffled.of);
}

/* --- loading ---------------------------------------------------------------------------------- */

static dataset_spec spec_of(const train_config *c, const train_names *names) {
  return (dataset_spec){.dir = c->dataset_dir,
                        .name = names->at,
                        .n = names->n,
                        .max_samples = c->max_samples == TRAIN_NONE ? -1 : c->max_samples,
                        .mix = (dataset_mix)c->mix_strategy,
                        .probs = c->is.interleave_probs,
                        .seed = (uint64_t)c->seed};
}

typedef struct {
  const train_config *c;
  token_rules rules;
  pool *p;
  mt19937 global; /* NumPy's, seeded once for the run */
} loader;

static hp_status add_eval(loader *l, const char *name, const dataset *texts, train_data *out) {
  HP_TRY(token_samples(l->c, &l->rules, *name ? name : "the evaluation data", texts, l->p,
                       &out->eval[out->evals]));
  out->eval[out->evals++].name = name;
  return HP_OK;
}

/* One evaluation set of all names, or one each. */
static hp_status load_eval(loader *l, train_data *out) {
  const train_names *names = &l->c->is.eval_dataset;
  size_t sets = l->c->eval_on_each_dataset ? names->n : 1;
  out->eval = mem_calloc(sets, sizeof *out->eval);
  HP_TRY_MEM(out->eval);
  for (size_t i = 0; i < sets; i++) {
    train_names one = {names->at + i, l->c->eval_on_each_dataset ? 1 : names->n};
    dataset_spec spec = spec_of(l->c, &one);
    dataset texts = {0};
    HP_TRY(dataset_load(&spec, &l->global, &texts));
    hp_status st = add_eval(l, l->c->eval_on_each_dataset ? names->at[i] : "", &texts, out);
    dataset_free(&texts);
    HP_TRY(st);
  }
  return HP_OK;
}

static hp_status split_eval(loader *l, dataset *texts, train_data *out) {
  dataset taken = {0};
  HP_TRY(
      dataset_split(texts, l->c->is.val_count, l->c->is.val_share, (uint64_t)l->c->seed, &taken));
  out->eval = mem_calloc(1, sizeof *out->eval);
  hp_status st = out->eval ? add_eval(l, "", &taken, out) : HP_ERR_OOM;
  dataset_free(&taken);
  return st;
}

static hp_status make_order(const train_config *c, train_data *out) {
  sampler_spec spec = {.samples = out->train.samples,
                       .batch = c->per_device_train_batch_size,
                       .accumulation = c->gradient_accumulation_steps,
                       .epochs = c->num_train_epochs,
                       .max_steps = c->max_steps,
                       .seed = c->is.data_seed,
                       .shuffle = c->is.shuffle,
                       .drop_last = c->dataloader_drop_last};
  HP_TRY(sampler_create(&spec, &out->order));
  out->shuffled.epoch = -1;
  out->shuffled.of = mem_calloc((size_t)out->train.samples, sizeof *out->shuffled.of);
  return out->shuffled.of ? HP_OK : HP_ERR_OOM;
}

static void note_vocab(train_data *d, const sample_set *s) {
  for (int64_t i = 0; s->samples && i < s->start[s->samples]; i++)
    if (s->ids[i] >= d->vocab) d->vocab = s->ids[i] + 1;
}

static hp_status load(loader *l, train_data *out) {
  const train_config *c = l->c;
  dataset texts = {0};
  if (c->is.dataset.n) {
    dataset_spec spec = spec_of(c, &c->is.dataset);
    HP_TRY(dataset_load(&spec, &l->global, &texts));
  }
  hp_status st = HP_OK;
  if (c->is.eval_dataset.n) st = load_eval(l, out);
  else if (c->is.val_count || c->is.val_share > 0) st = split_eval(l, &texts, out);
  if (!st && texts.text.len)
    st = token_samples(c, &l->rules, "the training data", &texts, l->p, &out->train);
  dataset_free(&texts);
  if (!st && out->train.samples) st = make_order(c, out);
  return st;
}

hp_status train_data_open(const train_config *c, const tokenizer *t, const char *tokenizer_dir,
                          pool *p, train_data *out) {
  train_data d = {.packed = c->is.packed};
  loader l = {.c = c, .p = p};
  HP_TRY(token_rules_find(c, t, tokenizer_dir, &l.rules));
  mt19937_seed(&l.global, (uint32_t)c->seed);
  d.pad = l.rules.pad;
  d.eos = l.rules.eos;
  d.vocab = d.pad + 1;
  hp_status st = load(&l, &d);
  if (st) {
    train_data_free(&d);
    return st;
  }
  note_vocab(&d, &d.train);
  for (int64_t i = 0; i < d.evals; i++) note_vocab(&d, &d.eval[i]);
  *out = d;
  return HP_OK;
}

hp_status train_data_check_vocab(const train_data *d, int64_t rows) {
  if (d->vocab > rows)
    HP_FAIL(HP_ERR_INPUT,
            "the data has token %d, but the model's embedding has %lld rows (vocab_size of "
            "config.json); tokenizer and checkpoint do not belong together",
            d->vocab - 1, (long long)rows);
  return HP_OK;
}

hp_status train_data_print_example(const train_data *d, const tokenizer *t, str *out) {
  const sample_set *s = d->train.samples ? &d->train : &d->eval[0];
  json_writer w = {.out = out};
  str_printf(out, "%s example:\ninput_ids:\n", d->train.samples ? "training" : "eval");
  json_open_list(&w);
  for (int64_t i = s->start[0]; i < s->start[1]; i++) json_put_int(&w, s->ids[i]);
  json_close(&w);
  str_add(out, "\ninputs:\n");
  HP_TRY(tokenizer_decode(t, s->ids, (size_t)(s->start[1] - s->start[0]), false, out));
  str_add_char(out, '\n');
  return str_status(out);
}

/* --- batches ---------------------------------------------------------------------------------- */

int64_t train_data_largest(const train_data *d) {
  return train_data_largest_eval(&d->train, d->order.spec.batch);
}

int64_t train_data_largest_eval(const sample_set *s, int64_t batch) {
  return (batch < s->samples ? batch : s->samples) * s->longest;
}

static int64_t length(const sample_set *s, int64_t i) { return s->start[i + 1] - s->start[i]; }

static const int64_t *order_of(train_data *d, int64_t epoch) {
  if (d->shuffled.epoch != epoch) sampler_order(&d->order, epoch, d->shuffled.of);
  d->shuffled.epoch = epoch;
  return d->shuffled.of;
}

/* The longest of n samples: those listed in `of`, or first, first + 1, ... when it is NULL. */
static int64_t widest(const sample_set *s, const int64_t *of, int64_t first, int64_t n) {
  int64_t most = 0;
  for (int64_t i = first; i < first + n; i++) {
    int64_t len = length(s, of ? of[i] : i);
    if (len > most) most = len;
  }
  return most;
}

static void fill_row(const train_data *d, const sample_set *s, int64_t sample, int64_t row,
                     train_batch *b) {
  int64_t n = length(s, sample);
  int32_t *ids = b->ids + row * b->T, *labels = b->labels + row * b->T;
  memcpy(ids, s->ids + s->start[sample], (size_t)n * sizeof *ids);
  for (int64_t i = 0; i < b->T; i++) {
    if (i >= n) ids[i] = d->pad;
    labels[i] = ids[i] == d->pad ? LABEL_NONE : ids[i];
    b->labelled += labels[i] != LABEL_NONE;
  }
  b->tokens += n;
  if (b->lengths) b->lengths[row] = (int32_t)n;
}

static void fill(const train_data *d, const sample_set *s, const int64_t *of, int64_t first,
                 int64_t n, int64_t width, train_batch *b) {
  b->B = n;
  b->T = widest(s, of, first, n);
  if (width > b->T) b->T = width;
  b->labelled = b->tokens = 0;
  HP_ASSERT(b->B * b->T <= b->most);
  for (int64_t i = 0; i < n; i++) fill_row(d, s, of ? of[first + i] : first + i, i, b);
}

int64_t train_data_width(train_data *d, int64_t epoch, int64_t micro) {
  int64_t first, n = sampler_micro(&d->order, micro, &first);
  return widest(&d->train, order_of(d, epoch), first, n);
}

void train_data_batch(train_data *d, int64_t epoch, int64_t micro, int64_t width, train_batch *b) {
  int64_t first, n = sampler_micro(&d->order, micro, &first);
  fill(d, &d->train, order_of(d, epoch), first, n, width, b);
}

void train_data_eval_batch(const train_data *d, const sample_set *s, int64_t batch, int64_t i,
                           int64_t width, train_batch *b) {
  int64_t first = i * batch, left = s->samples - first;
  fill(d, s, NULL, first, left < batch ? left : batch, width, b);
}
