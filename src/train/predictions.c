#include "train/predictions.h"

#include "base/json.h"
#include "base/round.h"

enum { WIDTH_LEAST = 20 }; /* max_length of Transformers' default GenerationConfig */

hp_status predictions_create(const sample_set *s, int64_t samples, predictions *out) {
  *out = (predictions){.set = s, .samples = samples};
  out->answer = mem_calloc((size_t)samples + 1, sizeof *out->answer);
  return out->answer ? HP_OK : HP_ERR_OOM;
}

void predictions_free(predictions *p) {
  for (int64_t i = 0; p->answer && i < p->samples; i++) vec_free(&p->answer[i]);
  mem_free(p->answer);
  *p = (predictions){0};
}

/* --- the tokens of a sample ------------------------------------------------------------------- */

typedef struct {
  const int32_t *at;
  int64_t n;
} tokens;

static tokens prompt_of(const sample_set *s, int64_t i) {
  return (tokens){s->ids + s->start[i], sample_set_prompt(s, i)};
}

static tokens label_of(const sample_set *s, int64_t i) {
  int64_t first = s->start[i] + sample_set_prompt(s, i);
  return (tokens){s->ids + first, s->start[i + 1] - first};
}

static tokens answer_of(const predictions *p, int64_t i) {
  return (tokens){p->answer[i].at, (int64_t)p->answer[i].len};
}

static hp_status decode(const tokenizer *t, tokens x, bool skip_special, str *out) {
  str_clear(out);
  return tokenizer_decode_clean(t, x.at, (size_t)x.n, skip_special, out);
}

hp_status predictions_score(const predictions *p, const tokenizer *t, similarity *out) {
  str answer = {0}, label = {0};
  hp_status st = HP_OK;
  for (int64_t i = 0; i < p->samples && !st; i++) {
    st = decode(t, answer_of(p, i), true, &answer);
    if (!st) st = decode(t, label_of(p->set, i), true, &label);
    if (!st) st = similarity_add(out, &answer, &label);
  }
  str_free(&answer);
  str_free(&label);
  return st;
}

/* --- lines ------------------------------------------------------------------------------------ */

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* Tokens of the longest row: a prompt is padded to the longest of its batch and followed by the
 * longest answer there; labels are as wide as the longest of their batch. */
typedef struct {
  int64_t answers, labels;
  int64_t *label_batch; /* of each batch */
} widths;

static hp_status measure(const predictions *p, int64_t batch, widths *out) {
  const sample_set *s = p->set;
  int64_t multiple = s->multiple ? s->multiple : 1;
  *out = (widths){.answers = WIDTH_LEAST};
  out->label_batch = mem_calloc((size_t)(p->samples / batch) + 1, sizeof *out->label_batch);
  HP_TRY_MEM(out->label_batch);
  for (int64_t first = 0; first < p->samples; first += batch) {
    int64_t prompt = 0, answer = 0, label = 0;
    for (int64_t i = first; i < first + batch && i < p->samples; i++) {
      prompt = larger(prompt, prompt_of(s, i).n);
      answer = larger(answer, answer_of(p, i).n);
      label = larger(label, label_of(s, i).n);
    }
    out->answers = larger(out->answers, round_up(prompt, multiple) + answer);
    out->labels = larger(out->labels, round_up(label, multiple));
    out->label_batch[first / batch] = round_up(label, multiple);
  }
  return HP_OK;
}

/* x in a row of `width` with `before` pads in front of it, and pads behind it. */
static hp_status put_row(tokens x, int64_t before, int64_t width, int32_t pad, token_ids *row) {
  row->len = 0;
  if (!vec_reserve(row, larger(width, before + x.n))) return HP_ERR_OOM;
  for (int64_t i = 0; i < before; i++) row->at[row->len++] = pad;
  for (int64_t i = 0; i < x.n; i++) row->at[row->len++] = x.at[i];
  while ((int64_t)row->len < width) row->at[row->len++] = pad;
  return HP_OK;
}

static void put_text(json_writer *w, const char *key, const str *text) {
  json_put_key(w, key);
  json_put_string_n(w, text->at ? text->at : "", text->len);
}

typedef struct {
  const predictions *p;
  const tokenizer *t;
  const predictions_form *f;
  widths width;
  token_ids row;
  str text;
} printing;

static hp_status put_answer(printing *x, int64_t i, json_writer *w) {
  tokens answer = answer_of(x->p, i);
  while (answer.n && *answer.at == x->f->pad) answer.at++, answer.n--; /* pads move to the end */
  HP_TRY(put_row(answer, 0, x->width.answers, x->f->pad, &x->row));
  tokens row = {x->row.at, (int64_t)x->row.len};
  HP_TRY(decode(x->t, row, x->f->skip_special, &x->text));
  put_text(w, "predict", &x->text);
  return HP_OK;
}

static hp_status put_label(printing *x, int64_t i, json_writer *w) {
  tokens label = label_of(x->p->set, i);
  int64_t before = x->width.label_batch[i / x->f->batch] - label.n;
  HP_TRY(put_row(label, before, x->width.labels, x->f->pad, &x->row));
  tokens row = {x->row.at, (int64_t)x->row.len};
  HP_TRY(decode(x->t, row, x->f->skip_special, &x->text));
  put_text(w, "label", &x->text);
  return HP_OK;
}

static hp_status print_sample(printing *x, int64_t i, str *out) {
  json_writer w = {.out = out, .utf8 = true};
  json_open_map(&w);
  HP_TRY(decode(x->t, prompt_of(x->p->set, i), false, &x->text));
  put_text(&w, "prompt", &x->text);
  HP_TRY(put_answer(x, i, &w));
  HP_TRY(put_label(x, i, &w));
  json_close(&w);
  str_add_char(out, '\n');
  return str_status(out);
}

hp_status predictions_print(const predictions *p, const tokenizer *t, const predictions_form *f,
                            str *out) {
  printing x = {.p = p, .t = t, .f = f};
  hp_status st = measure(p, f->batch, &x.width);
  for (int64_t i = 0; i < p->samples && !st; i++) st = print_sample(&x, i, out);
  mem_free(x.width.label_batch);
  vec_free(&x.row);
  str_free(&x.text);
  return st;
}
