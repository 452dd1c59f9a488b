#include "train/losses.h"

#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"

#include <string.h>

void train_data_free(train_data *d) {
  if (!d) return;
  sample_set_free(&d->train);
  for (int64_t i = 0; i < d->evals; i++) sample_set_free(&d->eval[i]);
  length_order_free(&d->by_length);
  mem_free(d->eval);
  mem_free(d->shuffled.of);
}

/* Rows of a sample. */
static int64_t rows_each(const sample_set *s) { return s->each > 1 ? s->each : 1; }

/* --- loading ---------------------------------------------------------------------------------- */

static dataset_spec spec_of(const train_config *c, const train_names *names) {
  return (dataset_spec){.dir = c->dataset_dir,
                        .kind = losses[c->stage].data,
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

/* Replicas that are filled up may make a batch much larger than the data. */
static hp_status check_rows(const char *key, int64_t rows, int64_t longest) {
  const double most = 1e10;
  if ((double)rows * (double)longest <= most) return HP_OK;
  HP_FAIL(HP_ERR_INPUT,
          "%s: batches of %lld samples, of %lld tokens each, are more than %g tokens; write a "
          "smaller number",
          key, (long long)rows, (long long)longest, most);
}

static hp_status add_eval(loader *l, const char *name, const dataset *texts, train_data *out) {
  sample_set *s = &out->eval[out->evals];
  const char *shown = *name ? name : "the evaluation data";
  loss_samples *samples =
      l->c->predict_with_generate ? answer_samples : losses[l->c->stage].samples;
  HP_TRY(samples(l->c, &l->rules, shown, texts, l->p, s));
  s->name = name;
  out->evals++;
  if (out->drop_last && s->samples < out->eval_batch)
    HP_FAIL(HP_ERR_INPUT,
            "dataloader_drop_last leaves nothing to evaluate on%s%s: %lld samples are less than "
            "one batch of %lld; lower per_device_eval_batch_size or write dataloader_drop_last: "
            "false",
            *name ? " in " : "", name, (long long)s->samples, (long long)out->eval_batch);
  return check_rows("per_device_eval_batch_size", train_data_eval_rows(out, s), s->longest);
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

/* Where the mesh must not decide the numbers, the last step is short or left out as on one device;
 * else every replica has as many samples. */
static hp_status deal(const train_config *c, int64_t samples, int64_t *epoch_samples) {
  const train_batching *b = &c->is.batch;
  bool fills = b->replicas > 1 && !b->same_on_all;
  sampler_last last = c->dataloader_drop_last ? SAMPLER_DROP : fills ? SAMPLER_FILL : SAMPLER_SHORT;
  return sampler_deal(samples, b->same_on_all ? b->global : b->rows, last, epoch_samples);
}

static hp_status make_order(const train_config *c, train_data *out) {
  sampler_spec spec = {.samples = out->train.samples,
                       .epoch_samples = c->is.batch.epoch_samples,
                       .batch = c->is.batch.rows,
                       .accumulation = c->is.batch.accumulation,
                       .epochs = c->num_train_epochs,
                       .max_steps = c->max_steps,
                       .seed = c->is.data_seed,
                       .shuffle = c->is.shuffle};
  if (!spec.epoch_samples) HP_TRY(deal(c, spec.samples, &spec.epoch_samples));
  HP_TRY(sampler_create(&spec, &out->order));
  HP_TRY(check_rows("per_device_train_batch_size", train_data_rows(out), out->train.longest));
  out->shuffled.epoch = -1;
  out->shuffled.of = mem_calloc((size_t)out->train.samples, sizeof *out->shuffled.of);
  return out->shuffled.of ? HP_OK : HP_ERR_OOM;
}

static void note_vocab(train_data *d, const sample_set *s) {
  for (int64_t i = 0; s->samples && i < s->start[s->samples * rows_each(s)]; i++)
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
  if (!st && texts.sample.len)
    st = losses[c->stage].samples(c, &l->rules, "the training data", &texts, l->p, &out->train);
  dataset_free(&texts);
  if (!st && out->train.samples) st = make_order(c, out);
  if (st) return st;
  return length_order_create(c, &out->order, &out->train, out->eval, out->evals, &out->by_length);
}

hp_status train_data_open(const train_config *c, const tokenizer *t, const char *tokenizer_dir,
                          pool *p, train_data *out) {
  const train_batching *b = &c->is.batch;
  train_data d = {.packed = c->is.packed,
                  .replicas = b->same_on_all ? 1 : b->replicas,
                  .eval_batch = c->per_device_eval_batch_size * b->replicas,
                  .fills = b->replicas > 1 && !b->same_on_all,
                  .drop_last = c->dataloader_drop_last};
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

hp_status train_data_check_judgements(const train_data *d) {
  const sample_set *s = &d->train;
  int64_t goods = 0;
  if (!s->good) return HP_OK;
  for (int64_t i = 0; i < s->samples; i++) goods += s->good[i];
  if (goods && goods < s->samples) return HP_OK;
  HP_FAIL(HP_ERR_INPUT,
          "the training data: all %lld answers are judged %s; stage kto expects some of both: see "
          "the column kto_tag in dataset_info.json",
          (long long)s->samples, goods ? "good" : "bad");
}

hp_status train_data_digest(const train_data *d, const sample_set *s, char hex[33]) {
  hash_stream *h;
  HP_TRY(hash_stream_create(&h));
  hash_stream_add(h, &d->pad, sizeof d->pad);
  hash_stream_add(h, &s->samples, sizeof s->samples);
  int64_t rows = s->samples * rows_each(s);
  if (rows) {
    hash_stream_add(h, s->start, ((size_t)rows + 1) * sizeof *s->start);
    const int32_t *const of[] = {s->ids, s->labels, s->position, s->first};
    size_t bytes = (size_t)s->start[rows] * sizeof *s->ids;
    for (int i = 0; i < 4; i++)
      if (of[i]) hash_stream_add(h, of[i], bytes);
  }
  hash_hex(hash_stream_get(h), hex);
  hash_stream_free(h);
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

int64_t train_data_rows(const train_data *d) {
  const sampler_spec *s = &d->order.spec;
  return (s->batch < s->epoch_samples ? s->batch : s->epoch_samples) * rows_each(&d->train);
}

int64_t train_data_eval_rows(const train_data *d, const sample_set *s) {
  return (d->fills || d->eval_batch < s->samples ? d->eval_batch : s->samples) * rows_each(s);
}

int64_t train_data_largest(const train_data *d) {
  int64_t most = train_data_rows(d) * d->train.longest;
  for (int64_t i = 0; i < d->evals; i++) {
    int64_t n = train_data_eval_rows(d, &d->eval[i]) * d->eval[i].longest;
    if (n > most) most = n;
  }
  return most;
}

static int64_t length(const sample_set *s, int64_t row) {
  return s->start[row + 1] - s->start[row];
}

static const int64_t *order_of(train_data *d, int64_t epoch) {
  if (d->shuffled.epoch == epoch) return d->shuffled.of;
  if (d->by_length.on) length_order_epoch(&d->by_length, &d->train, epoch, d->shuffled.of);
  else sampler_order(&d->order, epoch, d->shuffled.of);
  d->shuffled.epoch = epoch;
  return d->shuffled.of;
}

/* Some samples: n of those listed in `of`, or of 0, 1, 2 ..., from `first` on; behind the last one
 * comes the first. */
typedef struct {
  const sample_set *set;
  const int64_t *of; /* NULL: as they are */
  int64_t first, n;
} chosen;

static int64_t sample_at(const chosen *c, int64_t i) {
  int64_t at = (c->first + i) % c->set->samples;
  return c->of ? c->of[at] : at;
}

/* The tokens of a row of n of them, from `from` on: of the longest, as a multiple. */
static int64_t widest(const chosen *c, int64_t from, int64_t n) {
  int64_t most = 0, unit = c->set->multiple ? c->set->multiple : 1;
  for (int64_t i = from; i < from + n; i++) {
    int64_t row = sample_at(c, i) * rows_each(c->set);
    for (int64_t k = 0; k < rows_each(c->set); k++)
      if (length(c->set, row + k) > most) most = length(c->set, row + k);
  }
  return (most + unit - 1) / unit * unit;
}

bool train_data_has_spans(const train_data *d) {
  bool has = d->train.first != NULL || rows_each(&d->train) > 1;
  for (int64_t i = 0; i < d->evals; i++)
    has |= d->eval[i].first != NULL || rows_each(&d->eval[i]) > 1;
  return has;
}

/* Do they say the position of each token? */
static bool has_positions(const train_data *d) {
  bool has = d->train.position != NULL;
  for (int64_t i = 0; i < d->evals; i++) has |= d->eval[i].position != NULL;
  return has;
}

hp_status train_batch_create(const train_data *d, int64_t tokens, train_batch *out) {
  size_t n = (size_t)tokens;
  *out = (train_batch){.ids = mem_calloc(n, sizeof *out->ids),
                       .labels = mem_calloc(n, sizeof *out->labels),
                       .lengths = mem_calloc(n, sizeof *out->lengths),
                       .most = tokens};
  if (has_positions(d)) out->position = mem_calloc(n, sizeof *out->position);
  if (train_data_has_spans(d)) out->span = mem_calloc(n, 2 * sizeof *out->span);
  bool pairs = rows_each(&d->train) > 1 || (d->evals && rows_each(&d->eval[0]) > 1);
  if (pairs) out->ref = mem_calloc(n, sizeof *out->ref);
  if (pairs) out->good = mem_calloc(n, sizeof *out->good);
  bool ok = out->ids && out->labels && out->lengths && (out->position || !has_positions(d)) &&
            (out->span || !train_data_has_spans(d)) && (!pairs || (out->ref && out->good));
  return ok ? HP_OK : HP_ERR_OOM;
}

void train_batch_free(train_batch *b) {
  mem_free(b->ids);
  mem_free(b->labels);
  mem_free(b->lengths);
  mem_free(b->position);
  mem_free(b->span);
  mem_free(b->ref);
  mem_free(b->good);
}

/* The longest row of a batch that is learned: of judged answers not those of other prompts. */
static int64_t learned_width(const chosen *c) {
  int64_t most = 0, unit = c->set->multiple ? c->set->multiple : 1;
  for (int64_t i = 0; i < c->n; i++) {
    int64_t n = length(c->set, sample_at(c, i) * rows_each(c->set));
    if (n > most) most = n;
  }
  return (most + unit - 1) / unit * unit;
}

/* Positions, and what each token sees; padding sees the row, as in Transformers.  Row `of` of the
 * set is row `row` of the batch. */
static void fill_places(const sample_set *s, int64_t of, int64_t row, train_batch *b) {
  int64_t n = length(s, of), at = s->start[of];
  for (int64_t i = 0; b->position && i < b->T; i++)
    b->position[row * b->T + i] = !s->position ? (int32_t)i : i < n ? s->position[at + i] : 0;
  for (int64_t i = 0; b->span && i < b->T; i++) {
    int32_t *span = b->span + (row * b->T + i) * 2;
    span[0] = i < n && s->first ? s->first[at + i] : 0;
    span[1] = (int32_t)(i < n ? i : n - 1);
  }
}

static void fill_row(const train_data *d, const sample_set *s, int64_t of, int64_t row,
                     train_batch *b) {
  int64_t n = length(s, of);
  int32_t *ids = b->ids + row * b->T, *labels = b->labels + row * b->T;
  memcpy(ids, s->ids + s->start[of], (size_t)n * sizeof *ids);
  for (int64_t i = 0; i < b->T; i++) {
    if (i >= n) ids[i] = d->pad;
    labels[i] = ids[i] == d->pad ? LABEL_NONE : ids[i];
  }
  if (s->labels) memcpy(labels, s->labels + s->start[of], (size_t)n * sizeof *labels);
  for (int64_t i = 0; i < b->T; i++) b->labelled += labels[i] != LABEL_NONE;
  fill_places(s, of, row, b);
  if (s->ref && b->ref) b->ref[row] = s->ref[of];
  b->tokens += n;
  if (b->lengths) b->lengths[row] = (int32_t)n;
}

/* Tokens when every replica pads its part to the longest there, as processes do by themselves. */
static int64_t padded_apart(const chosen *c, int64_t replicas, int64_t width) {
  int64_t each = c->n / replicas, all = 0;
  for (int64_t r = 0; r < replicas; r++) {
    int64_t most = widest(c, r * each, each);
    all += each * (most > width ? most : width);
  }
  return all * rows_each(c->set);
}

static void fill(const train_data *d, const chosen *c, int64_t width, train_batch *b) {
  int64_t each = rows_each(c->set);
  b->B = c->n * each;
  b->T = widest(c, 0, c->n);
  if (width > b->T) b->T = width;
  b->labelled = b->tokens = 0;
  b->padded = padded_apart(c, c->n % d->replicas ? 1 : d->replicas, width);
  HP_ASSERT(b->B * b->T <= b->most);
  b->width = (int32_t)(c->set->good ? learned_width(c) : b->T);
  for (int64_t i = 0; c->set->good && i < c->n; i++) b->good[i] = c->set->good[sample_at(c, i)];
  for (int64_t i = 0; i < b->B; i++)
    fill_row(d, c->set, sample_at(c, i / each) * each + i % each, i, b);
}

static chosen micro_of(train_data *d, int64_t epoch, int64_t micro) {
  chosen c = {.set = &d->train, .of = order_of(d, epoch)};
  c.n = sampler_micro(&d->order, micro, &c.first);
  return c;
}

void train_data_shape(train_data *d, int64_t epoch, int64_t micro, int64_t *B, int64_t *T) {
  chosen c = micro_of(d, epoch, micro);
  *B = c.n * rows_each(c.set);
  *T = widest(&c, 0, c.n);
}

void train_data_batch(train_data *d, int64_t epoch, int64_t micro, int64_t width, train_batch *b) {
  chosen c = micro_of(d, epoch, micro);
  fill(d, &c, width, b);
}

int64_t train_data_eval_batches(const train_data *d, const sample_set *s) {
  return s->samples / d->eval_batch + (!d->drop_last && s->samples % d->eval_batch != 0);
}

int64_t train_data_evaluations(const train_data *d) {
  return d->by_length.on ? length_order_evaluations(&d->by_length) : 1;
}

void train_data_order_evaluation(train_data *d, int64_t i) {
  if (d->by_length.on) length_order_evaluation(&d->by_length, i);
}

static chosen eval_batch_of(const train_data *d, const sample_set *s, int64_t i) {
  const int64_t *order = d->by_length.on ? d->by_length.eval_order[s - d->eval] : NULL;
  chosen c = {.set = s, .of = order, .first = i * d->eval_batch};
  int64_t left = s->samples - c.first;
  c.n = d->fills || left > d->eval_batch ? d->eval_batch : left;
  return c;
}

void train_data_eval_shape(const train_data *d, const sample_set *s, int64_t i, int64_t *B,
                           int64_t *T) {
  chosen c = eval_batch_of(d, s, i);
  *B = c.n * rows_each(c.set);
  *T = widest(&c, 0, c.n);
}

void train_data_eval_batch(const train_data *d, const sample_set *s, int64_t i, int64_t width,
                           train_batch *b) {
  chosen c = eval_batch_of(d, s, i);
  fill(d, &c, width, b);
}
