/* Data sets of conversations into samples. */
#include "train/chat_rows.h"
#include "train/losses.h"

#include "base/log.h"
#include "base/milestone.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHATS_A_PART = 16 };

typedef struct {
  const train_config *c;
  const char *shown;
  chat_rules rules;
  const dataset_sample *sample;
  int64_t n;
  int each, responses; /* rows of a sample; responses that its conversation has; 0: any number */
  int64_t *other;      /* stage kto: whose response the second row has; NULL: other stages */
  chat_row *row;       /* [n * each] */
  err_report *failure; /* one a part; code HP_OK: none */
} encoding;

static bool is_left_out(const encoding *w, int64_t i) {
  const chat *c = w->sample[i].chat;
  return c->left_out || (w->responses && c->n - c->prompt != (size_t)w->responses);
}

/* Whose response the second row of sample i has; its own, if that of the other is left out. */
static const chat *other_of(const encoding *w, int64_t i) {
  return w->sample[is_left_out(w, w->other[i]) ? i : w->other[i]].chat;
}

static hp_status encode_one(const encoding *w, int64_t i) {
  const chat *c = w->sample[i].chat;
  chat_row *row = &w->row[i * w->each];
  milestone_count_work();
  if (is_left_out(w, i)) return HP_OK;
  hp_status st;
  if (!w->responses) st = chat_row_of_answer(&w->rules, c, row);
  else if (w->each == 1) st = chat_row_of_turns(&w->rules, c, row);
  else if (!w->other) st = chat_rows_of_pair(&w->rules, c, row);
  else st = chat_rows_of_judged(&w->rules, c, other_of(w, i), row);
  if (!st || st == HP_ERR_OOM) return st;
  char text[ERR_MESSAGE_MAX];
  snprintf(text, sizeof text, "%s", err_message());
  err_clear();
  HP_FAIL(st, "%s: record %lld: %s", c->path, (long long)c->record, text);
}

static void encode_part(void *ctx, int64_t part) {
  encoding *w = ctx;
  hp_status st = HP_OK;
  int64_t first = part * CHATS_A_PART, last = first + CHATS_A_PART;
  for (int64_t i = first; i < last && i < w->n && !st; i++) st = encode_one(w, i);
  if (st) err_take(st, &w->failure[part]);
}

static hp_status encode_all(encoding *w, pool *p) {
  int64_t parts = (w->n + CHATS_A_PART - 1) / CHATS_A_PART;
  w->row = mem_calloc((size_t)(w->n * w->each), sizeof *w->row);
  w->failure = mem_calloc((size_t)parts, sizeof *w->failure);
  if (!w->row || !w->failure) return HP_ERR_OOM;
  pool_run(p, parts, encode_part, w);
  for (int64_t i = 0; i < parts; i++)
    if (w->failure[i].code) return err_give(&w->failure[i]);
  return HP_OK;
}

/* --- what the user is told -------------------------------------------------------------------- */

/* Two responses are a judged one and an empty one, for pairs are of other stages. */
static const char *why_left_out(const chat *c) {
  if (c->left_out) return c->left_out;
  if (c->n == c->prompt) return "it has no response";
  return c->n - c->prompt == 1 ? "no column kto_tag judges its answer true or false"
                               : "its answer is judged (column kto_tag), which is for stage kto";
}

/* Is an answer that is learned, or compared, empty? */
static bool has_empty_answer(const encoding *w, const chat *c) {
  bool good, empty = false;
  if (w->other) return !chat_judged(c, &good)->text.len;
  bool all = w->responses == 1 && !w->c->mask_history;
  for (size_t i = all ? 0 : c->prompt; i < c->n; i++) {
    chat_role r = c->message[i].role;
    empty |= (r == CHAT_ASSISTANT || r == CHAT_FUNCTION) && !c->message[i].text.len;
  }
  return empty;
}

/* Records that are not trained on, or not as they are. */
static hp_status tell(const encoding *w) {
  int64_t left_out = 0, cut = 0, empty = 0, mute = 0;
  const chat *first = NULL;
  for (int64_t i = 0; i < w->n; i++) {
    const chat *c = w->sample[i].chat;
    if (is_left_out(w, i)) {
      if (!left_out++) first = c;
      continue;
    }
    bool labels = false;
    empty += has_empty_answer(w, c);
    for (int k = 0; k < w->each; k++) {
      const chat_row *row = &w->row[i * w->each + k];
      cut += k == 0 && row->cut;
      for (size_t t = 0; t < row->labels.len && !labels; t++)
        labels = row->labels.at[t] != LABEL_NONE;
    }
    mute += !labels;
  }
  if (left_out)
    log_warn("%s: %lld of %lld records are left out; the first is record %lld of %s: %s", w->shown,
             (long long)left_out, (long long)w->n, (long long)first->record, first->path,
             why_left_out(first));
  if (left_out == w->n)
    HP_FAIL(HP_ERR_INPUT,
            "%s: no record is left to train on; see dataset_info.json: its "
            "formatting, columns and tags",
            w->shown);
  if (w->responses && empty)
    log_warn("%s: an empty answer in %lld of the records: they teach the model to end at once",
             w->shown, (long long)empty);
  if (cut)
    log_info("%s: %lld of %lld samples are longer than cutoff_len %lld and are cut", w->shown,
             (long long)cut, (long long)(w->n - left_out), (long long)w->c->cutoff_len);
  if (w->responses && mute)
    log_warn("%s: %lld samples have nothing to learn in their first cutoff_len %lld tokens; raise "
             "cutoff_len",
             w->shown, (long long)mute, (long long)w->c->cutoff_len);
  return HP_OK;
}

/* A place for what a model of images would read there. */
static const char *find_placeholder(const chat *c) {
  static const char *const places[] = {"<image>", "<video>", "<audio>"};
  for (size_t k = 0; k < c->n; k++)
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
      if (memmem(c->message[k].text.at, c->message[k].text.len, places[i], strlen(places[i])))
        return places[i];
  return NULL;
}

static hp_status refuse_placeholders(const encoding *w) {
  int64_t n = 0;
  const chat *first = NULL;
  for (int64_t i = 0; i < w->n; i++) {
    const chat *c = w->sample[i].chat;
    if (!is_left_out(w, i) && find_placeholder(c) && !n++) first = c;
  }
  if (!n) return HP_OK;
  HP_FAIL(HP_ERR_INPUT,
          "%s: record %lld has %s, and no file for it can be read: models of text alone are built "
          "(%lld of %lld records have such words); leave these records out, or write the words "
          "otherwise if they are text",
          first->path, (long long)first->record, find_placeholder(first), (long long)n,
          (long long)w->n);
}

/* --- samples ---------------------------------------------------------------------------------- */

static hp_status make_room(sample_set *s, int64_t rows, int64_t tokens) {
  size_t n = tokens ? (size_t)tokens : 1;
  s->start = mem_calloc((size_t)rows + 1, sizeof *s->start);
  s->ids = mem_calloc(n, sizeof *s->ids);
  s->labels = mem_calloc(n, sizeof *s->labels);
  return s->start && s->ids && s->labels ? HP_OK : HP_ERR_OOM;
}

/* Appends a row behind the tokens that there are. */
static void append(sample_set *s, int64_t *at, const chat_row *row) {
  size_t n = row->ids.len;
  if (n) memcpy(s->ids + *at, row->ids.at, n * sizeof *s->ids);
  if (n) memcpy(s->labels + *at, row->labels.at, n * sizeof *s->labels);
  *at += (int64_t)n;
}

/* A sample for each conversation. */
static hp_status list_samples(const encoding *w, sample_set *s) {
  int64_t tokens = 0, at = 0, rows = 0, samples = 0;
  for (int64_t i = 0; i < w->n * w->each; i++) tokens += (int64_t)w->row[i].ids.len;
  HP_TRY(make_room(s, w->n * w->each, tokens));
  if (w->other) s->good = mem_calloc((size_t)w->n, sizeof *s->good);
  if (w->other && !s->good) return HP_ERR_OOM;
  for (int64_t i = 0; i < w->n; i++) {
    if (is_left_out(w, i)) continue;
    if (w->other) chat_judged(w->sample[i].chat, &s->good[samples]);
    for (int k = 0; k < w->each; k++) {
      append(s, &at, &w->row[i * w->each + k]);
      s->start[++rows] = at;
      int64_t len = at - s->start[rows - 1];
      if (len > s->longest) s->longest = len;
    }
    samples++;
  }
  s->samples = samples;
  s->each = w->each;
  s->multiple = w->c->is.train ? 8 : 1;
  s->longest = (s->longest + s->multiple - 1) / s->multiple * s->multiple;
  return HP_OK;
}

/* --- packing ---------------------------------------------------------------------------------- */

typedef struct {
  int64_t length, row;
} packable;

static int by_length(const void *a, const void *b) {
  const packable *x = a, *y = b;
  if (x->length != y->length) return x->length < y->length ? -1 : 1;
  return (x->row > y->row) - (x->row < y->row);
}

/* Takes the longest one of n that fits, of equal ones the last; -1: none does. */
static int64_t take_fitting(packable *p, int64_t *n, int64_t room) {
  int64_t low = 0, high = *n;
  while (low < high) {
    int64_t mid = (low + high) / 2;
    if (p[mid].length <= room) low = mid + 1;
    else high = mid;
  }
  if (!low) return -1;
  int64_t row = p[low - 1].row;
  memmove(&p[low - 1], &p[low], (size_t)(*n - low) * sizeof *p);
  (*n)--;
  return row;
}

/* Rows in the order of their packs; PACK_END ends each. */
enum { PACK_END = -1 };
typedef struct {
  VEC(int64_t) row;
  int64_t packs, too_long;
} packing;

/* The packs of n rows: the longest that fits, again and again. */
static hp_status pack_rows(const encoding *w, packable *p, int64_t n, packing *out) {
  qsort(p, (size_t)n, sizeof *p, by_length);
  while (n) {
    int64_t room = w->c->is.block;
    for (int64_t row; (row = take_fitting(p, &n, room)) >= 0;) {
      room -= (int64_t)w->row[row].ids.len;
      if (!vec_push(&out->row, row)) return HP_ERR_OOM;
    }
    if (!vec_push(&out->row, PACK_END)) return HP_ERR_OOM;
    out->packs++;
  }
  return HP_OK;
}

static hp_status pack_groups(const encoding *w, packing *out) {
  packable *p = mem_calloc((size_t)w->n, sizeof *p);
  hp_status st = p ? HP_OK : HP_ERR_OOM;
  for (sample_group g = sample_group_first(w->c, w->n); !st && sample_group_next(&g);) {
    int64_t n = 0;
    for (int64_t i = g.first; i < g.last; i++) {
      int64_t len = (int64_t)w->row[i].ids.len;
      if (is_left_out(w, i)) continue;
      if (len > w->c->is.block) out->too_long++;
      else p[n++] = (packable){len, i};
    }
    st = pack_rows(w, p, n, out);
  }
  mem_free(p);
  return st;
}

/* Fills up a pack of cutoff_len tokens: padding is not learned, and nothing learns from it. */
static void end_pack(const encoding *w, int32_t pad, sample_set *s, int64_t *at) {
  int64_t begin = s->start[s->samples], end = begin + w->c->cutoff_len;
  for (; *at < end; ++*at) {
    s->ids[*at] = pad;
    s->labels[*at] = LABEL_NONE;
    if (s->first) s->first[*at] = (int32_t)(*at - begin);
  }
  s->start[++s->samples] = end;
}

/* Positions begin anew with each row, which with neat_packing does not see those before it. */
static void append_packed(sample_set *s, int64_t *at, const chat_row *row) {
  int64_t begin = s->start[s->samples], from = *at;
  append(s, at, row);
  for (int64_t i = from; i < *at; i++) {
    s->position[i] = (int32_t)(i - from);
    if (s->first) s->first[i] = (int32_t)(from - begin);
  }
}

static hp_status fill_packs(const encoding *w, const packing *of, int32_t pad, sample_set *s) {
  int64_t tokens = of->packs * w->c->cutoff_len, at = 0;
  HP_TRY(make_room(s, of->packs, tokens));
  s->position = mem_calloc((size_t)tokens + 1, sizeof *s->position);
  HP_TRY_MEM(s->position);
  if (w->c->neat_packing) s->first = mem_calloc((size_t)tokens + 1, sizeof *s->first);
  if (w->c->neat_packing && !s->first) return HP_ERR_OOM;
  for (size_t i = 0; i < of->row.len; i++) {
    if (of->row.at[i] == PACK_END) end_pack(w, pad, s, &at);
    else append_packed(s, &at, &w->row[of->row.at[i]]);
  }
  s->each = 1;
  s->longest = w->c->cutoff_len;
  return HP_OK;
}

static hp_status pack_samples(const encoding *w, int32_t pad, sample_set *s) {
  packing of = {0};
  hp_status st = pack_groups(w, &of);
  if (!st) st = fill_packs(w, &of, pad, s);
  if (!st && of.too_long)
    log_warn("%s: %lld samples are longer than a pack and are left out", w->shown,
             (long long)of.too_long);
  vec_free(&of.row);
  return st;
}

/* --- stages ----------------------------------------------------------------------------------- */

static hp_status make_encoder(const train_config *c, const token_rules *r, chat_encoder *out) {
  chat_options o = {.tool_format = c->tool_format,
                    .default_system = c->default_system,
                    .thinks = c->enable_thinking,
                    .keeps_thoughts = c->preserve_thinking};
  return chat_encoder_create(r->tokenizer, c->template, c->model_name_or_path, r->eos, &o, out);
}

static void free_encoding(encoding *w) {
  for (int64_t i = 0; w->row && i < w->n * w->each; i++) chat_row_free(&w->row[i]);
  mem_free(w->row);
  mem_free(w->failure);
  mem_free(w->other);
}

static hp_status make_samples(encoding *w, const token_rules *r, const dataset *d, pool *p,
                              sample_set *out) {
  chat_encoder e;
  sample_set s = {.name = ""};
  w->sample = d->sample.at;
  w->n = (int64_t)d->sample.len;
  HP_TRY(make_encoder(w->c, r, &e));
  w->rules = (chat_rules){.e = &e,
                          .cutoff = w->c->is.block,
                          .learns_prompt = w->c->train_on_prompt,
                          .last_answer = w->c->mask_history};
  hp_status st = encode_all(w, p);
  if (!st) st = tell(w);
  if (!st) st = refuse_placeholders(w);
  bool packed = w->c->is.packed && w->responses;
  if (!st) st = packed ? pack_samples(w, r->pad, &s) : list_samples(w, &s);
  chat_encoder_free(&e);
  free_encoding(w);
  if (st) sample_set_free(&s);
  else *out = s;
  return st;
}

hp_status sft_samples(const train_config *c, const token_rules *r, const char *shown,
                      const dataset *d, pool *p, sample_set *out) {
  encoding w = {.c = c, .shown = shown, .each = 1, .responses = 1};
  return make_samples(&w, r, d, p, out);
}

hp_status answer_samples(const train_config *c, const token_rules *r, const char *shown,
                         const dataset *d, pool *p, sample_set *out) {
  encoding w = {.c = c, .shown = shown, .each = 1};
  return make_samples(&w, r, d, p, out);
}

hp_status pair_samples(const train_config *c, const token_rules *r, const char *shown,
                       const dataset *d, pool *p, sample_set *out) {
  encoding w = {.c = c, .shown = shown, .each = 2, .responses = 2};
  return make_samples(&w, r, d, p, out);
}

/* The sample whose response stands in for another answer to each: the one before it in its group,
 * for the first the last one. */
static hp_status find_others(encoding *w, const dataset *d) {
  int64_t n = (int64_t)d->sample.len;
  w->other = mem_calloc((size_t)n, sizeof *w->other);
  HP_TRY_MEM(w->other);
  for (sample_group g = sample_group_first(w->c, n); sample_group_next(&g);)
    for (int64_t i = g.first; i < g.last; i++) w->other[i] = i > g.first ? i - 1 : g.last - 1;
  return HP_OK;
}

hp_status judged_samples(const train_config *c, const token_rules *r, const char *shown,
                         const dataset *d, pool *p, sample_set *out) {
  encoding w = {.c = c, .shown = shown, .each = 2, .responses = 2};
  HP_TRY(find_others(&w, d));
  return make_samples(&w, r, d, p, out);
}
