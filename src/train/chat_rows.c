#include "train/chat_rows.h"

#include <string.h>

void chat_row_free(chat_row *r) {
  vec_free(&r->ids);
  vec_free(&r->labels);
}

/* What is kept of a question and its answer within `room` tokens: the shorter one is kept first, as
 * in LlamaFactory's infer_seqlen. */
static void fit(int64_t room, int64_t *question, int64_t *answer) {
  int64_t q = *question, a = *answer, most = room;
  if (a * 2 >= room)
    most = q * 2 < room ? room - q : (int64_t)((double)room * ((double)a / (double)(q + a)));
  if (a > most) a = most;
  int64_t left = room - a > 0 ? room - a : 0;
  *question = q < left ? q : left;
  *answer = a;
}

/* Appends the first n ids, with themselves or with LABEL_NONE as labels. */
static hp_status put(chat_row *out, const token_ids *ids, int64_t n, bool learned) {
  for (int64_t i = 0; i < n; i++) {
    int32_t id = ids->at[i];
    if (!vec_push(&out->ids, id)) return HP_ERR_OOM;
    if (!vec_push(&out->labels, learned ? id : LABEL_NONE)) return HP_ERR_OOM;
  }
  return HP_OK;
}

static hp_status put_end(const chat_rules *r, chat_row *out) {
  int32_t eos = r->e->eos;
  return vec_push(&out->ids, eos) && vec_push(&out->labels, eos) ? HP_OK : HP_ERR_OOM;
}

/* --- stage sft -------------------------------------------------------------------------------- */

typedef struct {
  int64_t question, answer; /* tokens that are kept; both 0: the turn is left out */
} turn;

/* How much of each turn is kept: from the first on, or from the last if that alone is learned. */
static void fit_turns(const chat_rules *r, const token_ids *ids, int64_t turns, turn *kept,
                      chat_row *out) {
  int64_t all = r->e->of.ends_turns;
  for (int64_t k = 0; k < turns; k++) {
    int64_t i = r->last_answer ? turns - 1 - k : k;
    int64_t question = (int64_t)ids[2 * i].len, answer = (int64_t)ids[2 * i + 1].len;
    if (all >= r->cutoff) {
      out->cut = true;
      return;
    }
    kept[i] = (turn){question, answer};
    fit(r->cutoff - all, &kept[i].question, &kept[i].answer);
    out->cut |= kept[i].question < question || kept[i].answer < answer;
    all += kept[i].question + kept[i].answer;
  }
}

static hp_status put_turn(const chat_rules *r, const token_ids *ids, const turn *kept, bool begins,
                          bool learned, chat_row *out) {
  size_t first = out->labels.len;
  HP_TRY(put(out, &ids[0], kept->question, r->learns_prompt));
  /* where the end token is not part of the answer, it is learned at the start of the next turn */
  bool ends = r->e->of.ends_turns && !r->learns_prompt && !begins && kept->question;
  if (ends) out->labels.at[first] = r->e->eos;
  return put(out, &ids[1], kept->answer, learned);
}

hp_status chat_row_of_turns(const chat_rules *r, const chat *c, chat_row *out) {
  size_t n = c->n;
  int64_t turns = (int64_t)n / 2;
  token_ids *ids = mem_calloc(n, sizeof *ids);
  turn *kept = mem_calloc((size_t)turns, sizeof *kept);
  hp_status st = ids && kept ? HP_OK : HP_ERR_OOM;
  chat_turns all = {c->message, n, c->system, c->tools};
  bool drops = r->last_answer && !r->e->keeps_thoughts;
  if (!st) st = chat_encode(r->e, &all, false, drops, ids);
  if (!st) fit_turns(r, ids, turns, kept, out);
  for (int64_t i = 0; i < turns && !st; i++) {
    bool first = r->last_answer ? i == turns - 1 : i == 0;
    if (kept[i].question + kept[i].answer)
      st = put_turn(r, &ids[2 * i], &kept[i], first, !r->last_answer || first, out);
  }
  if (!st && r->e->of.ends_turns) st = put_end(r, out);
  for (size_t i = 0; ids && i < n; i++) vec_free(&ids[i]);
  mem_free(ids);
  mem_free(kept);
  return st;
}

/* --- one answer ------------------------------------------------------------------------------- */

/* Tokens of the prompt, and of the answer; both are zeroed lists. */
static hp_status encode_answer(const chat_rules *r, const chat *c, const chat_message *answer,
                               token_ids *prompt, token_ids *tokens) {
  size_t n = c->prompt + 1;
  chat_message *message = mem_calloc(n, sizeof *message);
  token_ids *ids = mem_calloc(n, sizeof *ids);
  hp_status st = message && ids ? HP_OK : HP_ERR_OOM;
  if (!st) {
    memcpy(message, c->message, c->prompt * sizeof *message);
    message[c->prompt] = *answer;
    st = chat_encode(r->e, &(chat_turns){message, n, c->system, c->tools}, true, false, ids);
  }
  for (size_t i = 0; i < c->prompt && !st; i++)
    for (size_t k = 0; k < ids[i].len && !st; k++)
      if (!vec_push(prompt, ids[i].at[k])) st = HP_ERR_OOM;
  if (!st) {
    *tokens = ids[c->prompt];
    ids[c->prompt] = (token_ids){0};
    if (r->e->of.ends_turns && !vec_push(tokens, r->e->eos)) st = HP_ERR_OOM;
  }
  for (size_t i = 0; ids && i < n; i++) vec_free(&ids[i]);
  mem_free(ids);
  mem_free(message);
  return st;
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

hp_status chat_rows_of_pair(const chat_rules *r, const chat *c, chat_row out[2]) {
  token_ids prompt[2] = {0}, answer[2] = {0};
  hp_status st = HP_OK;
  for (int k = 0; k < 2 && !st; k++)
    st = encode_answer(r, c, &c->message[c->prompt + (size_t)k], &prompt[k], &answer[k]);
  if (!st) {
    int64_t question = (int64_t)prompt[0].len, most = (int64_t)answer[0].len;
    if ((int64_t)answer[1].len > most) most = (int64_t)answer[1].len;
    int64_t q = question, a = most;
    fit(r->cutoff, &q, &a);
    for (int k = 0; k < 2 && !st; k++) {
      int64_t n = (int64_t)answer[k].len;
      st = put(&out[k], &prompt[0], q, false);
      if (!st) st = put(&out[k], &answer[k], least(a, n), true);
      out[k].cut = q < question || a < n;
    }
  }
  for (int k = 0; k < 2; k++) {
    vec_free(&prompt[k]);
    vec_free(&answer[k]);
  }
  return st;
}

const chat_message *chat_judged(const chat *c, bool *good) {
  const chat_message *m = &c->message[c->prompt];
  *good = m[0].text.len > 0;
  return *good ? m : m + 1;
}

static hp_status put_answer(const chat_rules *r, const chat *c, const chat_message *with,
                            chat_row *out) {
  token_ids prompt = {0}, answer = {0};
  hp_status st = encode_answer(r, c, with, &prompt, &answer);
  int64_t q = (int64_t)prompt.len, a = (int64_t)answer.len;
  fit(r->cutoff, &q, &a);
  if (!st) st = put(out, &prompt, q, false);
  if (!st) st = put(out, &answer, a, true);
  out->cut = q < (int64_t)prompt.len || a < (int64_t)answer.len;
  vec_free(&prompt);
  vec_free(&answer);
  return st;
}

hp_status chat_row_of_answer(const chat_rules *r, const chat *c, chat_row *out) {
  static const chat_message none = {.role = CHAT_ASSISTANT, .text = {"", 0}};
  return put_answer(r, c, c->n - c->prompt == 1 ? &c->message[c->prompt] : &none, out);
}

hp_status chat_rows_of_judged(const chat_rules *r, const chat *c, const chat *other,
                              chat_row out[2]) {
  bool good;
  const chat_message *with[2] = {chat_judged(c, &good), chat_judged(other, &good)};
  hp_status st = HP_OK;
  for (int k = 0; k < 2 && !st; k++) st = put_answer(r, c, with[k], &out[k]);
  return st;
}
