#include "serve/session.h"

#include "base/dtype.h"
#include "base/log.h"
#include "base/mem.h"

#include <string.h>

enum { CHUNKS = 5, SHORT = 1, T_MAX = 1024, ROWS_MAX = 2048 };
static const int64_t chunk_size[CHUNKS] = {1, 16, 64, 256, T_MAX};

/* The largest chunk that n tokens of each of B sequences fill, of no more rows than ROWS_MAX where
 * there is a choice; what is less than a short one is padded to it. */
static int chunk_of(int64_t B, int64_t n) {
  int k = n > 1 ? SHORT : 0;
  while (k + 1 < CHUNKS && chunk_size[k + 1] <= n && B * chunk_size[k + 1] <= ROWS_MAX) k++;
  return k;
}

struct session {
  lm *m;
  int64_t B, capacity, slots; /* tokens wanted; keys in the cache, with room for a padded chunk */
  int64_t *length;            /* of each sequence */
  int32_t *ids, *positions, *span, *at, *row; /* inputs of a program, [B,T] or [B] */
  float *logits;                              /* [B,V], where not all of them are wanted */
  bool tables;                                /* dynamic scaling: the tables are for this prompt */
  hp_program *program[CHUNKS];
  hp_program *last; /* that ran */
};

/* Bytes that a token in the cache takes: its keys and values, and its row of the rotary tables. */
static uint64_t token_bytes(const session *s) {
  const model_config *c = &s->m->c;
  uint64_t keys =
      (uint64_t)(s->B * 2 * c->layers * c->kv_heads * c->head_dim) * dtype_size(s->m->compute);
  return keys + (c->rope.theta ? (uint64_t)c->head_dim * sizeof(float) : 0);
}

static hp_status check_room(const session *s) {
  const lm *m = s->m;
  if (s->capacity < 1 || s->capacity > INT32_MAX / 2)
    HP_FAIL(HP_ERR_ARG, "capacity of %lld tokens; expected 1 to %d", (long long)s->capacity,
            INT32_MAX / 2);
  if (s->B < 1 || s->B > INT32_MAX / T_MAX)
    HP_FAIL(HP_ERR_ARG, "%lld sequences side by side; expected 1 to %d", (long long)s->B,
            INT32_MAX / T_MAX);
  if (s->B > 1 && m->c.rope.kind == ROPE_DYNAMIC)
    HP_FAIL(HP_ERR_UNSUPPORTED,
            "%s turns its tokens by the length of their prompt (dynamic rope scaling): generate "
            "one sequence at a time",
            m->path);
  uint64_t have = mem_physical(), fit = have / token_bytes(s);
  if ((uint64_t)s->capacity > fit)
    HP_FAIL(HP_ERR_OOM,
            "capacity of %lld tokens: their keys and values would take %.1f GiB, and the "
            "machine has %.1f: at most %llu tokens fit; lower max_new_tokens",
            (long long)s->capacity, (double)s->capacity * (double)token_bytes(s) / 0x1p30,
            (double)have / 0x1p30, (unsigned long long)fit);
  if (s->capacity <= m->c.max_length) return HP_OK;
  if (!m->c.rope.theta)
    HP_FAIL(HP_ERR_ARG, "%lld tokens in all: %s has learned positions for %lld only",
            (long long)s->capacity, m->path, (long long)m->c.max_length);
  log_warn("%lld tokens in all are beyond the model's max_position_embeddings %lld",
           (long long)s->capacity, (long long)m->c.max_length);
  return HP_OK;
}

hp_status session_create(lm *m, int64_t sequences, int64_t capacity, session **out) {
  session *s = mem_calloc(1, sizeof *s);
  HP_TRY_MEM(s);
  *s = (session){.m = m, .B = sequences, .capacity = capacity};
  hp_status st = check_room(s);
  if (!st) {
    int64_t chunk = chunk_size[chunk_of(sequences, capacity)]; /* the largest that can come */
    size_t n = (size_t)sequences, rows = n * (size_t)chunk;
    s->slots = capacity + chunk;
    s->length = mem_calloc(n, sizeof *s->length);
    s->ids = mem_calloc(4 * rows + 2 * n, sizeof *s->ids);
    if (n > 1) s->logits = mem_calloc(n * (size_t)m->c.vocab, sizeof *s->logits);
    if (!s->length || !s->ids || (n > 1 && !s->logits)) st = HP_ERR_OOM;
    if (!st) {
      s->positions = s->ids + rows;
      s->span = s->positions + rows;
      s->at = s->span + 2 * rows;
      s->row = s->at + n;
    }
  }
  if (st) session_free(s);
  else *out = s;
  return st;
}

void session_free(session *s) {
  if (!s) return;
  for (int i = 0; i < CHUNKS; i++) hp_program_free(s->program[i]);
  mem_free(s->length);
  mem_free(s->ids);
  mem_free(s->logits);
  mem_free(s);
}

void session_reset(session *s) {
  memset(s->length, 0, (size_t)s->B * sizeof *s->length);
  s->tables = false;
}

hp_program *session_program(const session *s) { return s->last; }

/* The program for chunks of T tokens: logits of the row that the input `row` names, of each
 * sequence. */
static hp_status make_program(session *s, int k, int64_t prompt) {
  model_build b;
  int64_t T = chunk_size[k], width = s->m->c.hidden;
  HP_TRY(lm_graph_begin(s->m, s->B, T, s->slots, s->slots, &b));
  hp_tensor row = hp_input(b.g, "row", HP_I32, (hp_shape){2, {s->B, 1}});
  hp_tensor h = hp_reshape(b.g, s->m->c.family->hidden(&b), (hp_shape){2, {s->B * T, width}});
  hp_output(b.g, "logits", lm_head(&b, hp_embedding(b.g, h, row, -1)));
  hp_status st = hp_graph_status(b.g);
  if (!st && b.failed) st = HP_ERR_OOM;
  if (!st) st = lm_make_buffers(s->m, &b, prompt);
  if (!st) st = hp_compile(b.g, s->m->d, NULL, &s->program[k]);
  lm_graph_end(&b);
  if (st != HP_ERR_OOM) return st;
  err_report why;
  err_take(st, &why);
  HP_FAIL(st, "%s (with room for %lld tokens; fewer new tokens need less)", why.message,
          (long long)s->capacity);
}

/* Dynamic scaling turns the tokens of a prompt for its whole length. */
static hp_status make_tables(session *s, int64_t prompt) {
  model_build b;
  if (s->tables || s->m->c.rope.kind != ROPE_DYNAMIC) return HP_OK;
  HP_TRY(lm_graph_begin(s->m, s->B, 1, s->slots, s->slots, &b));
  s->m->c.family->hidden(&b);
  hp_status st = lm_make_buffers(s->m, &b, prompt);
  lm_graph_end(&b);
  s->tables = !st;
  return st;
}

/* Sequence i of a chunk of T: n tokens, 0 or more; padding stands where the last token does. */
static void put_sequence(session *s, int64_t i, int64_t T, const int32_t *ids, int64_t n) {
  int64_t last = s->length[i] + n > 0 ? s->length[i] + n - 1 : 0;
  s->at[i] = (int32_t)s->length[i];
  s->row[i] = (int32_t)(i * T + (n > 0 ? n - 1 : 0));
  for (int64_t t = 0; t < T; t++) {
    int64_t to = i * T + t;
    s->ids[to] = t < n ? ids[t] : 0;
    s->positions[to] = (int32_t)(t < n ? s->length[i] + t : last);
    s->span[2 * to] = 0;
    s->span[2 * to + 1] = s->positions[to];
  }
}

/* The tokens from `from` on of every sequence, as many as the chunk holds; logits of the sequences
 * whose last token is among them. */
static hp_status run_chunk(session *s, int k, const int32_t *const *ids, const int64_t *count,
                           int64_t from, float *logits) {
  int64_t T = chunk_size[k], ending = 0;
  size_t V = (size_t)s->m->c.vocab, bytes = (size_t)(s->B * T) * sizeof *s->ids;
  for (int64_t i = 0; i < s->B; i++) {
    int64_t left = count[i] > from ? count[i] - from : 0;
    put_sequence(s, i, T, left ? ids[i] + from : NULL, left < T ? left : T);
    ending += left > 0 && left <= T;
  }
  float *out = ending == s->B || !s->logits ? logits : s->logits;
  hp_io io[] = {{"ids", s->ids, bytes},
                {"positions", s->positions, bytes},
                {"span", s->span, 2 * bytes},
                {"cache_at", s->at, (size_t)s->B * sizeof *s->at},
                {"row", s->row, (size_t)s->B * sizeof *s->row},
                {"logits", out, (size_t)s->B * V * sizeof *logits}};
  HP_TRY(hp_run(s->program[k], io, 6));
  s->last = s->program[k];
  for (size_t i = 0; i < (size_t)s->B; i++) {
    int64_t left = count[i] > from ? count[i] - from : 0;
    s->length[i] += left < T ? left : T;
    if (out != logits && left > 0 && left <= T)
      memcpy(logits + i * V, out + i * V, V * sizeof *logits);
  }
  return HP_OK;
}

/* Tokens of one sequence: as many as there is room for, and in the vocabulary. */
static hp_status check_tokens(const session *s, int64_t i, const int32_t *ids, int64_t n) {
  if (n < 0 || s->length[i] + n > s->capacity)
    HP_FAIL(HP_ERR_ARG, "%lld tokens do not fit: room is for %lld, %lld are taken", (long long)n,
            (long long)s->capacity, (long long)s->length[i]);
  for (int64_t t = 0; t < n; t++)
    if (ids[t] < 0 || ids[t] >= s->m->c.vocab)
      HP_FAIL(HP_ERR_ARG, "token id %d at place %lld is not in 0..%lld, the vocabulary of %s",
              ids[t], (long long)t, (long long)s->m->c.vocab - 1, s->m->path);
  return HP_OK;
}

hp_status session_feed(session *s, const int32_t *const *ids, const int64_t *count, float *logits) {
  int64_t most = 0, longest = 0;
  for (int64_t i = 0; i < s->B; i++) {
    HP_TRY(check_tokens(s, i, ids[i], count[i]));
    if (count[i] > most) most = count[i];
    if (s->length[i] + count[i] > longest) longest = s->length[i] + count[i];
  }
  if (most < 1) HP_FAIL(HP_ERR_ARG, "no tokens to feed; at least one is needed");
  HP_TRY(make_tables(s, longest));
  for (int64_t from = 0; from < most;) {
    int k = chunk_of(s->B, most - from);
    if (!s->program[k]) HP_TRY(make_program(s, k, longest));
    HP_TRY(run_chunk(s, k, ids, count, from, logits));
    from += chunk_size[k];
  }
  return HP_OK;
}
